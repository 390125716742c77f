"""Model argument → Model: a path, a bundled profile, the Hugging Face cache, then the hub."""

import os
import re
from urllib.parse import urlparse

from kvplan.errors import SourceError
from kvplan.model import Model
from kvplan.sources.bundled import from_profile, near
from kvplan.sources.local import from_cache, from_path
from kvplan.sources.strict import reason, shown

_REPO = re.compile(r"[A-Za-z0-9][\w.\-]{0,95}/[A-Za-z0-9][\w.\-]{0,95}", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w.\-]*(?:/[\w.\-]+)*", re.ASCII)
_HUB_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
MAX_ARGUMENT = 4096


def resolve(argument: str) -> Model:
    """The model that `argument` names.

    Raises SourceError where nothing gives it, ProfileError and ConfigError where something does and is malformed.
    """
    if not argument.strip() or len(argument) > MAX_ARGUMENT or "\0" in argument:
        raise SourceError(
            "the model argument is empty or no name; write for example kimi-k3 or a path to a config.json"
        )
    try:
        return _resolve(argument)
    except OSError as error:
        raise SourceError(f"{shown(argument)}: {reason(error)}") from None


def _resolve(argument: str) -> Model:
    name, revision = _from_url(argument) if "://" in argument else (argument, None)
    if "://" not in argument:
        found = from_path(argument) or from_profile(argument)
        if found is not None:
            return found
        name, _, after = argument.partition("@")
        revision = after or None
    elif revision is None and (found := from_profile(name)):
        return found
    if not _REPO.fullmatch(name) or ".." in name or "--" in name:
        raise SourceError(_unknown(argument))
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise SourceError(f"{name}: the revision {revision[:60]!r} is not a branch, tag or commit")
    return from_cache(name, revision) or _from_hub(name, revision)


def _from_hub(name: str, revision: str | None) -> Model:
    # The hub's client takes half a second to import, so that comes last and only when the hub answers.
    from kvplan.sources.reach import check  # noqa: PLC0415

    check(f"{name}{f' at {revision}' if revision else ''}")
    from kvplan.sources.hub import fetch  # noqa: PLC0415

    return fetch(name, revision)


def _from_url(url: str) -> tuple[str, str | None]:
    """Repository and revision of a hub address, with or without /tree/REVISION or /blob/REVISION/config.json."""
    try:
        parsed = urlparse(url)
    except ValueError:
        raise SourceError(f"{url[:80]!r} is not an address") from None
    own = urlparse(os.environ.get("HF_ENDPOINT", "")).netloc
    if parsed.scheme not in ("http", "https") or parsed.netloc not in (*_HUB_HOSTS, own):
        raise SourceError(f"{url[:80]}: only addresses of models on the Hugging Face hub can be read")
    parts = [part for part in parsed.path.split("/") if part]
    revision = None
    if len(parts) >= 4 and parts[2] in ("tree", "blob", "resolve", "raw"):
        revision = parts[3]
    elif len(parts) != 2:
        raise SourceError(f"{url[:80]}: expected the address of a model, ORGANISATION/NAME")
    return "/".join(parts[:2]), None if revision == "main" else revision


def _unknown(argument: str) -> str:
    typed = argument[:80] if argument.isprintable() else repr(argument[:60])
    close = near(argument)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    empty = f"the directory {typed} holds no config.json. " if os.path.isdir(argument) else ""
    return (
        f"{typed}: no such file, bundled model or Hugging Face id (ORGANISATION/NAME); {hint}{empty}"
        "`kvplan models list` shows the bundled ones"
    )
