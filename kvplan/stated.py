"""What a plan's figures rest on: the flags as they were resolved, and every answer that nobody gave."""

from typing import Any

from kvplan.baseline import Baseline
from kvplan.capacity import Evaluation
from kvplan.deployment import Deployment
from kvplan.document import Assumption
from kvplan.gpu import Gpu
from kvplan.model import Model


def inputs(
    model: Model, deployment: Deployment, contexts: list[int], gpu: Gpu | None, now: Evaluation
) -> dict[str, Any]:
    """What the user typed, and what the open ones among the flags became."""
    given = deployment.model_dump(exclude_unset=True, exclude_none=True)
    resolved = {
        "model": model.name,
        "context": contexts,
        "max_model_len": deployment.max_model_len or contexts[-1],
        "gpu": gpu.name if gpu else None,
        "engine": now.engine.name,
        "kv_cache_dtype": now.dtypes.kv,
        "mamba_ssm_dtype": now.dtypes.state,
        "conv_dtype": now.dtypes.conv,
    }
    return given | resolved


def assumptions(model: Model, deployment: Deployment, baseline: Baseline | None, now: Evaluation) -> list[Assumption]:
    """What the figures rest on beyond the flags: dtypes left open, defaults filled in, the pool's parts."""
    asked = model.kv_cache_dtype is not None and now.dtypes.kv == model.kv_cache_dtype
    why = "the checkpoint asks for it" if asked else "the model's dtype"
    found = [_chosen("kv_cache_dtype", now.dtypes.kv, deployment.kv_cache_dtype != "auto", why)]
    if any(tensor.role == "state" for mixer in set(model.mixers()) for tensor in mixer.stored(now.dtypes)):
        reason = now.engine.state_reason(model)
        found.append(_chosen("mamba_ssm_dtype", now.dtypes.state, deployment.mamba_ssm_dtype != "auto", reason))
    if model.kv_cache_dtype and deployment.kv_cache_dtype == "auto" and not asked:
        found.append(
            Assumption(
                name="checkpoint_kv_cache_dtype",
                value=model.kv_cache_dtype,
                kind="derived",
                source="the checkpoint asks for this KV cache; pass --kv-cache-dtype to plan with it",
            )
        )
    if model.max_context_tokens is None:
        found.append(Assumption(name="max_context_tokens", value=None, kind="assumed", source="the config states none"))
    found += [
        Assumption(name="config_default", value=filled, kind="assumed", source="absent from the config; family default")
        for filled in model.defaults
    ]
    if now.weights is not None:
        found.append(
            Assumption(name="weights", value=now.weights.total_bytes, kind="derived", source=now.weights.source)
        )
        found += [
            Assumption(name="weights_note", value=note, kind="assumed", source=now.weights.kind)
            for note in (*now.weights.assumptions, *now.weights.missing)
        ]
    if baseline is not None:
        chosen = "--baseline" if deployment.baseline else "the model's own full attention in every mixing layer"
        found.append(Assumption(name="baseline", value=baseline.name, kind="derived", source=chosen))
    filled = now.allocation.assumptions if now.allocation else ()
    return found + list(now.pool.assumptions if now.pool else ()) + list(filled)


def _chosen(name: str, value: str, given: bool, reason: str) -> Assumption:
    flag = f"--{name.replace('_', '-')}"
    return Assumption(name=name, value=value, kind="given" if given else "assumed", source=flag if given else reason)
