"""Imports the measured tables of the installed `aiconfigurator-core` package as a calibration (Apache-2.0, theirs)."""

import datetime
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from kvplan import __version__
from kvplan.errors import ProfileError, UsageError
from kvplan.latency.kernels import KERNELS
from kvplan.profiles import user_root
from kvplan.published.rows import REFUSED, TABLES, Unmapped
from kvplan.tables import Table, print_json, print_text
from kvplan_kernels.calibration import key, write

PACKAGE, DISTRIBUTION = "aiconfigurator_core", "aiconfigurator-core"
_ROOFS = {"kda_decode": "inplace", "short_conv": "inplace", "mla_decode": "read"}
_LINKS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@dataclass
class Import:
    """The calibration, and how many rows were left out for which reason."""

    document: dict[str, Any]
    refused: Counter[str] = field(default_factory=Counter)


def data_root(folder: Path | None) -> Path:
    """The folder of systems: given, or that of the installed package. Raises UsageError where there is neither."""
    if folder is None:
        found = find_spec(PACKAGE)
        if found is None or not found.origin:
            raise UsageError(f"{DISTRIBUTION} is not installed; install it, or give --from its folder systems/data")
        folder = Path(found.origin).parent / "systems" / "data"
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; {DISTRIBUTION} keeps its tables in systems/data")
    return folder


def import_system(system: str, folder: Path | None = None, hidden: int | None = None) -> Import:
    """All mappable tables of a system ("h200_sxm"), the newest version of each.

    `hidden` takes the GEMMs and experts of that width with a power of two tokens; without it they stay out, as there
    are 300,000 of them.
    """
    root = data_root(folder)
    home = root / system
    if "/" in system or not home.is_dir():
        raise UsageError(f"--system {system[:40]!r}: here are {', '.join(sorted(p.name for p in root.iterdir()))}")
    result = Import({"device": {}, "versions": {}, "source": _source(system), "samples": []})
    times: dict[str, tuple[dict[str, Any], list[float]]] = {}
    for table, framework, version, path in newest(home):
        if table not in TABLES:
            result.refused[f"{table}: {REFUSED.get(table, 'no kernel of ours')}"] += _count(path)
            continue
        result.document["versions"][f"{framework}_{table}"] = version
        for row in _read(path):
            try:
                sample = _sample(table, framework, row, hidden)
            except Unmapped as why:
                result.refused[str(why)] += 1
                continue
            result.document["device"] = {"name": str(row["device"])}
            times.setdefault(key(sample), (sample, []))[1].append(float(row["latency"]) * 1e-3)
    if not times:
        raise ProfileError(f"{home}: no table that can be mapped")
    result.document["samples"] = [_timed(sample, seconds) for sample, seconds in times.values()]
    return result


def newest(home: Path) -> Iterator[tuple[str, str, str, Path]]:
    """(table, framework, version, file) of each table of each framework in its highest version."""
    found: dict[tuple[str, str], tuple[str, Path]] = {}
    for path in sorted(home.glob("*/*/*/*_perf.parquet")):
        table, framework, version = path.stem.removesuffix("_perf"), path.parts[-3], path.parts[-2]
        held = found.get((table, framework))
        if held is None or _order(version) > _order(held[0]):
            found[table, framework] = version, path
    for (table, framework), (version, path) in found.items():
        yield table, framework, version, path


def _order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _read(path: Path) -> list[dict[str, Any]]:
    """The rows of a parquet file. Raises UsageError without pyarrow, ProfileError for a damaged file."""
    rows: list[dict[str, Any]] = _open(path).read().to_pylist()
    return rows


def _count(path: Path) -> int:
    return int(_open(path).metadata.num_rows)


def _open(path: Path) -> Any:
    if find_spec("pyarrow") is None:
        raise UsageError("parquet tables need pyarrow: install the extra 'import'")
    from pyarrow import ArrowException, parquet

    try:
        return parquet.ParquetFile(path)
    except (OSError, ArrowException) as error:
        raise ProfileError(f"{path}: not a parquet table: {str(error).splitlines()[0][:120]}") from None


def _sample(table: str, framework: str, row: dict[str, Any], hidden: int | None) -> dict[str, Any]:
    """A sample without its time. Raises Unmapped; ProfileError where the table's columns are others."""
    try:
        kernel, shape = TABLES[table](row)
    except KeyError as missing:
        raise ProfileError(f"{framework} {table}: no column {missing}; another version of the tables?") from None
    if kernel == "gemm" and hidden not in (shape["rows"], shape["columns"]):
        raise Unmapped("gemm: no side of that width" if hidden else "gemm: left out; --hidden WIDTH takes those of it")
    if kernel == "moe" and hidden != shape["columns"]:
        raise Unmapped("moe: no experts of that width" if hidden else "moe: left out; --hidden WIDTH takes those of it")
    if kernel == "moe" and int(row["num_tokens"]).bit_count() > 1:
        raise Unmapped("moe: tokens that are no power of two")
    if kernel == "gemm" and int(shape["tokens"]).bit_count() > 1:
        raise Unmapped("gemm: tokens that are no power of two")
    work = KERNELS[kernel].work(shape)
    roof = "link" if kernel in _LINKS else _ROOFS.get(kernel, "matmul")
    did = {"bytes": int(work.bytes), "flops": int(work.flops), "roof": roof, "source": str(row["kernel_source"])}
    return {"owner": framework, "kernel": kernel, **shape, **did}


def _timed(sample: dict[str, Any], seconds: Sequence[float]) -> dict[str, Any]:
    """Rows that repeat a shape become a median with their extremes; a single mean has no spread to give."""
    spread = {"p10_s": min(seconds), "p90_s": max(seconds), "replays": len(seconds)} if len(seconds) > 1 else {}
    return sample | {"median_s": median(seconds)} | spread


def _source(system: str) -> dict[str, Any]:
    try:
        version = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        version = "of unknown version"
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": f"kvplan calibrations import aiconfigurator --system {system}",
        "kind": "published",
        "origin": f"{DISTRIBUTION} {version}, systems/data/{system}, Apache-2.0",
        "timing": "mean of the replays of a CUDA graph of one call; its launch is inside",
        "buffers": "one set, so that data smaller than the L2 is read from there",
    }


def save_import(
    source: str, system: str, folder: str | None, hidden: int | None, out: str | None, *, as_json: bool
) -> None:
    """Import, write and say what was taken and what was left out. Raises UsageError for another source."""
    if source != "aiconfigurator":
        raise UsageError(f"{source[:40]!r}: tables can be imported from aiconfigurator")
    found = import_system(system, Path(folder) if folder else None, hidden)
    path = Path(out) if out else user_root() / "calibration" / f"{system}-aiconfigurator.toml"
    try:
        write(path, found.document)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}") from None
    samples = found.document["samples"]
    taken = Counter(f"{sample['owner']} {sample['kernel']}" for sample in samples)
    if as_json:
        head = {"schema": "kvplan.import/1", "kvplan_version": __version__, "inputs": {"system": system}}
        counts = {"samples": dict(taken), "rows_left_out": dict(found.refused.most_common())}
        print_json(head | {"assumptions": [], "path": str(path), "source": found.document["source"]} | counts)
        return
    origin = found.document["source"]["origin"]
    lines = [f"WRITTEN    {path}: {len(samples):,} samples", f"SOURCE     {origin}"]
    print_text(lines, [_table("TAKEN", "samples", taken), _table("LEFT OUT", "rows", found.refused)])


def _table(title: str, unit: str, counts: Counter[str]) -> Table:
    return Table(title, (unit, "which"), [(f"{count:,}", name) for name, count in counts.most_common()])
