"""The bundled model behind a name that is none: cache paths, folders of another machine, quantised siblings."""

import re
from collections.abc import Iterator, Sequence

from kvplan.model import Model
from kvplan.sources.bundled import from_profile, list_models

_HUB_FOLDER = re.compile(r"models--([\w.-]+?)--([\w.-]+)")
_FORMAT = re.compile(
    r"[-_.](?:fp8(?:[-_](?:dynamic|block|static))?|nvfp4(?:[-_]\w+)?|mxfp4|awq(?:[-_]\w+)?|gptq(?:[-_]\w+)?|int[48]|w\d+a\d+"
    r"|quantized(?:\.w\d+a\d+)?|bnb(?:[-_]4bit)?|[48]bit|bf16|gguf|q\d\w*|iq\d\w*|ud|mtp|dynamic|unquantized|qat|text)$",
    re.IGNORECASE,
)


def bundled_like(names: Sequence[str]) -> tuple[Model, str] | None:
    """(model, spelling that found it): the first bundled model that one of the names means; None where none does."""
    ends = {row["hf_id"].rpartition("/")[2].lower(): row["name"] for row in list_models() if row["hf_id"]}
    for name in names:
        for other in spellings(name):
            found = from_profile(other) or from_profile(ends.get(other.lower(), ""))
            if found is not None:
                return found, other
    return None


def ends_alike(name: str, model: Model) -> bool:
    """Whether a name is the model's own, whatever stands before it: no suffix of another weight format."""
    end = name.rstrip("/").rpartition("/")[2].lower()
    if match := _HUB_FOLDER.search(name):
        end = match[2].lower()
    return end in (model.name.lower(), model.hf_id.rpartition("/")[2].lower())


def spellings(name: str) -> Iterator[str]:
    """The name, the id in a cache path, the ends of a path, each without suffixes that only name a weight format."""
    text = "-".join(name.split()).rstrip("/")
    names = [text]
    if match := _HUB_FOLDER.search(text):
        names.append(f"{match[1]}/{match[2]}")
    parts = [part for part in text.split("/") if part]
    names += ["/".join(parts[-2:])] if len(parts) > 2 else []
    names += parts[-1:]
    for one in dict.fromkeys(names):
        yield one
        bare = one
        while (shorter := _FORMAT.sub("", bare)) != bare:
            bare = shorter
            yield bare
