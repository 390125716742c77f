"""How many sequences fit: one deployment, evaluated through one engine's rules."""

from dataclasses import dataclass, replace
from importlib import import_module

from kvplan.deployment import Deployment, Fleet, make_fleet
from kvplan.document import Capacity
from kvplan.dtypes import Dtypes
from kvplan.engines import engine_for, engine_names, find_engine
from kvplan.engines.base import Allocation, Engine, Loading, Share
from kvplan.errors import ConfigError, SourceError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.placement import check_layout, stage_layers
from kvplan.pool import Pool, given_pool, measured_pool
from kvplan.weights import WeightReport, weigh

__all__ = ["Evaluation", "engine_for", "engine_names", "evaluate", "find_engine", "place"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One deployment of one model, worked out as far as its flags allow."""

    engine: Engine
    dtypes: Dtypes
    deployment: Deployment
    """The flags that led here."""
    fleet: Fleet | None = None
    share: Share | None = None
    weights: WeightReport | None = None
    pool: Pool | None = None
    allocation: Allocation | None = None
    capacity: tuple[Capacity, ...] = ()


def evaluate(
    model: Model, deployment: Deployment, gpu: Gpu | None, contexts: list[int], weights: WeightReport | None = None
) -> Evaluation:
    """Place the model, find its pool and count sequences. Without a GPU it stops at what one rank holds.

    `weights` are those of the same layout, where they have been worked out before.
    """
    placed = place(model, deployment, gpu, weights)
    if placed.pool is None or placed.share is None or placed.fleet is None:
        return placed
    allocation, capacity = _count(placed.engine, placed.share, placed.pool, deployment, contexts, placed.fleet)
    if deployment.max_tpot_ms is not None or deployment.max_ttft_s is not None:
        timed = import_module("kvplan.latency.limits")  # only then: estimates without time stay as quick as they are
        capacity = timed.limited(model, deployment, gpu, capacity)
    return replace(placed, allocation=allocation, capacity=capacity)


def place(model: Model, deployment: Deployment, gpu: Gpu | None, weights: WeightReport | None = None) -> Evaluation:
    """The deployment as far as its pool, with nothing counted yet."""
    memory = deployment.gpu_memory or (gpu.engine_memory_bytes if gpu else None)
    with_pool = memory is not None or deployment.kv_cache_memory is not None
    engine = engine_for(deployment, with_pool)
    dtypes = engine.dtypes(model, deployment)
    fleet = make_fleet(deployment)
    if fleet is None:
        return Evaluation(engine, dtypes, deployment)
    loading = engine.loading(model, deployment)
    if loading.experts_over_dp:
        fleet = replace(fleet, layout=replace(fleet.layout, expert_tp=fleet.layout.tp * fleet.layout.dp))
    check_layout(model, fleet.layout)
    share = Share(model, fleet.layout, dtypes, stage_layers(model, fleet.layout))
    needed = memory is not None and deployment.kv_cache_memory is None
    weights = weights or _weigh(loading, model, deployment, fleet, needed)
    if deployment.kv_cache_memory is not None:
        pool = given_pool(deployment.kv_cache_memory, memory, weights.rank_bytes if weights else None)
    elif memory is not None and weights is not None:
        pool = engine.pool(share, memory, weights.rank_bytes, deployment)
        pool = measured_pool(pool, engine.name, engine.rules_version, model.name, fleet.layout.tp, deployment)
    else:
        return Evaluation(engine, dtypes, deployment, fleet, share, weights)
    return Evaluation(engine, dtypes, deployment, fleet, share, weights, pool)


def _weigh(loading: Loading, model: Model, deployment: Deployment, fleet: Fleet, needed: bool) -> WeightReport | None:
    """The weights of one rank; None where nothing sizes them and no figure depends on it."""
    try:
        return weigh(
            model,
            fleet.layout,
            weights_bytes=deployment.weights,
            quantization=deployment.quantization,
            with_mtp=loading.with_mtp,
            with_vision=loading.with_vision,
            moe_shard_multiple=loading.moe_shard_multiple,
        )
    except (SourceError, ConfigError):
        if needed:
            raise
        return None


def _count(
    engine: Engine, share: Share, pool: Pool, deployment: Deployment, contexts: list[int], fleet: Fleet
) -> tuple[Allocation, tuple[Capacity, ...]]:
    """Sequences at each context, for the pool as predicted and at both ends of its range, beside the bare bytes."""
    sizes = (pool.bytes, pool.low_bytes, pool.high_bytes)
    found = {size: engine.allocate(share, size, deployment, contexts) for size in dict.fromkeys(sizes)}
    point, low, high = (found[size] for size in sizes)
    bare = find_engine("ideal").allocate(share, pool.bytes, deployment, contexts)
    per_node = max(1, fleet.per_node // (fleet.layout.tp * fleet.layout.pp))
    rows = tuple(
        Capacity(
            context_tokens=fit.context_tokens,
            sequences=fit.sequences,
            packed=fit.packed,
            low=least.sequences,
            high=most.sequences,
            deployment_sequences=fit.sequences * fleet.replicas,
            node_sequences=fit.sequences * per_node if fleet.per_node >= fleet.layout.tp * fleet.layout.pp else 0,
            ideal=bound.sequences,
            binds=fit.binds if pool.bytes > 0 else "weights",
        )
        for fit, least, most, bound in zip(point.fits, low.fits, high.fits, bare.fits, strict=True)
    )
    return point, rows
