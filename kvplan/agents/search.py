"""The cheapest way to hold a load, found without working every candidate out.

Three answers for a candidate, each dearer and closer than the one before: what the bare bytes allow, vectorised over
all of them; the engine's own units under a normal approximation; and the draws that `kvplan agents sessions` makes. The
first two are kept above the last, so a candidate is looked at more closely only while it could still be the cheapest.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvplan.agents.candidates import Candidate
from kvplan.agents.columns import Ints
from kvplan.agents.contexts import Contexts
from kvplan.agents.draws import Draws
from kvplan.agents.sessions import gaussian_sessions, limits, units_of
from kvplan.capacity import Evaluation, engine_for, place
from kvplan.deployment import make_deployment
from kvplan.dtypes import Dtypes
from kvplan.engines.base import Units, snapshots_of
from kvplan.errors import KvplanError
from kvplan.ledger import Holding
from kvplan.model import Model
from kvplan.placement import stage_layers
from kvplan.units import ceil_div
from kvplan.weights import WeightReport

PROBES = 64
"""Contexts, evenly spread over the distribution, that stand for all of them in the two bounds."""
SLACK = 1.03
"""What the bounds are raised by, and by two sessions more: probes and normal sums are not exact."""
_BOUND, _ROUGH, _EXACT = range(3)
_NEVER = float("inf")

Cost = Callable[[Candidate, int], float]
"""Of so many GPUs of a candidate, in whatever the answer is sorted by."""
Key = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate that holds the load, and how much of it that takes."""

    index: int
    sessions: int
    """Of one replica, at the risk asked about."""
    groups: int
    """Spares included."""
    gpus: int


@dataclass(frozen=True, slots=True)
class Load:
    """Sessions to hold, and groups that may be lost without losing any."""

    sessions: int
    spare: int = 0


