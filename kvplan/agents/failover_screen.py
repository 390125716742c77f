"""What `kvplan agents failover` says on a screen and as a document."""

import dataclasses
from typing import Any

from kvplan.agents.failover import Loss
from kvplan.agents.failover_report import FailoverReport
from kvplan.agents.idle import Replica
from kvplan.agents.screen import document, warn
from kvplan.agents.tiers_screen import assumed_lines, seconds, span
from kvplan.interval import Interval
from kvplan.tables import Table, print_json, print_text

NAMES = {"gpu": "GPU", "node": "node", "replica": "replica"}


def show_failover(report: FailoverReport, *, as_json: bool) -> None:
    warn(report.usage.warnings)
    if as_json:
        print_json(document("kvplan.failover/1", report.inputs, report.assumptions, failover_body(report)))
        return
    print_text(_lines(report), [_promise_table(report), _loss_table(report)])


def failover_body(report: FailoverReport) -> dict[str, Any]:
    return {
        "engine": {"name": report.replica.pool.engine, "rules_version": report.replica.pool.rules_version},
        "workload": {"name": report.usage.name, "source": report.usage.source},
        "replicas": report.groups.replicas,
        "replicas_that_die_together": report.groups.together,
        "sessions_per_replica": report.sessions_per_replica,
        "risk": report.risk,
        "context_tokens": report.context_tokens,
        "unit": report.unit,
        "promised": dataclasses.asdict(report.asked),
        "promises": [dataclasses.asdict(one) for one in report.promises],
        "losses": [dataclasses.asdict(one) | {"tier": report.tiers.get(one.unit)} for one in report.losses],
        "warnings": list(report.usage.warnings),
    }


def _lines(report: FailoverReport) -> list[str]:
    asked, groups = report.asked, report.groups
    what = f"{asked.spare:,} lost {NAMES[report.unit]}{'s' if asked.spare != 1 else ''}"
    if asked.sessions:
        verdict = f"{asked.sessions:,} sessions of {report.usage.name} may be promised: after {what} the rest still "
        verdict += "holds them"
    elif report.sessions_per_replica:
        verdict = f"nothing may be promised against {what}: no replica of the {groups.replicas:,} is left"
    else:
        verdict = f"nothing may be promised: {why_none(report.replica, report.risk)}"
    gpus, nodes = report.replica.gpus, len(groups.replicas_of_node)
    together = f", {groups.together} share experts and die together" if groups.together > 1 else ""
    return [
        f"{report.replica.model.name}: {verdict}",
        f"REPLICAS   {groups.replicas} of {gpus} GPU{'s' if gpus > 1 else ''} each on {nodes} "
        f"node{'s' if nodes > 1 else ''}{together}; each dies with any of its GPUs",
        f"SESSIONS   {report.sessions_per_replica:,} a replica at {report.risk * 100:g} % risk, of "
        f"{report.context_tokens:,} tokens on average",
        *(
            loss_line(loss, report.tiers.get(loss.unit))
            for loss in report.losses
            if loss.unit != "replica" and report.sessions_per_replica
        ),
        *assumed_lines(report.assumptions),
    ]


def why_none(replica: Replica, risk: float) -> str:
    """Why a replica holds not one session."""
    return replica.pool.refusal or f"a replica's pool does not hold one session at {risk * 100:g} % risk"


def loss_line(loss: Loss, tier: str | None) -> str:
    """What one failure costs, in a sentence."""
    head = (
        f"{'1 ' + loss.unit.upper():10} {loss.sessions:,} sessions lose their memory, {loss.tokens:,} tokens to prefill"
    )
    if not loss.survivors:
        back = f": {seconds(loss.restored_s)} once it is back" if loss.restored_s else ""
        return f"{head}; no replica is left{back}"
    parts = []
    if loss.storm_s is not None:
        parts.append(f"{seconds(loss.storm_s)} on {loss.survivors} left")
    if loss.running_storm_s is not None:
        parts.append(f"{seconds(loss.running_storm_s)} for those at work")
    said = f"{head}: {', '.join(parts)}" if parts else head
    return f"{said}, or {seconds(loss.reload_s)} from {tier}" if loss.reload_s is not None and tier else said


def _promise_table(report: FailoverReport) -> Table:
    rows = [
        (f"{one.spare:,}", f"{one.replicas_left:,}", f"{one.sessions:,}", f"{one.per_replica:,.1f}")
        for one in report.promises
    ]
    head = (f"{NAMES[report.unit]}s lost", "replicas left", "sessions promised", "a replica until then")
    return Table("PROMISED so that the rest still holds everything at the risk", head, rows)


def _loss_table(report: FailoverReport) -> Table:
    rows = [
        (
            NAMES[loss.unit], f"{loss.replicas}", f"{loss.gpus}", f"{loss.sessions:,}",
            "" if loss.running is None else f"{loss.running:,.1f}", _time(loss.storm_s), _time(loss.reload_s),
            f"{loss.room:,}",
        )
        for loss in report.losses
    ]  # fmt: skip
    head = ("one", "replicas", "GPUs", "sessions", "at work", "prefill s", "reload s", "room left")
    return Table("LOST with it, every replica full", head, rows)


def _time(time: Interval | None) -> str:
    return "" if time is None else span(time)
