"""What else to type: flags that raise capacity, each shown with what it gains."""

from collections.abc import Iterator
from typing import Any

from kvplan.capacity import Evaluation, evaluate
from kvplan.deployment import Deployment
from kvplan.document import Try, TrySequences
from kvplan.errors import KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.placement import max_dcp

MOST_GPUS = 64


def suggest(model: Model, deployment: Deployment, gpu: Gpu | None, contexts: list[int], now: Evaluation) -> list[Try]:
    """Cumulative steps, each kept only where it adds sequences at some length; more GPUs where nothing fits."""
    tries: list[Try] = []
    flags: dict[str, Any] = {}
    best, spelled = now, ""
    for name, value in _steps(model, deployment, now):
        changed = flags | {name: value}
        result = _attempt(model, deployment.with_flags(**changed), gpu, contexts)
        if result is None or not _better(result, best):
            continue
        flags, best, spelled = changed, result, f"{spelled} --{name.replace('_', '-')} {value}".strip()
        tries.append(_row(spelled, result))
    if not best.capacity or best.capacity[-1].sequences == 0:
        tries += _more_gpus(model, deployment.with_flags(**flags), gpu, contexts, spelled, now)
    return tries


def _steps(model: Model, deployment: Deployment, now: Evaluation) -> Iterator[tuple[str, Any]]:
    if now.dtypes.kv in ("bf16", "fp16"):
        yield "kv_cache_dtype", "fp8"
    if now.fleet is not None and (most := max_dcp(model, now.fleet.layout.tp)) > deployment.dcp:
        yield "dcp", max(size for size in range(1, most + 1) if now.fleet.layout.tp % size == 0)
    if now.dtypes.state == "fp32":
        yield "mamba_ssm_dtype", "bf16"


def _more_gpus(
    model: Model, deployment: Deployment, gpu: Gpu | None, contexts: list[int], spelled: str, now: Evaluation
) -> Iterator[Try]:
    """The first doubling of the GPUs of a replica that holds the longest context."""
    if now.fleet is None or gpu is None:
        return
    tp = now.fleet.layout.tp * 2
    while tp <= MOST_GPUS:
        flags = {"gpu": f"{gpu.name}:{tp}", "gpus": None, "tp": tp, "nodes": 1, "dp": None, "dcp": 1, "ep": 1}
        result = _attempt(model, deployment.with_flags(**flags), gpu, contexts)
        if result is not None and result.capacity and result.capacity[-1].sequences:
            yield _row(f"--gpu {gpu.name}:{tp} --tp {tp} {spelled}".strip(), result)
            return
        tp *= 2


def _attempt(model: Model, deployment: Deployment, gpu: Gpu | None, contexts: list[int]) -> Evaluation | None:
    """The evaluation, or None where the model cannot be served like that."""
    try:
        return evaluate(model, deployment, gpu, contexts)
    except KvplanError:
        return None


def _better(one: Evaluation, other: Evaluation) -> bool:
    return any(a.sequences > b.sequences for a, b in zip(one.capacity, other.capacity, strict=True))


def _row(flags: str, result: Evaluation) -> Try:
    sequences = [TrySequences(context_tokens=row.context_tokens, sequences=row.sequences) for row in result.capacity]
    return Try(flags=flags, sequences=sequences)
