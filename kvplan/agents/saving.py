"""Whether a workload stores less on this model than on its twin with full attention in every layer, and by how much.

A state costs the same however short the context is: below the break-even length a hybrid stores more than its twin.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvplan.agents.contexts import Contexts
from kvplan.agents.idle import Replica
from kvplan.baseline import Baseline
from kvplan.deployment import Layout
from kvplan.dtypes import Dtypes
from kvplan.errors import PlacementError
from kvplan.ledger import Holding, break_even_tokens
from kvplan.plan import baseline_of
from kvplan.stages import stage_bounds

POINTS = 256
"""Lengths that stand for the distribution, each as likely as the other."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Bytes of the model and of its twin."""

    bytes: int
    twin_bytes: int

    @property
    def saving(self) -> float:
        """Share of the twin's bytes; negative where the model stores more."""
        return 1 - self.bytes / self.twin_bytes

    @property
    def more_bytes(self) -> int:
        """What the model stores beyond its twin; negative where it stores less."""
        return self.bytes - self.twin_bytes


@dataclass(frozen=True, slots=True)
class Basis:
    """One place where the bytes are counted: the whole model, or one rank."""

    median: Compared
    """Of the request in the middle."""
    mean: Compared
    """Over all requests."""
    break_even_tokens: int | None
    """None: the model never stores as little."""
    below: float
    """Share of the requests that are shorter than that, and store more."""


@dataclass(frozen=True, slots=True)
class Saving:
    """Live contexts with one state each; snapshots, blocks and slots of an engine come on top."""

    twin: str
    median_tokens: int
    whole: Basis
    rank: Basis | None
    """None where the twin does not split as the model does."""

    @property
    def saves(self) -> bool:
        """Whether the median request stores less, over the whole model."""
        return self.whole.median.more_bytes < 0


def saving_of(replica: Replica, contexts: Contexts) -> Saving | None:
    """The comparison with `--baseline`, by default the model's own full attention in every layer.

    None where there is nothing to compare: the model has no state, or no full attention of its own.
    """
    baseline = baseline_of(replica.model, replica.now.deployment)
    if baseline is None:
        return None
    tokens = np.minimum(contexts.tokens, replica.pool.max_model_len)
    lengths = [int(length) for length in tokens[len(tokens) // POINTS // 2 :: len(tokens) // POINTS]]
    median = int(tokens[len(tokens) // 2])
    dtypes, layout = replica.now.dtypes, replica.fleet.layout
    twin = Holding(baseline.mixers(), dtypes)
    ranks = _twin_ranks(baseline, layout, dtypes)
    fullest = max(replica.ranks, key=lambda one: one.bytes(median))
    return Saving(
        twin=baseline.name,
        median_tokens=median,
        whole=_basis(replica.whole.bytes, twin.bytes, median, lengths, break_even_tokens(replica.whole, twin)),
        rank=_basis(
            replica.rank_bytes,
            lambda length: max(one.bytes(length) for one in ranks),
            median,
            lengths,
            break_even_tokens(fullest, max(ranks, key=lambda one: one.bytes(median))),
        )
        if ranks
        else None,
    )


def _basis(
    ours: Callable[[int], int], twins: Callable[[int], int], median: int, lengths: list[int], even: int | None
) -> Basis:
    return Basis(
        median=Compared(ours(median), twins(median)),
        mean=Compared(sum(map(ours, lengths)) // len(lengths), sum(map(twins, lengths)) // len(lengths)),
        break_even_tokens=even,
        below=sum(even is None or length < even for length in lengths) / len(lengths),
    )


def _twin_ranks(baseline: Baseline, layout: Layout, dtypes: Dtypes) -> list[Holding]:
    """One rank of each stage of the twin; none where it does not split as the model does."""
    try:
        return [
            Holding([mixer.on_rank(layout.tp) for block in baseline.blocks[start:stop] for mixer in block], dtypes,
                    layout.dcp)
            for start, stop in stage_bounds(len(baseline.blocks), layout.pp)
        ]  # fmt: skip
    except PlacementError:
        return []
