"""Users against context on one deployment: how many it holds, and how many GPUs a number of them takes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kvplan.agents.columns import Ints
from kvplan.agents.contexts import Contexts
from kvplan.agents.draws import Draws
from kvplan.agents.pools import session_pool
from kvplan.agents.sessions import limits, units_of
from kvplan.capacity import evaluate
from kvplan.errors import UsageError
from kvplan.model import Model
from kvplan.plan import settle
from kvplan.units import ceil_div

LOADS = (8, 32, 128, 512)
SHORTEST = 1 << 13
MOST_BEYOND = 0.1
"""A distribution of which more than this is beyond the engine's limit says little about its mean."""


@dataclass(frozen=True, slots=True)
class UsersRow:
    """Users at one context length, on the whole deployment, spares aside."""

    context_tokens: int
    alike: int
    """Sessions that are all as long as that, as `kvplan estimate` counts them."""
    spread: int | None
    """Sessions whose contexts are spread as the workload's, with this mean, at the risk; None beyond the limit."""
    gpus: tuple[int | None, ...]
    """GPUs that each of `loads` takes, spares included; from `spread` where it is known. None: it never fits."""


@dataclass(frozen=True, slots=True)
class UsersTable:
    """One deployment's users × context."""

    flags: dict[str, Any]
    gpus: int
    group_gpus: int
    groups: int
    spare: int
    risk: float
    loads: tuple[int, ...]
    rows: tuple[UsersRow, ...]

    @property
    def holds(self) -> bool:
        return any(row.alike or row.spread for row in self.rows)


def users_table(
    model: str | Model,
    flags: dict[str, Any],
    contexts: Contexts,
    risk: float,
    *,
    spare: int = 0,
    loads: tuple[int, ...] = LOADS,
    seed: int = 0,
) -> UsersTable:
    """The table for a deployment that the flags of `kvplan estimate` describe. Raises UsageError where none do."""
    read, deployment, gpu, _ = settle(model, **flags)
    pool = session_pool(read, **flags)
    limit = pool.max_model_len
    lengths = sorted({SHORTEST << step for step in range(30) if SHORTEST << step < limit} | {limit})
    now = evaluate(read, deployment, gpu, lengths)
    assert now.fleet is not None, "session_pool refuses a deployment without GPUs"
    layout = now.fleet.layout
    each = layout.dp if layout.expert_shares > layout.tp else 1
    groups = pool.replicas // each
    if spare >= groups:
        raise UsageError(f"--spare {spare}: the deployment has {groups} group{'s' if groups > 1 else ''} in all")
    most = min((*limits(pool.units, contexts.duty).values(), 1 << 40))
    rows = []
    for length, row in zip(lengths, now.capacity, strict=True):
        tokens = _spread(contexts, length, limit)
        spread = None
        if tokens is not None:
            sizes = units_of(pool.units, tokens)
            spread = min(most, Draws(sizes, risk, seed).sessions(pool.units.capacity))
        one = (row.sequences if spread is None else spread) * each
        gpus = tuple((ceil_div(load, one) + spare) * layout.tp * layout.pp * each if one else None for load in loads)
        ready = (groups - spare) * each
        rows.append(UsersRow(length, row.sequences * ready, None if spread is None else spread * ready, gpus))
    group = layout.tp * layout.pp * each
    return UsersTable(flags, now.fleet.gpus, group, groups, spare, risk, tuple(loads), tuple(rows))


def _spread(contexts: Contexts, mean_tokens: int, limit: int) -> Ints | None:
    """The workload's contexts, all longer or shorter by one factor so that they have this mean."""
    scaled: Ints = np.maximum(1, np.rint(contexts.tokens * (mean_tokens / contexts.mean_tokens))).astype(np.int64)
    return np.minimum(scaled, limit) if float((scaled > limit).mean()) <= MOST_BEYOND else None
