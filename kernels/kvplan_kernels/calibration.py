"""The calibration file: TOML, schema kvplan.calibration/1, written and read with the standard library alone.

schema = "kvplan.calibration/1"
[device]   name, driver, memory_bytes, multiprocessors, l2_bytes
[versions] torch, triton, python
[source]   date, command
[[conditions]] at ("start" or "end"), sm_clock_mhz, memory_clock_mhz, temperature_c, power_w
[[samples]] owner, kernel, the shape's own keys, median_s, p10_s, p90_s, replays, bytes, flops, roof, error, tolerance

Published times of others (kvplan's import) name their kernel in `source` and lack what was not published.
"""

import contextlib
import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = "kvplan.calibration/1"
PRECISION_SCHEMA = "kvplan.precision/1"  # device, versions, source, [study], [[errors]]: written by `precision`
MEASURED = ("median_s", "p10_s", "p90_s", "replays", "bytes", "flops", "roof", "error", "tolerance", "source")
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


def dumps(document: Table, schema: str = SCHEMA) -> str:
    """Tables, and lists of tables, in the document's order."""
    lines = [f"schema = {_value(schema)}"]
    for name, part in document.items():
        if name == "schema":
            continue
        for table in [part] if isinstance(part, dict) else part:
            lines += ["", f"[{name}]" if isinstance(part, dict) else f"[[{name}]]", *_lines(table)]
    return "\n".join(lines) + "\n"


def write(path: Path, document: Table, schema: str = SCHEMA) -> None:
    """Replace the file at once, so that an interruption leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(dumps(document, schema), encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def read(path: Path, *schemas: str) -> Table:
    """Raises ValueError for anything but a calibration, or one of `schemas` where they are given."""
    document, expected = tomllib.loads(path.read_text(encoding="utf-8")), schemas or (SCHEMA,)
    if document.get("schema") not in expected:
        raise ValueError(f"{path}: schema {document.get('schema')!r}, expected {' or '.join(expected)}")
    return document


@contextlib.contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold PATH for one bench at a time; ValueError while another has it. The lock goes with its process."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.stat(lock)  # gone if its last holder finished after we opened it
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise ValueError(f"{path}: another bench (process {holder}) is writing it; give --out PATH") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
