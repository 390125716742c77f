"""From flags to a clock: the calibration that speaks, the layout, the launches of each stage, and what is assumed."""

from collections import Counter
from typing import Any

from kvplan.deployment import Deployment, Layout, make_fleet
from kvplan.document import Assumption
from kvplan.engines import engine_for
from kvplan.errors import UsageError
from kvplan.gpu import Gpu
from kvplan.latency.clock import Clock, Guesses, Stage
from kvplan.latency.device import (
    AUTO,
    DATASHEET,
    Calibration,
    basis_of,
    datasheet_of,
    nearest_calibration,
    read_calibration,
)
from kvplan.latency.meter import Basis, Meter
from kvplan.latency.products import rank_products
from kvplan.latency.tables import Tables
from kvplan.model import Model
from kvplan.placement import check_layout, stage_layers
from kvplan.weights import stage_parts

CHUNK_TOKENS = 8192
OTHER_KERNELS = 8
GEMM_EFFICIENCY = 0.75
_OTHERS = "norms, gates and copies that are not measured"
_EFFICIENCY = "of the roof, for matrix products that are not measured"
_CHUNK = "tokens of a prompt that go through the model at once"
_TABLES: dict[tuple[tuple[str, ...], str], tuple[list[dict[str, Any]], Tables]] = {}


def make_clock(model: Model, deployment: Deployment, gpu: Gpu, calibration: str | Calibration | None = None) -> Clock:
    """The clock of one replica of `model` on `gpu`. `calibration` defaults to the deployment's, else the nearest.

    Raises UsageError, ConfigError or SourceError, naming the field, where time is not modelled.
    """
    _refuse(deployment)
    fleet = make_fleet(deployment)
    layout = fleet.layout if fleet else Layout()
    check_layout(model, layout)
    chosen = _calibration(calibration or deployment.calibration or AUTO, gpu)
    spread = fleet is not None and max(layout.tp * layout.pp, layout.ep) > fleet.per_node
    basis = basis_of(gpu, chosen, across_nodes=spread)
    engine = engine_for(deployment, True)
    dtypes = engine.dtypes(model, deployment)
    meter = Meter(_tables(chosen, engine.name), gpu, chosen.gpu, basis)
    stages = _stages(model, layout, deployment, engine.loading(model, deployment).moe_shard_multiple)
    guesses = _guesses(deployment)
    return Clock(
        model, layout, dtypes, meter, stages, guesses, _stated(deployment, guesses, chosen, gpu, basis, spread)
    )


def _tables(calibration: Calibration, owner: str) -> Tables:
    """The tables of a calibration, made once."""
    key = (calibration.names, owner)
    if key not in _TABLES or _TABLES[key][0] != calibration.samples:
        _TABLES[key] = (calibration.samples, Tables(calibration.samples, owner))
    return _TABLES[key][1]


def _calibration(name: str | Calibration, gpu: Gpu) -> Calibration:
    if isinstance(name, Calibration):
        return name
    if name == DATASHEET:
        return datasheet_of(gpu)
    if name != AUTO:
        return read_calibration(name)
    nearest = nearest_calibration(gpu)
    return datasheet_of(gpu) if nearest is None else read_calibration(nearest)


def _stages(model: Model, layout: Layout, deployment: Deployment, multiple: int) -> list[Stage]:
    parts, tied = stage_parts(model, layout, quantization=deployment.quantization)
    stages = []
    for held, mixers in zip(parts, stage_layers(model, layout), strict=True):
        places = {part.place for part in held if isinstance(part.place, int)}
        experts = {part.place for part in held if part.role == "expert"}
        stages.append(
            Stage(Counter(mixers), rank_products(held, layout, multiple, tied=tied), len(places), len(experts))
        )
    return stages


def _refuse(deployment: Deployment) -> None:
    drafts = ("draft", "speculative_config", "num_speculative_tokens", "speculative_algorithm")
    for name in drafts:
        if getattr(deployment, name):
            raise UsageError(f"--{name.replace('_', '-')}: the time of speculative decoding is not modelled")
    if deployment.enforce_eager:
        raise UsageError("--enforce-eager: the time of launches outside CUDA graphs is not modelled")
    if deployment.weights is not None:
        raise UsageError("--weights: a total says nothing of the matrices that a step reads; leave it out for time")


def _guesses(deployment: Deployment) -> Guesses:
    chunk = deployment.max_num_batched_tokens or deployment.chunked_prefill_size or 0
    others = deployment.other_kernels_per_layer
    return Guesses(
        chunk if chunk > 0 else CHUNK_TOKENS,
        OTHER_KERNELS if others is None else others,
        deployment.gemm_efficiency or GEMM_EFFICIENCY,
    )


def _unmeasured(chosen: Calibration, gpu: Gpu, spread: bool) -> str:
    if not chosen.samples:
        return f"the datasheet of {gpu.name}"
    return "links between nodes not measured" if spread else f"{gpu.architecture} not measured"


def _stated(
    deployment: Deployment, guesses: Guesses, chosen: Calibration, gpu: Gpu, basis: Basis, spread: bool
) -> list[Assumption]:
    """What every time of this clock rests on."""
    why = {
        "measured": f"measured on {chosen.gpu.title}",
        "scaled": f"{chosen.gpu.name} scaled to {gpu.name} by the datasheets' bandwidth and arithmetic",
        "bounds": f"bounds alone: {_unmeasured(chosen, gpu, spread)}",
    }[basis]

    def stated(name: str, value: float, what: str, *flags: str) -> Assumption:
        given = any(getattr(deployment, flag) is not None for flag in flags)
        said = f"{what} (--{flags[0].replace('_', '-')})"
        return Assumption(name, value, "given" if given else "assumed", said)

    return [
        Assumption("calibration", chosen.title, "given" if deployment.calibration else "derived", why),
        stated("other_kernels_per_layer", guesses.other_kernels, _OTHERS, "other_kernels_per_layer"),
        stated("gemm_efficiency", guesses.gemm_efficiency, _EFFICIENCY, "gemm_efficiency"),
        stated("prefill_chunk_tokens", guesses.chunk_tokens, _CHUNK, "max_num_batched_tokens", "chunked_prefill_size"),
        Assumption("routing", "even", "assumed", "experts chosen alike often; the low end takes off what skew would"),
        Assumption("host_time", "none", "assumed", "scheduling, sampling and tokenising on the host are not counted"),
    ]
