"""Where idle sessions live: how many each tier holds, how soon they are back, and whether computing again is sooner."""

from dataclasses import dataclass, replace
from math import inf

from kvplan.agents.columns import Ints
from kvplan.agents.idle import Replica, dense_units, idle_units, unit_bytes
from kvplan.agents.links import Choice, break_even_bytes_per_s, choose, critical_reuse, transfer_s
from kvplan.agents.prefill import Prefill
from kvplan.agents.sessions import count_sessions, gaussian_sessions, limits, units_of
from kvplan.agents.tier import Tier
from kvplan.agents.ttl import Ttl, best_ttl
from kvplan.agents.usage import Usage
from kvplan.engines.base import Units
from kvplan.interval import Interval

HBM = "hbm"
MOST_DRAWN = 200


@dataclass(frozen=True, slots=True)
class TierRow:
    """One tier for one replica and one workload. Times are for the workload's mean context."""

    name: str
    title: str
    bytes_per_gpu: int | None
    unit: str
    capacity: int | None
    """In the unit, of one rank; None where the tier has no limit."""
    sessions_at_mean: float | None
    """Capacity over what a session takes on average: says nothing about risk."""
    sessions_at_risk: int | None
    dense_at_mean: float | None
    """The same with a state at every block boundary; None where the engine has no such thing."""
    crossing_bytes: int
    """What crosses one of the tier's links for a resume."""
    bytes_per_s: Interval | None
    """Of that link; None for the GPUs' own pool."""
    latency_s: Interval | None
    resume_s: Interval
    needed_bytes_per_s: Interval | None
    """Bandwidth of that link from which on reloading wins; None where its latency alone takes longer, and where nothing
    says how fast the replica prefills."""
    critical_reuse: float | None
    choice: Choice | None
    price_per_gb_hour: float | None
    price_per_session_hour: float
    hold: dict[str, Ttl]
    """How long the GPUs should keep a session before this tier has it alone, by class of pause."""
    survives_node: bool


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Bandwidths from which on reloading a context wins, by how it is stored."""

    context_tokens: int
    prefill_s: Interval
    one_copy_bytes: int
    one_copy_bytes_per_s: Interval
    """R·(k + S/L) where the cache and state cross once."""
    rank_bytes: int
    rank_bytes_per_s: Interval
    """Of each rank's own link: a latent cache crosses as often as it is replicated."""


def break_evens(replica: Replica, prefill: Prefill, lengths: list[int]) -> tuple[BreakEven, ...]:
    nothing = Interval(0.0, 0.0, 0.0)
    found = []
    for tokens in lengths:
        seconds = prefill.prefill_s(tokens, 0)
        whole, rank = replica.whole.bytes(tokens), replica.rank_bytes(tokens)
        once, each = (break_even_bytes_per_s(size, seconds, nothing) for size in (whole, rank))
        if once is not None and each is not None:
            found.append(BreakEven(tokens, seconds, whole, once, rank, each))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Case:
    """What every tier is asked about: one replica, one workload, and what computing again would take."""

    replica: Replica
    usage: Usage
    prefill: Prefill | None
    """None: nothing is compared with computing again, and a miss costs what the tier takes."""
    risk: float
    gpu_price: float
    """Of one GPU and hour."""
    seed: int = 0

    @property
    def tokens(self) -> int:
        """The workload's mean context, those beyond the engine's limit counted as long as that: `count_sessions`'s."""
        return max(1, round(float(self.usage.by_time.clipped(self.replica.pool.max_model_len).mean())))

    @property
    def recompute_s(self) -> Interval | None:
        return self.prefill.prefill_s(self.tokens, 0) if self.prefill else None

    def sizes(self, units: Units) -> Ints:
        """What each context takes."""
        return units_of(units, self.usage.by_time.clipped(self.replica.pool.max_model_len))

    def pool_share(self) -> float:
        """F/M: what one session takes of the GPUs' pool on average; infinite where there is none."""
        units = self.replica.pool.units
        return float(self.sizes(units).mean()) / units.capacity if units.capacity > 0 else inf

    def holds(self, miss_s: float, share: float) -> dict[str, Ttl]:
        """Empty where the GPUs hold nothing."""
        if share == inf:
            return {}
        return {name: best_ttl(pauses, miss_s, share) for name, pauses in self.usage.pauses_s.items()}

    def at_risk(self, units: Units, sizes: Ints) -> int:
        """Drawn where few fit; beyond MOST_DRAWN their sum is as good as normal. Of a tier, where nothing runs."""
        mean = float(sizes.mean())
        if mean and units.capacity / mean > MOST_DRAWN:
            return gaussian_sessions(units.capacity, mean, float(sizes.std()), self.risk)
        pool = replace(self.replica.pool, units=units, low=units, high=units)
        return count_sessions(pool, self.usage.by_time, (self.risk,), self.seed).at_risk[0].sessions


