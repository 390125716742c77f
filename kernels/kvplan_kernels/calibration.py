"""The calibration file: TOML, schema kvplan.calibration/1, written and read with the standard library alone.

schema = "kvplan.calibration/1"
[device]   name, driver, memory_bytes, multiprocessors, l2_bytes
[versions] torch, triton, python
[source]   date, command
[[conditions]] at ("start" or "end"), sm_clock_mhz, memory_clock_mhz, temperature_c, power_w
[[samples]] owner, kernel, the shape's own keys, median_s, p10_s, p90_s, replays, bytes, flops, roof, error, tolerance
"""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

SCHEMA = "kvplan.calibration/1"
MEASURED = ("median_s", "p10_s", "p90_s", "replays", "bytes", "flops", "roof", "error", "tolerance")
Table = dict[str, Any]


def key(sample: Table) -> str:
    """Whose kernel at which shape: what makes a sample the same as another."""
    shape = " ".join(f"{name}={value}" for name, value in sample.items() if name not in (*MEASURED, "owner", "kernel"))
    return f"{sample['owner']} {sample['kernel']} {shape}"


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if "e" in f"{value:.6g}" or "." in f"{value:.6g}" else f"{value:.1f}"
    return json.dumps(value, ensure_ascii=False)  # strings, integers and booleans are spelled alike in TOML


def _lines(table: Table) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in table.items()]


def dumps(document: Table) -> str:
    lines = [f"schema = {_value(SCHEMA)}"]
    for name in ("device", "versions", "source"):
        lines += ["", f"[{name}]", *_lines(document[name])]
    for name in ("conditions", "samples"):
        for table in document.get(name, []):
            lines += ["", f"[[{name}]]", *_lines(table)]
    return "\n".join(lines) + "\n"


def write(path: Path, document: Table) -> None:
    """Replace the file at once, so that an interruption leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(dumps(document), encoding="utf-8")
    os.replace(part, path)


def read(path: Path) -> Table:
    """Raises ValueError for anything but this schema."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    if document.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {document.get('schema')!r}, expected {SCHEMA!r}")
    return document
