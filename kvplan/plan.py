"""The facade: a model and flags in, a Plan out."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from typing import Any, Literal

from kvplan import __version__
from kvplan.baseline import BASELINES, Baseline, baseline_of_model, make_baseline
from kvplan.capacity import Evaluation, evaluate
from kvplan.deployment import Deployment, Layout, gpu_and_count, make_deployment
from kvplan.document import (
    ENGINE_FIGURES,
    Assumption,
    BaselineTotal,
    Crossings,
    LedgerLine,
    ModelPart,
    PerRank,
    Plan,
    PoolBreakdown,
    PoolPart,
    Sequence,
    Times,
    Try,
    Verdict,
)
from kvplan.dtypes import Dtypes
from kvplan.engines.base import snapshots_of
from kvplan.errors import ConfigError, PlacementError, SourceError, UsageError
from kvplan.gpu import Gpu, detect, find_gpu
from kvplan.layers.base import Layer
from kvplan.ledger import Holding, break_even_tokens
from kvplan.line import Line
from kvplan.model import Model
from kvplan.pool import Pool
from kvplan.sources import resolve
from kvplan.stages import stage_bounds
from kvplan.stated import assumptions, inputs
from kvplan.suggest import suggest
from kvplan.weights import WeightReport, weigh

DEFAULT_CONTEXT = 131_072


@dataclass(frozen=True, slots=True)
class _Sides:
    """The model and its baseline, for the whole model or for the fullest rank."""

    held: Holding
    twin: Holding | None
    reads: list[Layer]


def plan(model: str | Model, *, notes: Iterable[Assumption] = (), **flags: Any) -> Plan:
    """The plan for `model` (a name, id, path or Model) under the flags of `kvplan estimate`, spelled with underscores.

    `notes` join the plan's assumptions: what whoever made the flags has to say about them.
    Raises a KvplanError whose message is one line for the user. Example: plan("kimi-k3", gpu="B300:8").
    """
    read, deployment, gpu, contexts = settle(model, **flags)
    now = evaluate(read, deployment, gpu, contexts)
    baseline = baseline_of(read, deployment)
    whole = _whole(read, baseline, now)
    tries, best = suggest(read, deployment, gpu, contexts, now) if now.capacity else ([], now)
    stages = _stages(baseline, now)
    ranks = [_fullest(stages, deployment, tokens) for tokens in contexts]
    latency, timed = _latency(read, now, gpu, contexts)
    return Plan(
        kvplan_version=__version__,
        inputs=inputs(read, deployment, contexts, gpu, now),
        assumptions=[*notes, *assumptions(read, deployment, baseline, now), *timed],
        model=_model_part(read, deployment, now),
        per_sequence=[_sequence(whole, baseline, deployment, now, tokens) for tokens in contexts],
        crossings=_crossings(whole, ranks[-1]),
        per_rank=_per_rank(ranks, baseline, deployment, now, contexts),
        engine=_engine_part(now),
        pool=_pool_part(now.pool),
        capacity=list(now.capacity),
        verdict=_verdict(now, tries) if now.capacity else None,
        run=_run(read, best, contexts[-1]),
        ledger=_ledger(whole, deployment, now, contexts),
        latency=latency,
    )


def settle(model: str | Model, **flags: Any) -> tuple[Model, Deployment, Gpu | None, list[int]]:
    """What the flags mean before anything is worked out: model, deployment, its GPU, the lengths asked about."""
    deployment = make_deployment(**flags)
    read = resolve(model) if isinstance(model, str) else model
    contexts = _contexts(read, deployment)
    gpu, deployment = _gpu(deployment)
    return read, deployment, gpu, contexts


def _contexts(model: Model, deployment: Deployment) -> list[int]:
    """The lengths asked about, ascending; by default 128K where the model allows it and the model's maximum."""
    most = model.max_context_tokens
    asked = sorted(deployment.context) or sorted(
        {min(DEFAULT_CONTEXT, most or DEFAULT_CONTEXT), most or DEFAULT_CONTEXT}
    )
    limit = deployment.max_model_len
    if most is not None and (limit or 0) > most:
        raise UsageError(f"--max-model-len {limit:,} is beyond the maximum of {model.name}, {most:,} tokens")
    if most is not None and asked[-1] > most:
        raise UsageError(f"--context {asked[-1]:,} is beyond the maximum of {model.name}, {most:,} tokens")
    if limit is not None and not deployment.context:
        asked = sorted({min(tokens, limit) for tokens in asked})
    if limit is not None and asked[-1] > limit:
        raise UsageError(f"--context {asked[-1]:,} is beyond --max-model-len {limit:,}")
    return asked


