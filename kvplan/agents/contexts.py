"""How long contexts are when a session is looked at: a distribution, from a trace or from a profile."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvplan.agents.columns import GAP_CAP_S, Columns, Ints
from kvplan.agents.quantiles import midpoints
from kvplan.agents.workload import Workload
from kvplan.document import Assumption

Weighting = Literal["time", "request"]
POINTS = 8192
"""A distribution is kept as so many contexts, each as likely as the other."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """`tokens` are POINTS lengths in ascending order, equally likely; independent of the order of a trace's rows."""

    tokens: Ints
    weighting: Weighting
    mean_tokens: float
    longest_tokens: int
    duty: float | None
    """Share of an open session's time, pauses capped, in which the model works for it; None where nothing is timed."""
    session_s: float | None
    """Mean time that a session stays open, pauses capped."""
    assumptions: tuple[Assumption, ...] = ()

    def clipped(self, limit_tokens: int) -> Ints:
        """`tokens`, those beyond an engine's limit as long as that."""
        return np.minimum(self.tokens, limit_tokens)

    def beyond(self, limit_tokens: int) -> tuple[Assumption, ...]:
        """How many that are; empty where none is."""
        share = float((self.tokens > limit_tokens).mean())
        if not share:
            return ()
        said = f"{share:.1%} of the contexts are beyond the engine's limit and count as long as that"
        return (Assumption("clipped_at_tokens", limit_tokens, "derived", said),)


def contexts_of_trace(columns: Columns, weighting: Weighting = "time", gap_cap_s: float = GAP_CAP_S) -> Contexts:
    """Contexts of a trace's requests, weighted by how long each stands or counted once each."""
    notes = []
    held = columns.held_ms(gap_cap_s)
    if weighting == "time" and not (columns.timed and held.any()):
        notes.append(_untimed("the trace gives no times, or no sessions"))
        weighting = "request"
    unknown = int(np.isnan(columns.service_s).sum())
    if weighting == "time" and unknown:
        notes.append(
            Assumption("unknown_service_s", 0, "assumed", f"{unknown:,} requests whose service time is unknown")
        )
    lengths, inverse = np.unique(columns.context_tokens, return_inverse=True)
    weights: Ints = np.zeros(len(lengths), dtype=np.int64)
    np.add.at(weights, inverse, held if weighting == "time" else 1)
    reached = np.cumsum(weights)
    picked = np.searchsorted(reached, midpoints(POINTS) * reached[-1])
    served = float(np.rint(np.nan_to_num(columns.service_s, nan=0.0) * 1000).sum())
    return Contexts(
        tokens=lengths[picked],
        weighting=weighting,
        mean_tokens=float((lengths * (weights / reached[-1])).sum()),
        longest_tokens=int(lengths[weights > 0][-1]),
        duty=served / float(held.sum()) if served else None,
        session_s=float(held.sum()) / 1000 / columns.sessions if served else None,
        assumptions=(*notes, _cap(gap_cap_s, "given" if gap_cap_s != GAP_CAP_S else "assumed"))
        if weighting == "time"
        else tuple(notes),
    )


def contexts_of_workload(workload: Workload, weighting: Weighting = "time") -> Contexts:
    """Contexts as a profile's percentiles have them."""
    notes = []
    table = workload.table("context_tokens_by_time") if weighting == "time" else None
    if table is None:
        if weighting == "time":
            notes.append(_untimed(f"workload {workload.name} has no times"))
        weighting, table = "request", workload.table("context_tokens")
    assert table is not None, "a Workload has context_tokens or is refused"
    if weighting == "time":
        notes.append(_cap(workload.gap_cap_s or GAP_CAP_S, "assumed"))
    tokens = np.maximum(1, np.rint(table.at(midpoints(POINTS)))).astype(np.int64)
    return Contexts(
        tokens, weighting, float(tokens.mean()), int(table.values[-1]), workload.duty, workload.session_s, tuple(notes)
    )


def _cap(seconds: float, kind: Literal["given", "assumed"]) -> Assumption:
    return Assumption("gap_cap_s", seconds, kind, "a pause counts for at most so long; past it memory goes to others")


def _untimed(why: str) -> Assumption:
    return Assumption("weighting", "request", "derived", f"{why}, so each request counts once")
