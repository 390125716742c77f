"""What a verified log leaves behind: the plan that it implies, and the overhead that it measured."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvplan.errors import UsageError
from kvplan.files import write_text
from kvplan.overheads import Overhead, store
from kvplan.plan import plan
from kvplan.verify.case import Case
from kvplan.verify.report import Report
from kvplan.verify.vllm import figures_at


def write_plan(path: str, case: Case, report: Report, settled: int | None) -> None:
    """The plan document with the log's own pool, for `kvplan diff`. Raises SourceError where it cannot be written."""
    made = plan(case.model, notes=report.assumptions, **_flags(case, settled))
    if made.pool is not None:
        made = replace(made, pool=replace(made.pool, source="logged"))
    text = json.dumps(made.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(Path(path), text, f"--plan {path}")


def _flags(case: Case, settled: int | None) -> dict[str, Any]:
    """The deployment with the pool that the log settled on: whole blocks for vLLM, bytes elsewhere."""
    flags = {name: value for name, value in case.flags.items() if value is not None}
    if settled is None:
        return flags
    size = settled
    if case.facts.engine == "vllm":
        size = settled * int(figures_at(case, 1)["block_bytes"])
    return flags | {"kv_cache_memory": max(1, size)}


def save_overhead(case: Case, report: Report) -> Path:
    """Keep what the engine took besides weights and pool. Raises UsageError where the log lacks a part."""
    facts, gpu = case.facts, case.gpu
    if facts.engine != "vllm":
        raise UsageError(
            f"--save reads vLLM's logs; {facts.engine} does not print its pool beside the share it may use"
        )
    if gpu is None:
        raise UsageError("--save needs the GPU: give it with --gpu")
    if report.engine_version is None:
        raise UsageError("--save needs the engine's version, which the log does not print")
    weights, pool = facts.smallest("weights"), facts.smallest("pool")
    if weights is None or pool is None:
        lines = {"weights (`Model loading took`)": weights, "pool (`Available KV cache memory`)": pool}
        absent = " and no ".join(name for name, figure in lines.items() if figure is None)
        raise UsageError(f"--save needs the log's weights and pool; the log prints no {absent}")
    share = float(case.flags.get("gpu_memory_utilization") or _default_share(case))
    total = gpu.engine_memory_bytes
    other = int(total * share) - weights.bytes - pool.bytes
    if other < 0:
        raise UsageError(
            f"--save: {share:.0%} of {gpu.name} is {int(total * share):,} B, less than the log's weights and pool "
            "together; give the GPU and --gpu-memory-utilization that the log ran with"
        )
    graphs = facts.smallest("graphs")
    measured = Overhead(
        schema="kvplan.overhead/1",
        engine=facts.engine,
        engine_version=report.engine_version,
        gpu=gpu.name,
        model=case.model.name,
        tp=int(case.flags.get("tp") or 1),
        gpu_memory_utilization=share,
        max_num_batched_tokens=_whole(case.flags.get("max_num_batched_tokens")),
        memory_bytes=total,
        weights_bytes=weights.bytes,
        pool_bytes=pool.bytes,
        graphs_bytes=graphs.bytes if graphs else None,
        other_bytes=other,
    )
    return store(measured)


def _default_share(case: Case) -> float:
    rules = figures_at(case, 1).get("rules", {}) if case.facts.engine == "vllm" else {}
    share = rules.get("gpu_memory_utilization")
    if share is None:
        raise UsageError("--save: the log does not state the share of memory that the engine may use")
    return float(share)


def _whole(value: Any) -> int | None:
    return int(value) if value is not None else None