class Search:
    """Candidates for one question: sessions of `contexts` at `risk`. What is worked out serves every load."""

    def __init__(
        self, model: Model, candidates: Sequence[Candidate], contexts: Contexts, limit: int, risk: float, seed: int = 0
    ) -> None:
        self.model, self.candidates, self.limit = model, list(candidates), limit
        self.risk, self.seed, self.duty = risk, seed, contexts.duty
        self.tokens: Ints = np.minimum(contexts.tokens, limit)
        step = max(1, len(self.tokens) // PROBES)
        self.probes: Ints = self.tokens[step // 2 :: step]
        self._typed = make_deployment(**(self.candidates[0].base if self.candidates else {}))
        self.refused: str | None = None
        """Why a candidate could not be worked out, the first time that happened."""
        self._weights: dict[tuple[int, ...], WeightReport] = {}
        self._total_bytes = 0
        self._pools: dict[tuple[Any, ...], int] = {}
        self._dtypes: dict[tuple[Any, ...], Dtypes] = {}
        self._moments: dict[tuple[Any, ...], tuple[float, float]] = {}
        self._units: dict[int, Units | None] = {}
        self._rough: dict[int, int] = {}
        self._exact: dict[int, int] = {}
        self._draws: dict[Hashable, Draws] = {}
        self.bounds = self._bounds()

    def add(self, candidate: Candidate) -> None:
        """One more candidate, at the end of the list."""
        self.candidates.append(candidate)
        self.bounds = np.append(self.bounds, 1 << 40)

    @property
    def evaluated(self) -> int:
        """Candidates that the engine's own rules were worked out for."""
        return len(self._units)

    @property
    def answered(self) -> bool:
        """Whether the engine's rules gave units for any of them."""
        return any(units is not None for units in self._units.values())

    def cheapest(self, indices: Sequence[int], load: Load, cost: Cost, most_gpus: dict[str, int]) -> Found | None:
        """The cheapest of these that holds the load; of equals the plainest, then the one that holds most."""

        def entry(index: int, level: int, sessions: int) -> tuple[Key, int, int, Found] | None:
            one = self.candidates[index]
            if sessions <= 0:
                return None
            groups = ceil_div(load.sessions, sessions * one.group_replicas) + load.spare
            gpus = groups * one.group_gpus
            if gpus > most_gpus[one.gpu.name]:
                return None
            held = (groups - load.spare) * sessions * one.group_replicas
            key = (cost(one, gpus), gpus, one.narrowed, one.wide, one.layout.pp, one.layout.dcp, -held)
            return key, -level, index, Found(index, sessions, groups, gpus)

        heap = [made for index in indices if (made := entry(index, _BOUND, int(self.bounds[index])))]
        heapify(heap)
        while heap:
            _, level, index, found = heappop(heap)
            if -level == _EXACT:
                return found
            nearer = self.rough(index) if -level == _BOUND else self.exact(index)
            if made := entry(index, 1 - level, nearer):
                heappush(heap, made)
        return None

    def rough(self, index: int) -> int:
        """At least what `exact` says, from the probes and a normal sum."""
        if index not in self._rough:
            units = self._units_of(index)
            sizes = np.array([units.of(int(tokens)) for tokens in self.probes]) if units and units.capacity else None
            if units is None or sizes is None:
                self._rough[index] = 0
            else:
                most = gaussian_sessions(units.capacity, float(sizes.mean()), float(sizes.std()), self.risk)
                self._rough[index] = self._capped(units, int(most * SLACK) + 2)
        return self._rough[index]

    def exact(self, index: int) -> int:
        """Sessions of one replica, as `kvplan agents sessions` counts them."""
        if index not in self._exact:
            units = self._units_of(index)
            if units is None:
                self._exact[index] = 0
            else:
                self._exact[index] = self._capped(units, self._draws_of(units).sessions(units.capacity))
        return self._exact[index]

    def _draws_of(self, units: Units) -> Draws:
        """The draws for the sizes that these units come to, made once for all pools that have the same."""
        if units.key is not None and units.key in self._draws:
            return self._draws[units.key]
        sizes = units_of(units, self.tokens)
        draws = self._draws.setdefault(sizes.tobytes(), Draws(sizes, self.risk, self.seed))
        if units.key is not None:
            self._draws[units.key] = draws
        return draws

    def _capped(self, units: Units, sessions: int) -> int:
        return min(sessions, *limits(units, self.duty).values(), sessions)

    def _units_of(self, index: int) -> Units | None:
        if index not in self._units:
            one = self.candidates[index]
            placed = self._place(one)
            self._units[index] = None
            if placed is not None and placed.pool is not None and placed.share is not None and placed.pool.bytes > 0:
                try:
                    self._units[index] = placed.engine.units(
                        placed.share, placed.pool.bytes, placed.deployment, self.limit
                    )
                except KvplanError as error:
                    self.refused = self.refused or str(error)
        return self._units[index]

    def _place(self, one: Candidate) -> Evaluation | None:
        """One group of the candidate, up to its pool; None where the model cannot be served so."""
        layout = one.layout
        key = (layout.tp, layout.pp, layout.dp, layout.ep)
        try:
            placed = place(self.model, make_deployment(**one.flags(1)), one.gpu, self._weights.get(key))
        except KvplanError as error:
            self.refused = self.refused or str(error)
            return None
        if placed.weights is not None:
            self._weights[key], self._total_bytes = placed.weights, placed.weights.total_bytes
        return placed

    def _bounds(self) -> NDArray[np.int64]:
        """Of each candidate, sessions that the bytes of its pool allow by a normal sum, raised by SLACK."""
        pools = np.array([self._pool(one) for one in self.candidates], dtype=float)
        moments = np.array(
            [self._bytes(one) if pool > 0 else (1.0, 0.0) for one, pool in zip(self.candidates, pools, strict=True)]
        )
        mean, sd = moments.reshape(-1, 2).T
        spread = NormalDist().inv_cdf(1 - self.risk) * sd
        root = (np.sqrt(spread**2 + 4 * mean * np.maximum(pools, 0)) - spread) / (2 * mean)
        return np.where(pools > 0, root * root * SLACK + 2, 0).astype(np.int64)

    def _pool(self, one: Candidate) -> int:
        """Bytes of one rank's pool, the same for all settings of a layout as far as a bound needs to know."""
        layout = one.layout
        spread = (layout.tp, layout.pp, layout.dp, layout.ep)
        key = (one.gpu.name, *spread)
        if key not in self._pools:
            weights = self._weights.get(spread)
            least = weights.rank_bytes if weights else self._total_bytes // (layout.tp * layout.pp * one.group_replicas)
            placed = None if least >= one.gpu.engine_memory_bytes else self._place(one)
            self._pools[key] = placed.pool.bytes if placed is not None and placed.pool is not None else 0
        return self._pools[key]

    def _bytes(self, one: Candidate) -> tuple[float, float]:
        """Mean and deviation of a session's bytes on the fullest rank."""
        named = (one.gpu.name, one.settings)
        if named not in self._dtypes:
            deployment = make_deployment(**one.flags(1))
            self._dtypes[named] = engine_for(deployment, with_gpu=True).dtypes(self.model, deployment)
        layout, dtypes = one.layout, self._dtypes[named]
        key = (layout.tp, layout.pp, layout.dcp, dtypes)
        if key not in self._moments:
            holdings = [Holding(stage, dtypes, layout.dcp) for stage in stage_layers(self.model, layout)]
            copies = [snapshots_of(self._typed, tokens) for tokens in map(int, self.probes)]
            sizes = np.array(
                [
                    max(one.bytes(int(tokens)) + saved * one.snapshot_bytes() for one in holdings)
                    for tokens, saved in zip(self.probes, copies, strict=True)
                ],
                dtype=float,
            )
            self._moments[key] = (max(1.0, float(sizes.mean())), float(sizes.std()))
        return self._moments[key]
