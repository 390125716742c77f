"""What a session takes while nobody works for it, and what has to cross a link before somebody does."""

from dataclasses import dataclass, replace
from typing import Any

from kvplan.agents.pools import SessionPool, pool_of
from kvplan.capacity import Evaluation, evaluate
from kvplan.deployment import Fleet
from kvplan.engines.base import Share, Units
from kvplan.errors import UsageError
from kvplan.gpu import Gpu
from kvplan.ledger import Holding
from kvplan.model import Model
from kvplan.plan import settle

_LIVE = 2
"""Copies of its state that a session beyond its first block decodes with in mode `align`."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a deployment: its pool, its ranks, and what one session takes on them in bytes."""

    model: Model
    now: Evaluation
    gpu: Gpu | None
    fleet: Fleet
    share: Share
    pool: SessionPool
    whole: Holding
    ranks: tuple[Holding, ...]
    """One rank of each pipeline stage."""

    @property
    def figures(self) -> dict[str, Any]:
        """The engine's own, under the names of the plan document."""
        return self.now.allocation.figures if self.now.allocation else {}

    @property
    def caching(self) -> bool:
        """Whether an idle session keeps anything on the GPUs."""
        return self.figures.get("prefix_caching") is not False and not self.now.deployment.disable_radix_cache

    @property
    def gpus(self) -> int:
        return self.fleet.layout.tp * self.fleet.layout.pp

    @property
    def gpus_on_node(self) -> int:
        """Of one replica on one node."""
        return min(self.gpus, self.fleet.per_node)

    def rank_bytes(self, tokens: int) -> int:
        """One context with one state on the rank that holds most of it."""
        return max(one.bytes(tokens) for one in self.ranks)

    def replica_bytes(self, tokens: int) -> int:
        """The same over all ranks, replicated parts as often as they are."""
        return self.fleet.layout.tp * sum(one.bytes(tokens) for one in self.ranks)


def read_replica(model: str | Model, **flags: object) -> Replica:
    """The replica under the flags of `kvplan estimate`. Raises UsageError where no flag gives GPUs or a pool."""
    read, deployment, gpu, contexts = settle(model, **flags)
    limit = deployment.max_model_len or contexts[-1]
    now = evaluate(read, deployment, gpu, [limit])
    pool = pool_of(read, now, limit)
    if now.fleet is None or now.share is None:
        raise UsageError("name the GPUs that hold the sessions, for example --gpu B300:8")
    return Replica(
        model=read,
        now=now,
        gpu=gpu,
        fleet=now.fleet,
        share=now.share,
        pool=pool,
        whole=Holding(read.mixers(), now.dtypes),
        ranks=tuple(now.share.holdings()),
    )


def idle_units(replica: Replica) -> Units:
    """What an idle session takes beside the GPUs: for vLLM the blocks that it held when it stopped, the copies of its
    state that it decodes with as its last resume points; elsewhere bytes of the fullest rank, one state included."""
    if replica.pool.engine == "vllm":
        return replica.pool.units
    return Units("bytes", max(0, replica.pool.pool_bytes), replica.rank_bytes, "bytes of the fullest rank")


def dense_units(replica: Replica) -> Units | None:
    """One state at every block boundary, as vLLM keeps them without a retention interval; None elsewhere."""
    figures = replica.figures
    per, block = figures.get("snapshot_blocks"), figures.get("block_tokens")
    if replica.pool.engine != "vllm" or not per or not block or figures.get("mamba_cache_mode") != "align":
        return None
    units = replica.pool.units
    return replace(units, of=lambda tokens: units.of(tokens) + int(per) * max(0, tokens // int(block) - _LIVE))


def unit_bytes(replica: Replica) -> int:
    """Bytes of one unit on one rank."""
    size = replica.figures.get("block_bytes")
    return int(size) if replica.pool.engine == "vllm" and size else 1
