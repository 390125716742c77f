"""The pool of one replica in its engine's own units, for sessions of different lengths."""

from dataclasses import dataclass
from typing import Any, Literal

from kvplan.capacity import Evaluation, evaluate
from kvplan.engines.base import Units
from kvplan.errors import UsageError
from kvplan.model import Model
from kvplan.plan import settle

Lacking = Literal["weights", "max_model_len"]


@dataclass(frozen=True, slots=True)
class SessionPool:
    """What open sessions fill: as predicted, and at both ends of the pool's range."""

    model: Model
    engine: str
    rules_version: str
    units: Units
    low: Units
    high: Units
    pool_bytes: int
    """Of one rank; 0 where the weights leave none."""
    pool_source: str
    replicas: int
    max_model_len: int
    lacking: Lacking | None = None
    """What is missing where not one session can be held; None where the pool is one."""

    @property
    def refusal(self) -> str:
        """Why nothing can be held, in words; empty where something can."""
        if self.lacking is None:
            return ""
        if self.lacking == "weights":
            return "the weights leave nothing for a cache"
        return (
            f"the pool does not hold one sequence of {self.max_model_len:,} tokens, which {self.engine} asks for when "
            "it starts; give a smaller --max-model-len"
        )


def session_pool(model: str | Model, **flags: Any) -> SessionPool:
    """The pool of `model` (a name, id, path or Model) under the flags of `kvplan estimate`.

    Raises UsageError where no flag gives a pool, and where the engine's rules for open sessions are not modelled.
    """
    read, deployment, gpu, contexts = settle(model, **flags)
    limit = deployment.max_model_len or contexts[-1]
    return pool_of(read, evaluate(read, deployment, gpu, [limit]), limit)


def pool_of(read: Model, now: Evaluation, limit: int) -> SessionPool:
    """The pool of a deployment that has been worked out, for contexts of at most `limit` tokens."""
    if now.pool is None or now.share is None or now.fleet is None:
        raise UsageError(
            "name the GPUs that hold the sessions, for example --gpu B300:8, or the pool: --kv-cache-memory"
        )
    sizes = (now.pool.bytes, now.pool.low_bytes, now.pool.high_bytes)
    point, low, high = (now.engine.units(now.share, size, now.deployment, limit) for size in sizes)
    return SessionPool(
        model=read,
        engine=now.engine.name,
        rules_version=_version(now),
        units=point,
        low=low,
        high=high,
        pool_bytes=max(0, now.pool.bytes),
        pool_source=now.pool.source,
        replicas=now.fleet.replicas,
        max_model_len=limit,
        lacking="weights" if now.pool.bytes <= 0 else None if point.capacity > 0 else "max_model_len",
    )


def _version(now: Evaluation) -> str:
    figures = now.allocation.figures if now.allocation else {}
    return str(figures.get("rules_version", now.engine.rules_version))
