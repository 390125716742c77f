"""What else to type: flags that raise capacity, each shown with what it gains."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from kvplan.capacity import Evaluation, evaluate
from kvplan.deployment import Deployment
from kvplan.document import Try, TrySequences
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.placement import max_dcp
from kvplan.units import ceil_div
from kvplan.weights import WeightReport

MOST_GPUS = 64


def suggest(
    model: Model, deployment: Deployment, gpu: Gpu | None, contexts: list[int], now: Evaluation
) -> tuple[list[Try], Evaluation]:
    """Cumulative steps, each kept only where it adds sequences at some length; more GPUs where nothing fits.

    Returns them with what the last of them comes to.
    """
    tries: list[Try] = []
    best = now
    for spelled, best in _climb(model, deployment, gpu, contexts, now):
        tries.append(_row(spelled, best))
    if not _holds(best):
        for spelled, best in _more_gpus(model, deployment, gpu, contexts, now):
            tries.append(_row(spelled, best))
    return tries, best


def _climb(
    model: Model, deployment: Deployment, gpu: Gpu | None, contexts: list[int], now: Evaluation
) -> Iterator[tuple[str, Evaluation]]:
    """Flags as typed and what they give, one flag more each time."""
    flags: dict[str, Any] = {}
    best, spelled = now, ""
    for name, value in _steps(model, deployment, now):
        changed = flags | {name: value}
        result = _attempt(model, deployment.with_flags(**changed), gpu, contexts, now.weights)
        if result is not None and _better(result, best):
            flags, best, spelled = changed, result, f"{spelled} --{name.replace('_', '-')} {value}".strip()
            yield spelled, best


def _steps(model: Model, deployment: Deployment, now: Evaluation) -> Iterator[tuple[str, Any]]:
    if now.dtypes.kv in ("bf16", "fp16"):
        yield "kv_cache_dtype", "fp8"
    if now.fleet is not None and (most := max_dcp(model, now.fleet.layout.tp)) > deployment.dcp:
        yield "dcp", max(size for size in range(1, most + 1) if now.fleet.layout.tp % size == 0)
    if now.dtypes.state == "fp32":
        yield "mamba_ssm_dtype", "bf16"


def _more_gpus(
    model: Model, deployment: Deployment, gpu: Gpu | None, contexts: list[int], now: Evaluation
) -> Iterator[tuple[str, Evaluation]]:
    """The first doubling of the GPUs of a replica that holds the longest context, with further flags if it must."""
    if now.fleet is None or gpu is None:
        return
    node, gpus = max(gpu.gpus_per_node, now.fleet.per_node), now.fleet.layout.tp * now.fleet.layout.pp * 2
    while gpus <= MOST_GPUS:
        on_node, nodes = min(gpus, node), ceil_div(gpus, node)
        where = f"--gpu {gpu.name}:{on_node}{f' --nodes {nodes}' if nodes > 1 else ''}"
        for tp, pp in dict.fromkeys([(gpus, 1), (on_node, nodes)]):
            flags = {"gpu": f"{gpu.name}:{on_node}", "gpus": None, "nodes": nodes, "tp": tp, "pp": pp, "dp": None}
            larger = deployment.with_flags(**flags, dcp=1, ep=1)
            spelled = f"{where} --tp {tp}{f' --pp {pp}' if pp > 1 else ''}"
            for added, result in _enough(model, larger, gpu, contexts):
                yield f"{spelled} {added}".strip(), result
                return
        gpus *= 2


def _enough(model: Model, deployment: Deployment, gpu: Gpu, contexts: list[int]) -> Iterator[tuple[str, Evaluation]]:
    """The fewest further flags, and none if that will do, with which the longest context fits; nothing without."""
    result = _attempt(model, deployment, gpu, contexts)
    if result is None:
        return
    for added, found in chain([("", result)], _climb(model, deployment, gpu, contexts, result)):
        if _holds(found):
            yield added, found
            return


def _holds(result: Evaluation) -> bool:
    """True where at least one sequence of the longest length fits."""
    return bool(result.capacity) and result.capacity[-1].sequences > 0


def _attempt(
    model: Model, deployment: Deployment, gpu: Gpu | None, contexts: list[int], weights: WeightReport | None = None
) -> Evaluation | None:
    """The evaluation, or None where the model cannot be served like that."""
    try:
        return evaluate(model, deployment, gpu, contexts, weights)
    except KvplanError:
        return None


def _better(one: Evaluation, other: Evaluation) -> bool:
    return any(a.sequences > b.sequences for a, b in zip(one.capacity, other.capacity, strict=True))


def _row(flags: str, result: Evaluation) -> Try:
    sequences = [TrySequences(context_tokens=row.context_tokens, sequences=row.sequences) for row in result.capacity]
    return Try(flags=flags, sequences=sequences)
