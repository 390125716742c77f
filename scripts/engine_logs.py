"""Recompute the figures of public start-up logs: printed, computed, verdict, reason.

    python scripts/engine_logs.py engine_logs.jsonl            every row, from the pool or counts that the log prints
    python scripts/engine_logs.py engine_logs.jsonl --pool     vLLM's pool and weights too, from the flags alone

A log prints its pool in GiB with two decimals, so a figure is exact where some whole number of blocks inside that
rounding gives it. Without a pool or a block count, blocks are inferred from the tokens and the verdict says so.
"""

import argparse
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from engine_log_cases import Case, Row, deployment_of, draft_count, model_of, weight_flags
from engine_log_others import check_other

from kvplan.capacity import evaluate
from kvplan.deployment import Deployment, Layout
from kvplan.engines._drafts import draft_layers
from kvplan.engines.vllm import ENGINE, plan_blocks
from kvplan.engines.vllm.figures import Planned
from kvplan.engines.vllm.figures import figures as engine_figures
from kvplan.engines.vllm.model import model_specs
from kvplan.engines.vllm.settings import settings_for
from kvplan.errors import KvplanError
from kvplan.gpu import find_gpu
from kvplan.model import Model
from kvplan.placement import stage_layers
from kvplan.units import GIB

_RELEASES = ("0.28.0", "0.20.1", "0.24.0", "0.33.0")
"""Rules tried for builds without a release."""


def plan_of(model: Model, deployment: Deployment, pool_bytes: int) -> Planned:
    layout = Layout(tp=deployment.tp or 1, pp=deployment.pp, dcp=deployment.dcp)
    stages = stage_layers(model, layout)
    limit = deployment.max_model_len or model.max_context_tokens or 8192
    settings = settings_for(deployment, layout, [layer for stage in stages for layer in stage], limit)
    drafts = draft_layers(model, deployment, layout.tp)
    specs = model_specs(stages, drafts, settings, ENGINE.dtypes(model, deployment), deployment, limit)
    return plan_blocks(specs, settings, deployment, pool_bytes)


def pools_of(observed: Case) -> Iterator[tuple[int, int]]:
    """Ranges of the pool per stage, in bytes, that the printed figures leave open."""
    if "kv_cache_memory_bytes" in observed:
        yield observed["kv_cache_memory_bytes"], observed["kv_cache_memory_bytes"]
    for key in ("available_kv_gib", "available_kv_gib_pp1"):
        if key in observed:
            gib = observed[key]
            yield int((gib - 0.005) * GIB), int((gib + 0.005) * GIB)