def _gpu(deployment: Deployment) -> tuple[Gpu | None, Deployment]:
    """The GPU, and the deployment with its name and count in place of `auto`: all GPUs of this machine."""
    if deployment.gpu is None:
        return None, deployment
    name, count = gpu_and_count(deployment.gpu)
    if name.lower() != "auto":
        return find_gpu(name), deployment
    gpu, here = detect()
    return gpu, deployment.with_flags(gpu=f"{gpu.name}:{count or deployment.gpus or here}")


def baseline_of(model: Model, deployment: Deployment) -> Baseline | None:
    """What --baseline names, by default the model's own full attention; None where there is nothing to compare."""
    name = deployment.baseline
    if name is None or name in BASELINES or name.startswith("ratio:"):
        return make_baseline(model, name)
    return baseline_of_model(resolve(name))


def _latency(
    model: Model, now: Evaluation, gpu: Gpu | None, contexts: list[int]
) -> tuple[Times | None, list[Assumption]]:
    """The plan's times and what they rest on; nothing where no flag asks for them."""
    asked = (now.deployment.calibration, now.deployment.max_tpot_ms, now.deployment.max_ttft_s)
    if all(flag is None for flag in asked):
        return None, []
    part: tuple[Times, list[Assumption]] = import_module("kvplan.latency.part").time_part(
        model, now.deployment, gpu, contexts, now.capacity
    )
    return part


def _whole(model: Model, baseline: Baseline | None, now: Evaluation) -> _Sides:
    mixers = list(model.mixers())
    twin = Holding(baseline.mixers(), now.dtypes) if baseline else None
    return _Sides(Holding(mixers, now.dtypes), twin, mixers)


def _stages(baseline: Baseline | None, now: Evaluation) -> list[_Sides]:
    """What one rank of each pipeline stage keeps, after tensor parallelism; none without a layout."""
    if now.fleet is None or now.share is None:
        return []
    layout, dtypes = now.fleet.layout, now.dtypes
    twins: list[Holding | None] = [None] * layout.pp
    if baseline is not None:
        bounds = stage_bounds(len(baseline.blocks), layout.pp)
        twins = [_twin(baseline.blocks[start:stop], layout, dtypes) for start, stop in bounds]
    return [_Sides(*one) for one in zip(now.share.holdings(), twins, now.share.stages, strict=True)]


def _twin(blocks: tuple[tuple[Layer, ...], ...], layout: Layout, dtypes: Dtypes) -> Holding | None:
    """One stage of the baseline on one rank; None where it does not split as the model does."""
    try:
        return Holding([mixer.on_rank(layout.tp) for block in blocks for mixer in block], dtypes, layout.dcp)
    except PlacementError:
        return None


def _fullest(stages: list[_Sides], deployment: Deployment, tokens: int) -> _Sides | None:
    """The stage that keeps most at this length, snapshots included."""
    copies = snapshots_of(deployment, tokens)
    return max(stages, key=lambda stage: stage.held.footprint(tokens, copies).total, default=None)


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _sequence(
    sides: _Sides, baseline: Baseline | None, deployment: Deployment, now: Evaluation, tokens: int
) -> Sequence:
    copies = snapshots_of(deployment, tokens)
    one = sides.held.footprint(tokens, copies)
    twin_bytes = sides.twin.bytes(tokens) if sides.twin else None
    return Sequence(
        context_tokens=tokens,
        kv_bytes=one.kv,
        window_bytes=one.window,
        state_bytes=one.state,
        conv_bytes=one.conv,
        index_bytes=one.index,
        snapshot_bytes=one.snapshot,
        total_bytes=one.total,
        bytes_per_token=_number(one.slope),
        fixed_bytes=_number(one.total - one.slope * tokens),
        snapshots=copies,
        read_bytes_per_step=sum(mixer.read_bytes(now.dtypes, tokens) for mixer in sides.reads),
        baseline=BaselineTotal(name=baseline.name, total_bytes=twin_bytes) if baseline and twin_bytes else None,
        saving=1 - one.total / twin_bytes if twin_bytes else None,
    )


def _crossings(whole: _Sides, rank: _Sides | None) -> Crossings:
    growth = whole.held.growth()
    snapshot = whole.held.snapshot_bytes()
    return Crossings(
        break_even_tokens=break_even_tokens(whole.held, whole.twin) if whole.twin else None,
        break_even_tokens_per_rank=break_even_tokens(rank.held, rank.twin) if rank and rank.twin else None,
        snapshot_equals_kv_tokens=int(snapshot / growth) if growth and snapshot else None,
    )


