"""A `kvplan.plan/1` document from a file, checked as far as a comparison relies on it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kvplan.errors import SourceError
from kvplan.sources.strict import read_json, shown

SCHEMA = "kvplan.plan/1"
MOST_LEVELS = 20
"""A plan has five."""

Count = Annotated[int, Field(ge=0)]
Tokens = Annotated[int, Field(ge=1)]


class _Part(BaseModel):
    """Keys may be added to a plan, so unknown ones pass."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Bytes(_Part):
    """One sequence's bytes at one length."""

    context_tokens: Tokens
    kv_bytes: Count
    window_bytes: Count
    state_bytes: Count
    conv_bytes: Count
    index_bytes: Count
    snapshot_bytes: Count
    total_bytes: Count


class Fits(_Part):
    """Sequences of one length: per replica, and in the whole deployment."""

    context_tokens: Tokens
    sequences: Count
    packed: Count
    deployment_sequences: Count
    binds: str


class PoolBytes(_Part):
    bytes: Count
    low_bytes: Count
    high_bytes: Count
    source: str


class Named(_Part):
    name: str
    layers: dict[str, int] = {}
    weights_bytes: Count | None


class Rank(_Part):
    sequences: list[Bytes]
    weights_bytes: Count | None


class PlanDocument(_Part):
    """The parts of a plan that `kvplan diff` compares."""

    inputs: dict[str, Any]
    model: Named
    per_sequence: list[Bytes]
    per_rank: Rank | None
    engine: dict[str, Any] | None
    pool: PoolBytes | None
    capacity: list[Fits]

    @model_validator(mode="after")
    def _each_length_once(self) -> "PlanDocument":
        for name, rows in (("per_sequence", self.per_sequence), ("capacity", self.capacity)):
            lengths = [row.context_tokens for row in rows]
            if len(set(lengths)) < len(lengths):
                raise ValueError(f"{name}: a context_tokens appears twice")
        return self


def read_plan(path: str) -> PlanDocument:
    """The plan in a file. Raises SourceError, naming file and field, for anything that is no plan of this schema."""
    return check_plan(read_json(Path(path)), shown(path))


def check_plan(data: Any, what: str) -> PlanDocument:
    if _too_deep(data):
        raise SourceError(f"{what}: nested too deeply for a plan")
    if not isinstance(data, dict):
        raise SourceError(f"{what}: a JSON object is expected, as `kvplan estimate --json` writes it")
    schema = data.get("schema")
    if schema != SCHEMA:
        said = _another(schema) if "schema" in data else "no schema, so not a plan"
        raise SourceError(f"{what}: {said}; write the plan again with `kvplan estimate --json`")
    try:
        return PlanDocument.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise SourceError(f"{what}: {field[:80]}{': ' if field else ''}{said}") from None


def _another(schema: Any) -> str:
    """How a schema differs from the one that is read, by its version where it is a plan's."""
    base, _, version = str(schema).rpartition("/")
    own_base, _, own = SCHEMA.rpartition("/")
    if base == own_base and version.isascii() and version.isdecimal() and len(version) < 9:
        return f"schema {str(schema)!r} is not {SCHEMA!r} but {'newer' if int(version) > int(own) else 'older'}"
    return f"schema {str(schema)[:40]!r} is not {SCHEMA!r}"


def _too_deep(data: Any) -> bool:
    level = [data]
    for _ in range(MOST_LEVELS):
        level = [item for part in level for item in _children(part)]
    return bool(level)


def _children(part: Any) -> Iterable[Any]:
    return part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
