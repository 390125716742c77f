"""Measured kernel times of a GPU, as `kvplan bench` writes them: find one, and set two beside each other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvplan.errors import ProfileError
from kvplan.profiles import load, paths
from kvplan_kernels.calibration import PRECISION_SCHEMA, SCHEMA, key

_TABLES = ("device", "versions", "source")
_NEEDED = ("owner", "kernel", "median_s", "bytes", "flops", "roof")
_NEEDED_BY = {"move": ("how", "p10_s"), "matmul": ("p10_s",)}
_WORDS = ("owner", "kernel", "roof", "source", "format", "state", "layout", "gate", "cache", "how")
_LONGEST_WORD, _LARGEST = 100, 1e18
_GRAPH_S = 15e-6
"""Below this the launch of a graph, about 4 us, is more than a quarter of a published time."""


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
    if not isinstance(samples, list):
        raise ProfileError(f"{path}: samples: write each as a [[samples]] table")
    for place, sample in enumerate(samples):
        if wrong := _wrong(sample):
            raise ProfileError(f"{path}: samples[{place}]{wrong}")
    return document | {"samples": samples}


def compare(one: dict[str, Any], other: dict[str, Any], any_owner: bool = False) -> list[dict[str, Any]]:
    """The shapes that both measured, with the second's time over the first's.

    `any_owner` sets different owners' kernels beside each other, with why their times may differ.
    """
    name: Callable[[dict[str, Any]], str] = _shape if any_owner else key
    first = {name(sample): sample for sample in one.get("samples", [])}
    rows = []
    for theirs in other.get("samples", []):
        if ours := first.get(name(theirs)):
            times = {"first_s": ours["median_s"], "second_s": theirs["median_s"]}
            row = {"kernel": name(theirs), **times, "ratio": theirs["median_s"] / ours["median_s"]}
            whose = " ".join(filter(None, (theirs["owner"], theirs.get("source"))))
            more = {"first_owner": ours["owner"], "second_owner": whose, "why": _why(ours, theirs, one, other)}
            rows.append(row | more if any_owner else row)
    return rows


def _shape(sample: dict[str, Any]) -> str:
    """The kernel and its shape without the owner; a collective by its bytes, which is all that its time knows of it."""
    if sample.get("roof") == "link":
        return f"{sample['kernel']} ranks={sample['ranks']} bytes={2 * sample['tokens'] * sample['hidden']}"
    return str(key(sample)).partition(" ")[2]


def _why(ours: dict[str, Any], theirs: dict[str, Any], one: dict[str, Any], other: dict[str, Any]) -> str:
    """What may make the second faster or slower, other than luck."""
    read = ours.get("bytes", 0) // (2 if ours.get("roof") == "inplace" else 1)
    if other["source"].get("kind") == "published" and ours.get("roof") != "link":
        if theirs["median_s"] < ours["median_s"] and read < one["device"].get("l2_bytes", 0):
            return "its loop reads the same data again, from the L2"
        if ours["median_s"] < theirs["median_s"] < _GRAPH_S:
            return "the launch of a graph (about 4 us) is inside"
    return "another kernel" if ours["owner"] != theirs["owner"] else "another run"


def beyond(rows: list[dict[str, Any]], share: float) -> list[dict[str, Any]]:
    """The rows whose times differ by more than a share of the first."""
    return [row for row in rows if abs(row["ratio"] - 1) > share]


def find_precision(name: str) -> dict[str, Any]:
    """A precision study by name or path. Raises ProfileError naming what is wrong with it."""
    known = paths("precision")
    path = Path(name) if name.endswith(".toml") else known.get(name.lower())
    if path is None:
        raise ProfileError(f"no precision study called {name[:60]!r}; here are {', '.join(sorted(known)) or 'none'}")
    document = load(path)
    if document.get("schema") != PRECISION_SCHEMA or not isinstance(document.get("errors"), list):
        raise ProfileError(f"{path}: not a precision study ({PRECISION_SCHEMA} with [[errors]])")
    return document


def _wrong(sample: object) -> str | None:
    """What is wrong with a sample, beginning with its key; None for a good one."""
    if not isinstance(sample, dict):
        return ": not a table"
    needs = (*_NEEDED, *_NEEDED_BY.get(str(sample.get("kernel")), ()))
    if missing := [name for name in needs if name not in sample]:
        return f": {missing[0]} is missing; a sample needs {', '.join(needs)}"
    if sample.keys() & {"p10_s", "p90_s"} not in (set(), {"p10_s", "p90_s"}):
        return ": p10_s and p90_s come together"
    for name, value in sample.items():
        said = repr(value)[:40]
        if name in _WORDS and not (isinstance(value, str) and 0 < len(value) <= _LONGEST_WORD):
            return f".{name}: {said} is no word"
        if name not in _WORDS and (type(value) not in (int, float) or not 0 <= value <= _LARGEST):
            return f".{name}: {said} is no number from 0 to {_LARGEST:.0e}"
        if name.endswith("_s") and not value:
            return f".{name}: a time is more than nothing"
    return None


def _summary(name: str, document: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "device": document["device"].get("name"),
        "date": document["source"].get("date"),
        "samples": len(document.get("samples", [])),
        "torch": document["versions"].get("torch"),
        "triton": document["versions"].get("triton"),
    }
