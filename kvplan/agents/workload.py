"""Workload profiles: percentile tables of how agents and chats use a model, with their sources.

profiles/workloads/*.toml, schema `kvplan.workload/1`.
"""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kvplan.agents.quantiles import PERCENTS, Quantiles
from kvplan.errors import ProfileError
from kvplan.profiles import load, paths

Value = Annotated[float, Field(ge=0, le=1 << 40, strict=False)]
Share = Annotated[float, Field(ge=0, le=1, strict=False)]

TABLES = {
    "context_tokens": "prompt and answer of a request",
    "context_tokens_by_time": "the same, weighted by how long it stands (pauses capped)",
    "input_tokens": "prompt",
    "output_tokens": "answer",
    "new_tokens": "prompt beyond what the request before it shares",
    "service_s": "seconds from sending to the end of the answer",
    "tool_pause_s": "seconds before a request that a tool's result causes",
    "user_pause_s": "seconds before a request that a person causes",
    "requests_per_session": "requests of a conversation",
    "session_peak_tokens": "largest context of a conversation",
    "preamble_tokens": "tool definitions and system prompt",
}


class Table(BaseModel):
    """Values at the percentiles of `PERCENTS`, ascending."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    values: Annotated[tuple[Value, ...], Field(min_length=len(PERCENTS), max_length=len(PERCENTS), strict=False)]
    mean: Value

    @model_validator(mode="after")
    def _ascending(self) -> "Table":
        if list(self.values) != sorted(self.values):
            raise ValueError("values do not ascend")
        return self

    def quantiles(self) -> Quantiles:
        return Quantiles(self.values, self.mean)


class Origin(BaseModel):
    """Where the requests were published, and under which licence."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    title: str
    url: str
    date: str
    licence: str
    note: str = ""


class Workload(BaseModel):
    """One way of using a model. Where its trace has no sessions or no times, those tables are absent."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    schema_: Literal["kvplan.workload/1"] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,59}$")]
    title: str
    requests: Annotated[int, Field(ge=1)]
    sessions: Annotated[int, Field(ge=1)]
    percents: Annotated[tuple[float, ...], Field(strict=False)]
    tables: dict[str, Table]
    user_share: Share | None = None
    """Of the requests that continue a conversation, those that a person causes."""
    session_share: Share = 0.0
    """Of the variance of context lengths (normal scores), what differs between sessions and not within one."""
    duty: Share | None = None
    """Share of the time of an open session, pauses capped, in which the model works for it."""
    session_s: Value | None = None
    """Mean time that a session stays open, pauses capped."""
    gap_cap_s: Value | None = None
    source: Origin

    @model_validator(mode="after")
    def _known(self) -> "Workload":
        unknown = next((name for name in self.tables if name not in TABLES), None)
        if unknown is not None:
            raise ValueError(f"tables.{unknown[:40]} is no known table")
        if "context_tokens" not in self.tables:
            raise ValueError("tables.context_tokens is missing")
        if self.percents != PERCENTS:
            raise ValueError(f"percents are not {', '.join(f'{percent:g}' for percent in PERCENTS)}")
        return self

    def table(self, name: str) -> Quantiles | None:
        return self.tables[name].quantiles() if name in self.tables else None


def parse_workload(document: dict[str, Any], where: str) -> Workload:
    """The profile in a TOML document. Raises ProfileError naming the field."""
    try:
        return Workload.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the profile"
        raise ProfileError(f"{where}: {field}: {first['msg'].removeprefix('Value error, ')}") from None


def find_workload(name: str) -> Workload:
    """The bundled or the user's own profile of that name. Raises ProfileError with the nearest names."""
    found = paths("workloads")
    path = found.get(name.lower())
    if path is None:
        near = get_close_matches(name.lower(), found, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"bundled: {', '.join(sorted(found))}"
        raise ProfileError(f"no workload named {name[:60]!r}, and no trace of that path; {hint}")
    return read_workload(path)


def read_workload(path: Path) -> Workload:
    return parse_workload(load(path), str(path))


def list_workloads() -> list[Workload]:
    """Every workload profile, by name."""
    return [read_workload(path) for _, path in sorted(paths("workloads").items())]


def to_toml(workload: Workload) -> str:
    """The profile as TOML, which `parse_workload` reads back."""
    document = workload.model_dump(by_alias=True, exclude_none=True)
    tables, source = document.pop("tables"), document.pop("source")
    lines = [f"{key} = {_toml(value)}" for key, value in document.items()]
    lines += ["", "[source]", *(f"{key} = {_toml(value)}" for key, value in source.items())]
    for name, table in tables.items():
        lines += ["", f"[tables.{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped) + '"'
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_toml, value))}]"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
