"""Overheads measured by boot logs: what an engine took besides weights and pool, on one GPU, in one version."""

import json
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvplan.errors import ProfileError, SourceError
from kvplan.files import write_text
from kvplan.profiles import load, paths, user_root

KIND = "overheads"
Bytes = Annotated[int, Field(ge=0, le=1 << 60)]
Word = Annotated[str, Field(min_length=1, max_length=100)]


class Overhead(BaseModel):
    """One measurement. memory × gpu_memory_utilization = weights + pool + other; graphs lie inside or outside of other,
    as the engine's version has it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    schema_: Literal["kvplan.overhead/1"] = Field(alias="schema")
    engine: Word
    engine_version: Word
    gpu: Word
    model: Word
    tp: Annotated[int, Field(ge=1)] = 1
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)]
    max_num_batched_tokens: Annotated[int, Field(ge=1)] | None = None
    memory_bytes: Bytes
    weights_bytes: Bytes
    pool_bytes: Bytes
    graphs_bytes: Bytes | None = None
    other_bytes: Bytes


def store(measured: Overhead) -> Path:
    """Write a measurement into the user's data directory; a later one of the same deployment replaces it."""
    name = re.sub(
        r"[^a-z0-9.]+",
        "-",
        f"{measured.engine}-{measured.engine_version}-{measured.gpu}-{measured.model}-tp{measured.tp}".lower(),
    )
    path = user_root() / KIND / f"{name}.toml"
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}"
        for key, value in measured.model_dump(by_alias=True, exclude_none=True).items()
    ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
    write_text(path, "\n".join(lines) + "\n")
    paths.cache_clear()
    return path


def measured_overheads(engine: str, gpu: str, version: str | None = None) -> list[Overhead]:
    """Every measurement of an engine on a GPU, those of the version asked for first."""
    found = [_parse(path) for path in paths(KIND).values()]
    same = [one for one in found if one.engine == engine and one.gpu.lower() == gpu.lower()]
    return sorted(same, key=lambda one: one.engine_version != version)


def _parse(path: Path) -> Overhead:
    try:
        return Overhead.model_validate(load(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise ProfileError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