def blocks_open(model: Model, deployment: Deployment, observed: Case) -> range | None:
    """Block counts that the printed pool leaves open; None where the log gives neither pool nor blocks."""
    if "num_gpu_blocks" in observed:
        return range(observed["num_gpu_blocks"], observed["num_gpu_blocks"] + 1)
    ranges = list(pools_of(observed))
    if not ranges:
        return None
    if len(ranges) == 1:
        low, high = (plan_of(model, deployment, size).num_blocks for size in ranges[0])
        return range(low, high + 1)
    planned = plan_of(model, deployment, 1 << 40)
    starts = (0, *planned.specs.stops[:-1])
    widths = [
        max(group.on_stage(start, stop).page_bytes for group in planned.groups)
        for start, stop in zip(starts, planned.specs.stops, strict=True)
    ]
    ends = [min(size[end] // width for size, width in zip(ranges, widths, strict=True)) for end in (0, 1)]
    return range(ends[0], ends[1] + 1)


def check(case: Case) -> Row:
    """One log against kvplan; for builds without a release, the rules that fit best."""
    version = case["engine_version"]
    stated = version if version and re.match(r"\d", version) and not version.startswith("0.1.") else None
    tries = [stated] if stated else list(_RELEASES)
    rows = [_check(case, release) for release in tries]
    order = ("exact", "consistent", "differs", "not modelled")
    best = min(rows, key=lambda row: order.index(row.verdict))
    if not stated and best.verdict in order[:2]:
        return replace(
            best, reason=f"{best.reason}; rules of {best.version}, as the build states no release".strip("; ")
        )
    return best


def _check(case: Case, release: str | None) -> Row:
    observed, name, version = case["observed"], case["id"], release or ""
    model = model_of(case)
    if model is None:
        return Row(name, version, "", "", "not modelled", f"{case['model']}: its config is not at hand")
    if draft_count(case) and not model.mtp and "dflash" in str(case["speculative"]).lower():
        return Row(
            name, version, "", "", "not modelled", "the draft's geometry is not stated, and it changes the groups"
        )
    try:
        deployment = deployment_of(case, release)
        planned = plan_of(model, deployment, 1 << 40)
        figures = engine_figures(
            planned, deployment, [1024], deployment.max_model_len or model.max_context_tokens or 8192, 1 << 20
        )
        open_blocks = blocks_open(model, deployment, observed)
    except KvplanError as error:
        return Row(name, version, "", "", "not modelled", str(error))
    geometry = [
        (key, printed, computed)
        for key, printed, computed in (
            ("block", observed.get("attention_block_size"), figures["block_tokens"]),
            ("padding %", observed.get("mamba_padding_pct"), _percent(figures["page_padding_fraction"])),
            ("padding layers", observed.get("padding_layers"), _padding(figures)),
        )
        if printed is not None and printed != computed
    ]
    if geometry:
        key, printed, computed = geometry[0]
        return Row(name, version, f"{key} {printed}", f"{key} {computed}", "differs", "geometry")
    return _compare(name, version, case, planned, open_blocks)


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else round(100 * fraction, 2)


def _padding(figures: Case) -> list[list[float]]:
    return [[row["padding_layers"], round(100 * row["fraction"], 2)] for row in figures["padding"]]


def _compare(name: str, version: str, case: Case, planned: Planned, open_blocks: range | None) -> Row:
    observed, limit = case["observed"], case["max_model_len"]
    tokens, concurrency = observed.get("kv_tokens"), observed.get("max_concurrency")
    printed = f"{tokens:,} tokens" if tokens else f"{concurrency}x" if concurrency else "geometry"
    if tokens is None and concurrency is None:
        return Row(name, version, printed, printed, "exact", "")
    if limit is None and concurrency is not None:
        return Row(name, version, printed, "", "not modelled", "max_model_len is not stated")
    limit = limit or planned.groups[0].spec.block_tokens
    inferred = open_blocks is None
    guess = int((tokens or concurrency * limit) / max(planned.tokens(limit), 1) * planned.num_blocks)
    candidates = open_blocks if open_blocks is not None else range(max(0, guess - 40), guess + 40)

    def fits(blocks: int) -> bool:
        now = replace(planned, num_blocks=blocks)
        same = concurrency is None or abs(round(now.concurrency(limit), 2) - concurrency) < 0.0051
        return same and (tokens is None or now.tokens(limit) == tokens)

    found = [blocks for blocks in candidates if fits(blocks)]
    if found:
        verdict = "consistent" if inferred else "exact"
        note = "blocks inferred from the tokens" if inferred else ""
        return Row(name, version, printed, f"{found[0]:,} blocks of {planned.specs.blocks.tokens:,}", verdict, note)
    middle = replace(planned, num_blocks=candidates[len(candidates) // 2])
    computed = f"{middle.tokens(limit):,} tokens ({middle.num_blocks:,} blocks, {middle.concurrency(limit):.2f}x)"
    return Row(name, version, f"{printed} {concurrency}x", computed, "differs", str(case.get("check", ""))[:90])


@dataclass(frozen=True)
class PoolCheck:
    """A pool predicted from the flags alone and one from the weights that the log prints, with relative errors."""

    row: Row
    family: str
    unified: bool
    error: float
    error_given_weights: float | None
    weights_error: float | None
    holds: bool
    holds_given_weights: bool


def pool_check(case: Case) -> PoolCheck | None:
    """None where the log lacks the pool, the utilization, the GPU or what sizes the weights."""
    observed, text = case["observed"], (case["weights"] or "").lower()
    model = model_of(case)
    mixed = ("compressed-tensors", "w4a16")
    unknown = any(part in text for part in mixed) and "nvfp4" not in case["model"].lower()
    if "available_kv_gib" not in observed or case["gpu_memory_utilization"] is None or model is None or unknown:
        return None
    version = case["engine_version"]
    try:
        deployment = deployment_of(case, version if version and re.match(r"\d", version) else None)
        if deployment.gpu is None:
            return None
        gpu, contexts = find_gpu(deployment.gpu), [deployment.max_model_len or 8192]
        now = evaluate(model, deployment.with_flags(**weight_flags(case)), gpu, contexts)
    except KvplanError:
        return None
    if now.pool is None or now.weights is None or now.share is None:
        return None
    printed, loaded = observed["available_kv_gib"], observed.get("model_load_gib")
    low, high = now.pool.low_bytes / GIB, now.pool.high_bytes / GIB
    weights = now.weights.rank_bytes / GIB
    error_given, held_given = None, False
    if loaded:
        given = ENGINE.pool(now.share, gpu.engine_memory_bytes, int(loaded * GIB), deployment)
        error_given = abs(given.bytes / GIB / printed - 1)
        held_given = given.low_bytes / GIB <= printed <= given.high_bytes / GIB
    holds = low <= printed <= high
    note = f"weights {weights:.2f} of {loaded}; range {low:.2f} to {high:.2f}"
    return PoolCheck(
        Row(
            case["id"],
            version or "",
            f"{printed} GiB",
            f"{now.pool.bytes / GIB:.2f} GiB",
            "holds" if holds else "outside",
            note,
        ),
        model.name,
        gpu.unified_memory,
        abs(now.pool.bytes / GIB / printed - 1),
        error_given,
        abs(weights / loaded - 1) if loaded else None,
        holds,
        held_given,
    )


def summary(checks: list[PoolCheck]) -> str:
    given = [check.error_given_weights for check in checks if check.error_given_weights is not None] or [math.nan]
    weights = [check.weights_error for check in checks if check.weights_error is not None] or [math.nan]
    return (
        f"{len(checks)} cases; median error of the pool {statistics.median(check.error for check in checks):.2%}, "
        f"with the logged weights {statistics.median(given):.2%}, of the weights {statistics.median(weights):.2%}; "
        f"the range holds {sum(check.holds for check in checks)}, "
        f"with the logged weights {sum(check.holds_given_weights for check in checks)}"
    )


def show(rows: list[Row]) -> None:
    widths = [max(len(str(getattr(row, name))) for row in rows) for name in ("case", "version", "printed", "computed")]
    for row in rows:
        cells = (row.case, row.version, row.printed, row.computed)
        padded = "  ".join(str(cell).ljust(width) for cell, width in zip(cells, widths, strict=True))
        print(f"{padded}  {row.verdict}  {row.reason}".rstrip())


def show_counts(engines: list[str], rows: list[Row]) -> None:
    """Rows per verdict: each engine's, then all."""
    for engine in [*dict.fromkeys(engines), "all"]:
        found = Counter(row.verdict for name, row in zip(engines, rows, strict=True) if engine in (name, "all"))
        print(f"{engine}: {found.total()} rows, {', '.join(f'{count} {verdict}' for verdict, count in found.items())}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path)
    parser.add_argument("--pool", action="store_true", help="predict the pool and the weights instead")
    asked = parser.parse_args()
    cases = [json.loads(line) for line in asked.logs.read_text(encoding="utf-8").splitlines() if line.strip()]
    own = [case for case in cases if case["engine"] == "vllm"]
    if not asked.pool:
        others = sorted((case for case in cases if case["engine"] != "vllm"), key=lambda case: str(case["engine"]))
        rows = [check(case) for case in own] + [check_other(case) for case in others]
        show(rows)
        show_counts([case["engine"] for case in own + others], rows)
        return
    checks = [made for made in map(pool_check, own) if made is not None]
    show([made.row for made in checks])
    for unified in (False, True):
        if part := [made for made in checks if made.unified == unified]:
            print(f"{'unified' if unified else 'own'} memory: {summary(part)}")
            for family in dict.fromkeys(made.family for made in part):
                print(f"  {family}: {summary([made for made in part if made.family == family])}")


if __name__ == "__main__":
    main()
