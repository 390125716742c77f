"""Measured kernel times of a GPU, as `kvplan bench` writes them: find one, and set two beside each other."""

from pathlib import Path
from typing import Any

from kvplan.errors import ProfileError
from kvplan.profiles import load, paths
from kvplan_kernels.calibration import SCHEMA, key

_TABLES = ("device", "versions", "source")


def list_calibrations() -> list[dict[str, Any]]:
    """Every calibration at hand: its name, device, date and how many samples it holds."""
    return [_summary(name, find_calibration(name)) for name in sorted(paths("calibration"))]


def find_calibration(name: str) -> dict[str, Any]:
    """A calibration by name or path. Raises ProfileError naming what is wrong with it."""
    known = paths("calibration")
    path = Path(name) if name.endswith(".toml") else known.get(name.lower())
    if path is None:
        raise ProfileError(f"no calibration called {name[:60]!r}; here are {', '.join(sorted(known)) or 'none'}")
    document = load(path)
    if document.get("schema") != SCHEMA:
        raise ProfileError(f"{path}: schema is {str(document.get('schema'))[:40]!r}, expected {SCHEMA!r}")
    for table in _TABLES:
        if not isinstance(document.get(table), dict):
            raise ProfileError(f"{path}: the [{table}] table is missing")
    samples = document.get("samples", [])
    if not isinstance(samples, list) or not all(isinstance(sample, dict) and _timed(sample) for sample in samples):
        raise ProfileError(f"{path}: samples: each needs owner, kernel and a positive median_s")
    return document


def compare(one: dict[str, Any], other: dict[str, Any]) -> list[dict[str, Any]]:
    """The shapes that both measured, with the second's time over the first's."""
    second = {key(sample): sample for sample in other.get("samples", [])}
    return [
        {
            "kernel": name,
            "first_s": sample["median_s"],
            "second_s": second[name]["median_s"],
            "ratio": second[name]["median_s"] / sample["median_s"],
        }
        for sample in one.get("samples", [])
        if (name := key(sample)) in second
    ]


def _timed(sample: dict[str, Any]) -> bool:
    median = sample.get("median_s")
    return {"owner", "kernel"} <= set(sample) and isinstance(median, int | float) and median > 0


def _summary(name: str, document: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "device": document["device"].get("name"),
        "date": document["source"].get("date"),
        "samples": len(document.get("samples", [])),
        "torch": document["versions"].get("torch"),
        "triton": document["versions"].get("triton"),
    }