def tier_rows(case: Case, tiers: list[Tier]) -> tuple[TierRow, ...]:
    """The GPUs' own memory, then every tier."""
    share, dense = case.pool_share(), dense_units(case.replica)
    mean_dense = float(case.sizes(dense).mean()) if dense is not None else None
    return (_hbm(case, share, mean_dense), *(_row(case, tier, share, mean_dense) for tier in tiers))


def nearest(rows: tuple[TierRow, ...], *, caching: bool = True) -> TierRow | None:
    """The first tier beside the GPUs that holds a session and is surely sooner than computing again; the first that
    holds one where nothing says how long that takes. None where the GPUs themselves hold nothing, or keep
    nothing of an idle session that a tier could get."""
    if not rows[0].capacity or not caching:
        return None
    beside = (row for row in rows if row.name != HBM and row.choice in (None, "reload"))
    return next((row for row in beside if row.sessions_at_mean is None or row.sessions_at_mean >= 1), None)


def stored_bytes(replica: Replica, tier: Tier, tokens: int) -> int:
    """Bytes of a tier that one context takes, over all GPUs of the replica."""
    return replica.whole.bytes(tokens) if tier.copies == "one" else replica.replica_bytes(tokens)


def crossing_bytes(replica: Replica, tier: Tier, tokens: int) -> int:
    """What crosses the busiest of the tier's links before the context is back on every rank."""
    if tier.per == "gpu":
        return replica.rank_bytes(tokens)
    return -(-stored_bytes(replica, tier, tokens) * replica.gpus_on_node // replica.gpus)


def _row(case: Case, tier: Tier, share: float, mean_dense: float | None) -> TierRow:
    replica, tokens, again = case.replica, case.tokens, case.recompute_s
    size = crossing_bytes(replica, tier, tokens)
    back = transfer_s(size, tier.link)
    needed = break_even_bytes_per_s(size, again, tier.link.latency_s) if again else None
    miss = min(again.value, back.value) if again else back.value
    units = _units(replica, tier)
    sizes, limited = case.sizes(units), tier.size_bytes_per_gpu is not None
    dense = mean_dense if limited and tier.copies == "rank" else None
    return TierRow(
        name=tier.name,
        title=tier.title,
        bytes_per_gpu=tier.size_bytes_per_gpu,
        unit=units.name,
        capacity=units.capacity if limited else None,
        sessions_at_mean=units.capacity / float(sizes.mean()) if limited and sizes.any() else None,
        sessions_at_risk=case.at_risk(units, sizes) if limited else None,
        dense_at_mean=units.capacity / dense if dense else None,
        crossing_bytes=size,
        bytes_per_s=tier.link.bytes_per_s,
        latency_s=tier.link.latency_s,
        resume_s=back,
        needed_bytes_per_s=needed,
        critical_reuse=critical_reuse(tier.link, needed) if needed else None,
        choice=choose(back, again) if again else None,
        price_per_gb_hour=tier.price_per_gb_hour,
        price_per_session_hour=stored_bytes(replica, tier, tokens) / 10**9 * tier.price_per_gb_hour,
        hold=case.holds(miss, share),
        survives_node=tier.survives_node,
    )


def _units(replica: Replica, tier: Tier) -> Units:
    """The tier in the engine's unit; in bytes of a replica where one copy is kept. Nothing runs there."""
    size = tier.size_bytes_per_gpu or 0
    if tier.copies == "one":
        return Units("bytes", size * replica.gpus, replica.whole.bytes, "bytes of one copy")
    return replace(idle_units(replica), capacity=size // unit_bytes(replica), most_running=None, most_open=None)


def _hbm(case: Case, share: float, mean_dense: float | None) -> TierRow:
    pool, again = case.replica.pool, case.recompute_s
    units, duty = pool.units, case.usage.by_time.duty
    held = count_sessions(pool, case.usage.by_time, (case.risk,), case.seed).at_risk[0].sessions
    return TierRow(
        name=HBM,
        title="the GPUs' own pool",
        bytes_per_gpu=pool.pool_bytes,
        unit=units.name,
        capacity=units.capacity,
        sessions_at_mean=min([1 / share, *limits(units, duty).values()]),
        sessions_at_risk=held,
        dense_at_mean=units.capacity / mean_dense if mean_dense else None,
        crossing_bytes=0,
        bytes_per_s=None,
        latency_s=None,
        resume_s=Interval(0.0, 0.0, 0.0),
        needed_bytes_per_s=None,
        critical_reuse=None,
        choice=None,
        price_per_gb_hour=None,
        price_per_session_hour=case.gpu_price * case.replica.gpus * share,
        hold=case.holds(again.value, share) if again else {},
        survives_node=False,
    )
