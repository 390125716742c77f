"""`kvplan agents MODEL`, schema `kvplan.agents/1`: everything about a workload on a deployment, on one page."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from kvplan.agents.checkpoint_flags import Advice, advise
from kvplan.agents.failover import Loss, Promise, groups_of, promise
from kvplan.agents.failover_report import losses_of
from kvplan.agents.idle import Replica, read_replica, unit_bytes
from kvplan.agents.knee import Knee
from kvplan.agents.prefill import find_prefill
from kvplan.agents.report import parse_risks
from kvplan.agents.residency_report import ResidencyOptions, residency_report
from kvplan.agents.saving import Saving, saving_of
from kvplan.agents.sessions import AtRisk, Sessions, count_sessions
from kvplan.agents.tier_flag import find_tiers
from kvplan.agents.tiers import Case, TierRow, nearest, tier_rows
from kvplan.agents.tiers_report import RISK, gpu_price, price_assumption, tier_assumptions
from kvplan.agents.usage import Usage, read_usage
from kvplan.document import Assumption
from kvplan.errors import NO, YES, UsageError
from kvplan.interval import Interval
from kvplan.model import Model


@dataclass(frozen=True, slots=True)
class PageOptions:
    """What is asked beside the deployment, under the names of the flags."""

    risk: str | None = None
    tier: tuple[str, ...] = ()
    gpu_price: str | None = None
    prefill_tokens_per_s: float | None = None
    knee: bool = True
    """Simulate open sessions to find the knee, which takes seconds."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class AgentsPage:
    inputs: dict[str, Any]
    replica: Replica
    usage: Usage
    sessions: Sessions
    stated: AtRisk
    """The risk that the page is about: 1 % where it is asked for, else the smallest."""
    knee: Knee | None
    no_knee: str
    """Why there is none; empty where there is one."""
    snapshots: Advice | None
    """None where the model keeps no state, or the engine has no flags that are known here."""
    context_tokens: int
    recompute_s: Interval | None
    """Of the mean context; None where nothing says how fast the replica prefills."""
    tiers: tuple[TierRow, ...]
    losses: tuple[Loss, ...]
    loss_tiers: dict[str, str]
    spare: Promise
    """Against one lost GPU."""
    saving: Saving | None
    median_units: int
    """Of the engine, for the median request."""
    unit_bytes: int
    assumptions: tuple[Assumption, ...]

    @property
    def best(self) -> TierRow | None:
        """Where idle sessions should live."""
        return nearest(self.tiers, caching=self.replica.caching)

    @property
    def exit_code(self) -> int:
        """0 where a session fits at the stated risk."""
        return YES if self.stated.sessions else NO


def agents_page(
    model: str | Model, workload: str, *, flags: dict[str, Any], options: PageOptions, notes: list[Assumption]
) -> AgentsPage:
    """The page for `workload` (a profile's name or a trace's path) on `model` under the flags of `kvplan estimate`."""
    risks = parse_risks(options.risk)
    usage, replica = read_usage(workload), read_replica(model, **flags)
    sessions = count_sessions(replica.pool, usage.by_time, risks, options.seed)
    stated = next((row for row in sessions.at_risk if row.risk == RISK), sessions.at_risk[-1])
    found = find_prefill(replica, options.prefill_tokens_per_s)
    prefill, rests_on = found if found else (None, ())
    tiers = find_tiers(replica.gpu, list(options.tier), replica.fleet.per_node)
    price = gpu_price(options.gpu_price, replica.gpu)
    case = Case(replica, usage, prefill, stated.risk, price, options.seed)
    groups = groups_of(replica.fleet)
    losses, loss_tiers = losses_of(case, groups, stated.sessions, tiers)
    knee, no_knee, simulated = _knee(replica, usage, workload, flags, options)
    rests = (*notes, *rests_on, price_assumption(options.gpu_price, price), *tier_assumptions(tiers))
    return AgentsPage(
        inputs={"model": replica.model.name, "workload": workload, **dataclasses.asdict(options), **flags},
        replica=replica,
        usage=usage,
        sessions=sessions,
        stated=stated,
        knee=knee,
        no_knee=no_knee,
        snapshots=advise(replica.now, {}, case.tokens, replica.whole.snapshot_bytes()),
        context_tokens=case.tokens,
        recompute_s=case.recompute_s,
        tiers=tier_rows(case, tiers),
        losses=losses,
        loss_tiers=loss_tiers,
        spare=promise(groups, "gpu", 1, stated.sessions),
        saving=saving_of(replica, usage.by_request),
        median_units=replica.pool.units.of(min(usage.median_tokens, replica.pool.max_model_len)),
        unit_bytes=unit_bytes(replica),
        assumptions=_once(*rests, *sessions.assumptions, *simulated),
    )


def _knee(
    replica: Replica, usage: Usage, workload: str, flags: dict[str, Any], options: PageOptions
) -> tuple[Knee | None, str, tuple[Assumption, ...]]:
    """The most open sessions that are found again on one replica, or why nobody can say, and what that rests on."""
    if not options.knee:
        return None, "not simulated, by --no-knee", ()
    if not usage.has_sessions:
        return None, "the workload has no sessions that come back", ()
    if replica.pool.refusal:
        return None, replica.pool.refusal, ()
    if not replica.caching:
        return None, "prefix caching is off, so no session is found again", ()
    asked = ResidencyOptions(sessions=(1,), seed=options.seed)
    try:
        found = residency_report(replica.model, workload, flags=flags, options=asked, notes=[])
    except UsageError as error:
        return None, str(error), ()
    return found.knee, "" if found.knee else "the trace has no sessions that come back", found.assumptions


def _once(*assumptions: Assumption) -> tuple[Assumption, ...]:
    """The first of each name and value, in their order."""
    return tuple({(one.name, one.value): one for one in reversed(assumptions)}.values())[::-1]
