"""Versioned JSON Schemas of the documents that kvplan prints: `kvplan schema NAME`."""

from difflib import get_close_matches
from typing import Any

from kvplan.errors import UsageError
from kvplan.schemas import agents, kernels, listings, plans
from kvplan.schemas.build import Fields, Json, OneOf, build
from kvplan.schemas.common import Document, head

DOCUMENTS: dict[str, Document] = plans.DOCUMENTS | agents.DOCUMENTS | listings.DOCUMENTS | kernels.DOCUMENTS


def schema_rows() -> list[dict[str, str]]:
    """Every document by name, with the commands that print it."""
    return [{"name": name, "printed_by": one.printed_by} for name, one in sorted(DOCUMENTS.items())]


def find_schema(name: str) -> Json:
    """The JSON Schema of `kvplan.plan/1`, `plan/1` or `plan`. Raises UsageError with the nearest names."""
    known = {short: full for full in DOCUMENTS for short in (full, full.removeprefix("kvplan."), _plain(full))}
    full = known.get(name.lower())
    if full is None:
        raise UsageError(_unknown(name, known))
    document = DOCUMENTS[full]
    described = f"What `kvplan {document.printed_by} --json` prints."
    return build(full, described, document.shape if document.whole else _headed(full, document.shape))


def _headed(name: str, shape: Any) -> Any:
    if isinstance(shape, OneOf):
        return OneOf(tuple(_headed(name, one) for one in shape.shapes))
    if isinstance(shape, Fields):
        return Fields(shape.cls, shape.without, (*shape.more, *head(name).items()), shape.sparse)
    return head(name) | shape


def _plain(full: str) -> str:
    return full.removeprefix("kvplan.").partition("/")[0]


def _unknown(name: str, known: dict[str, str]) -> str:
    base, _, version = name.lower().removeprefix("kvplan.").partition("/")
    if base in known and version:
        return f"schema {name[:40]!r}: this kvplan writes {known[base]}"
    near = get_close_matches(base, known, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`kvplan schema` lists them"
    return f"no document called {name[:40]!r}; {hint}"
