"""`kvplan agents failover`, schema `kvplan.failover/1`: sessions at stake, time to recover, what may be promised."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from kvplan.agents.failover import UNITS, Fleetwide, Groups, Loss, Promise, Unit, groups_of, promise
from kvplan.agents.idle import Replica, read_replica
from kvplan.agents.links import Link
from kvplan.agents.prefill import prefill_of
from kvplan.agents.sessions import count_sessions
from kvplan.agents.tier import Tier
from kvplan.agents.tier_flag import find_tiers
from kvplan.agents.tiers import Case, crossing_bytes, stored_bytes
from kvplan.agents.tiers_report import RISK, tier_assumptions
from kvplan.agents.usage import Usage, read_usage
from kvplan.document import Assumption
from kvplan.errors import NO, YES, UsageError
from kvplan.model import Model

MOST_SPARES = 3


@dataclass(frozen=True, slots=True)
class FailoverOptions:
    """What is asked beside the deployment, under the names of the flags."""

    spare: int = 1
    spare_unit: str = "gpu"
    risk: float | None = None
    """Per cent."""
    tier: tuple[str, ...] = ()
    prefill_tokens_per_s: float | None = None
    seed: int = 0

    @property
    def unit(self) -> Unit:
        """Raises UsageError for what is none."""
        for unit in UNITS:
            if unit == self.spare_unit:
                return unit
        raise UsageError(f"--spare-unit {self.spare_unit[:40]!r}: use {', '.join(UNITS)}")

    def check(self) -> None:
        """Raises UsageError naming the flag that cannot be meant."""
        if not 0 <= self.spare <= 1 << 20:
            raise UsageError(f"--spare {self.spare}: failures to survive, 0 to {1 << 20:,}")
        if self.risk is not None and not 0.01 <= self.risk <= 99.99:
            raise UsageError(f"--risk {self.risk}: per cent, 0.01 to 99.99")


@dataclass(frozen=True, slots=True)
class FailoverReport:
    inputs: dict[str, Any]
    replica: Replica
    usage: Usage
    unit: Unit
    risk: float
    groups: Groups
    sessions_per_replica: int
    context_tokens: int
    losses: tuple[Loss, ...]
    tiers: dict[str, str]
    """By unit, the tier that a reload after its loss comes from."""
    promises: tuple[Promise, ...]
    asked: Promise
    assumptions: tuple[Assumption, ...]

    @property
    def exit_code(self) -> int:
        """0 where something may be promised."""
        return YES if self.asked.sessions else NO


def failover_report(
    model: str | Model, workload: str, *, flags: dict[str, Any], options: FailoverOptions, notes: list[Assumption]
) -> FailoverReport:
    """Losses and promises for `workload` on `model` under the flags of `kvplan estimate`.

    Raises UsageError where nothing says how fast a replica prefills.
    """
    options.check()
    unit = options.unit
    usage, replica = read_usage(workload), read_replica(model, **flags)
    prefill, rests_on = prefill_of(replica, options.prefill_tokens_per_s)
    risk = RISK if options.risk is None else options.risk / 100
    held = count_sessions(replica.pool, usage.by_time, (risk,), options.seed).at_risk[0].sessions
    case, groups = Case(replica, usage, prefill, risk, 0.0, options.seed), groups_of(replica.fleet)
    tiers = find_tiers(replica.gpu, list(options.tier), replica.fleet.per_node)
    losses, names = losses_of(case, groups, held, tiers)
    counts = sorted({*range(min(MOST_SPARES, groups.replicas) + 1), options.spare})
    return FailoverReport(
        inputs={"model": replica.model.name, "workload": workload, **dataclasses.asdict(options), **flags},
        replica=replica,
        usage=usage,
        unit=unit,
        risk=risk,
        groups=groups,
        sessions_per_replica=held,
        context_tokens=case.tokens,
        losses=losses,
        tiers=names,
        promises=tuple(promise(groups, unit, count, held) for count in counts),
        asked=promise(groups, unit, options.spare, held),
        assumptions=(
            *notes,
            *rests_on,
            *_ASSUMED,
            *tier_assumptions(tiers),
            *usage.by_time.assumptions,
            *usage.by_time.beyond(replica.pool.max_model_len),
        ),
    )


_ASSUMED = (
    Assumption("placement", "in order", "assumed", "replicas lie on the GPUs of the nodes in order"),
    Assumption("recovery", "survivors", "assumed", "survivors do nothing else; a restart of the engine is not in it"),
)


def losses_of(case: Case, groups: Groups, held: int, tiers: list[Tier]) -> tuple[tuple[Loss, ...], dict[str, str]]:
    """One failure of each unit, where a replica holds `held` sessions, with the fastest tier that outlives it, that
    survivors can reach, and that holds the sessions of a replica."""
    replica = case.replica
    fleet = Fleetwide(groups, replica.gpus, held, case.usage.by_time.duty, case.tokens, case.recompute_s)
    found: list[Loss] = []
    names: dict[str, str] = {}
    reachable = (
        [tier for tier in tiers if tier.survives_node and _holds(replica, tier, fleet)] if replica.caching else []
    )
    for unit in UNITS:
        costs = {tier.name: _reach(replica, tier, fleet.context_tokens) for tier in reachable}
        name = min(costs, key=lambda one: costs[one][1] / costs[one][0].bytes_per_s.value, default=None)
        found.append(fleet.loss(unit, None if name is None else costs[name]))
        if name is not None:
            names[unit] = name
    return tuple(found), names


def _holds(replica: Replica, tier: Tier, fleet: Fleetwide) -> bool:
    """Whether what the tier has beside one replica holds all of its sessions."""
    size = tier.size_bytes_per_gpu
    each = stored_bytes(replica, tier, fleet.context_tokens)
    return size is None or size * replica.gpus >= fleet.sessions_per_replica * each


def _reach(replica: Replica, tier: Tier, tokens: int) -> tuple[Link, int]:
    return tier.link, crossing_bytes(replica, tier, tokens)