def _per_rank(
    ranks: list[_Sides | None], baseline: Baseline | None, deployment: Deployment, now: Evaluation, contexts: list[int]
) -> PerRank | None:
    """The fullest rank at each length; which one that is may differ between short and long ones."""
    if now.fleet is None:
        return None
    layout = now.fleet.layout
    return PerRank(
        sequences=[
            _sequence(rank, baseline, deployment, now, tokens)
            for rank, tokens in zip(ranks, contexts, strict=True)
            if rank is not None
        ],
        weights_bytes=now.weights.rank_bytes if now.weights else None,
        weights_source=now.weights.source if now.weights else "nothing sizes the weights",
        layout={
            "tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "dcp": layout.dcp, "ep": layout.ep,
            "gpus": now.fleet.gpus, "replicas": now.fleet.replicas,
        },
    )  # fmt: skip


def _model_part(model: Model, deployment: Deployment, now: Evaluation) -> ModelPart:
    report = now.weights or _weights_alone(model, deployment)
    return ModelPart(
        name=model.name,
        source=model.source.origin,
        architecture=model.architecture,
        layers=model.layer_counts(),
        params_total=report.params_total if report else model.published.params_total,
        params_active=report.params_active if report else model.published.params_active,
        weights_bytes=report.total_bytes if report else None,
        weights_kind=report.kind if report else None,
        max_context_tokens=model.max_context_tokens,
    )


def _weights_alone(model: Model, deployment: Deployment) -> WeightReport | None:
    """The whole model's weights where no layout was asked for; None where nothing sizes them."""
    try:
        return weigh(model, Layout(), weights_bytes=deployment.weights, quantization=deployment.quantization)
    except (SourceError, ConfigError):
        return None


def _engine_part(now: Evaluation) -> dict[str, Any] | None:
    if now.allocation is None:
        return None
    figures = now.allocation.figures
    head = {"name": now.engine.name, "rules_version": now.engine.rules_version, "summary": now.engine.says(figures)}
    return head | dict.fromkeys(ENGINE_FIGURES) | figures


def _pool_part(pool: Pool | None) -> PoolPart | None:
    if pool is None:
        return None
    return PoolPart(
        bytes=max(0, pool.bytes),
        low_bytes=max(0, pool.low_bytes),
        high_bytes=max(0, pool.high_bytes),
        source=pool.source,
        breakdown=PoolBreakdown(
            total_bytes=pool.total_bytes,
            weights_bytes=pool.weights_bytes,
            activation_bytes=pool.activation_bytes,
            graphs_bytes=pool.graphs_bytes,
            other_bytes=pool.other_bytes,
        ),
    )


def _run(model: Model, best: Evaluation, limit_tokens: int) -> str | None:
    """The command that starts the best deployment found; None where nothing fits or the engine has no command."""
    line = best.engine.command_line
    if line is None or best.fleet is None or not best.capacity or not best.capacity[-1].sequences:
        return None
    layout, each = best.fleet.layout, ""
    if model.num_experts and best.deployment.dp is None and layout.dp > 1:
        # with -dp an engine may share experts between replicas that were counted as independent
        layout, each = replace(layout, dp=1), f" # once for each {layout.tp * layout.pp} GPUs"
    return line.spell(model.hf_id or model.snapshot or model.name, layout, best.deployment, limit_tokens) + each


def _verdict(now: Evaluation, tries: list[Try]) -> Verdict:
    """Yes or no for the longest context; close where the pool's range straddles one sequence."""
    last = now.capacity[-1]
    asked = f"{last.context_tokens:,} tokens"
    fits: Literal["yes", "no", "close"]
    if last.low >= 1:
        fits, reason = "yes", f"{last.sequences:,} sequences of {asked} at once; {last.binds} binds"
    elif last.high >= 1:
        fits, reason = "close", f"one sequence of {asked} fits at one end of the pool's range and not at the other"
    elif now.pool is not None and now.pool.bytes <= 0:
        fits, reason = "no", "the weights leave nothing for a cache"
    else:
        fits, reason = "no", f"not one sequence of {asked} fits; {last.binds} binds"
    return Verdict(fits=fits, reason=reason, try_=tries)


def _ledger(whole: _Sides, deployment: Deployment, now: Evaluation, contexts: list[int]) -> list[LedgerLine]:
    lines = [
        _line(line, tokens)
        for tokens in contexts
        for line in whole.held.lines(tokens, snapshots_of(deployment, tokens))
    ]
    return lines + [_line(line, None) for line in (now.weights.lines if now.weights else ())]


def _line(line: Line, tokens: int | None) -> LedgerLine:
    return LedgerLine(context_tokens=tokens, **dataclasses.asdict(line))
