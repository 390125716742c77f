"""What the answers about agents look like: lines and tables, or one JSON document."""

import dataclasses
import sys
from collections.abc import Iterable
from typing import Any

from kvplan import __version__
from kvplan.agents.report import SessionsReport
from kvplan.agents.sessions import AtRisk
from kvplan.agents.workload import TABLES, Workload
from kvplan.document import Assumption
from kvplan.tables import Table, print_json, print_text
from kvplan.units import format_tokens, printable

SHOWN = (10.0, 50.0, 90.0, 99.0, 99.9)


def document(schema: str, inputs: dict[str, Any], assumptions: Iterable[Assumption], body: dict[str, Any]) -> Any:
    """The head that every JSON document has, then its body."""
    head = {"schema": schema, "kvplan_version": __version__, "inputs": inputs}
    return head | {"assumptions": [dataclasses.asdict(one) for one in assumptions]} | body


def warn(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"kvplan: warning: {printable(note)}", file=sys.stderr)


def show_sessions(report: SessionsReport, *, as_json: bool) -> None:
    warn(report.warnings)
    found, pool = report.sessions, report.pool
    if as_json:
        body = {
            "engine": {"name": pool.engine, "rules_version": pool.rules_version},
            "pool": {"bytes": pool.pool_bytes, "source": pool.pool_source, "replicas": pool.replicas},
            "workload": {"name": report.workload, "source": report.source},
            "sessions": {
                name: value for name, value in dataclasses.asdict(found).items() if name not in ("assumptions",)
            },
            "warnings": list(report.warnings),
        }
        print_json(document("kvplan.sessions/1", report.inputs, report.assumptions, body))
        return
    print_text(_sessions_lines(report), [risk_table(found.at_risk, pool.replicas)])


def _sessions_lines(report: SessionsReport) -> list[str]:
    found, pool = report.sessions, report.pool
    least = found.at_risk[-1]
    lines = [
        f"{pool.model.name} holds {least.sessions:,} sessions of {report.workload} at {_percent(least.risk)} risk that "
        f"they overflow a replica's pool",
        f"POOL       {found.capacity:,} {found.unit} a replica ({pool.pool_source}, {pool.engine} {pool.rules_version})"
        f", {found.rule}",
        f"CONTEXTS   mean {found.mean_context_tokens:,.0f} tokens, weighted by {found.weighting}; a session takes "
        f"{found.mean_units:,.1f} ± {found.sd_units:,.1f} {found.unit}",
        f"DIVIDED    {found.naive:,.1f} sessions at {format_tokens(found.naive_context_tokens)} tokens each, "
        f"{found.at_mean_context:,.1f} at the mean: neither says anything about risk",
    ]
    if pool.refusal:
        lines.append(f"NONE       {pool.refusal}")
    if found.duty is not None and found.session_s and least.sessions:
        running = least.sessions * found.duty
        rate = least.sessions * 3600 / found.session_s
        lines.append(
            f"OPEN       {least.sessions:,} open sessions run {running:,.1f} at a time ({found.duty:.1%} of it, "
            f"pauses capped) and end after {found.session_s / 60:,.0f} min: {rate:,.1f} new ones an hour keep them so"
        )
    lines += [f"NOTE       {one.name}: {one.source}" for one in found.assumptions]
    return lines


def risk_table(rows: tuple[AtRisk, ...], replicas: int) -> Table:
    columns: list[tuple[str, list[str]]] = [
        ("overflow risk", [_percent(row.risk) for row in rows]),
        ("sessions", [f"{row.sessions:,}" for row in rows]),
        ("pool range", [f"{row.low:,}-{row.high:,}" for row in rows]),
        ("gaussian", [f"{row.gaussian:,}" for row in rows]),
    ]
    if all(row.running is not None for row in rows):
        columns.append(("running", [f"{row.running:,.1f}" for row in rows]))
    if replicas > 1:
        columns.append((f"{replicas} replicas", [f"{row.deployment_sessions:,}" for row in rows]))
    columns.append(("binds", [row.binds for row in rows]))
    cells = [values for _, values in columns]
    return Table("SESSIONS OPEN AT ONCE, a replica", tuple(name for name, _ in columns), list(zip(*cells, strict=True)))


def _percent(share: float) -> str:
    return f"{share * 100:g} %"


def workload_rows(workloads: Iterable[Workload]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "requests": one.requests,
            "sessions": one.sessions,
            "context_p50": round(_value(one, "context_tokens", 50.0)),
            "context_p99": round(_value(one, "context_tokens", 99.0)),
            "licence": one.source.licence,
            "title": one.title,
            "source": one.source.url,
        }
        for one in workloads
    ]


def _value(workload: Workload, table: str, percent: float) -> float:
    found = workload.table(table)
    return found.value(percent) if found else 0.0


def show_workload(workload: Workload, inputs: dict[str, Any], notes: list[str], *, as_json: bool) -> None:
    warn(notes)
    if as_json:
        body = workload.model_dump(by_alias=True)
        body.pop("schema")
        print_json(document("kvplan.workload/1", inputs, (), body | {"warnings": notes}))
        return
    print_text(_workload_lines(workload), [_percentile_table(workload)])


def _workload_lines(workload: Workload) -> list[str]:
    lines = [
        f"{workload.name}: {workload.title}",
        f"MEASURED   {workload.requests:,} requests of {workload.sessions:,} sessions",
    ]
    if workload.user_share is not None:
        lines.append(f"TRIGGERS   {workload.user_share:.1%} of what continues a session comes from a person")
    if workload.duty is not None:
        lines.append(
            f"DUTY       {workload.duty:.1%} of an open session's time, pauses capped at {workload.gap_cap_s:g} s"
        )
    source = workload.source
    licence = "licence unknown" if source.licence == "unknown" else source.licence
    lines.append(f"SOURCE     {source.title}, {licence}{f', {source.url}' if source.url else ''}")
    return lines + ([f"NOTE       {source.note}"] if source.note else [])


def _percentile_table(workload: Workload) -> Table:
    rows = []
    for name in TABLES:
        found = workload.table(name)
        if found is not None:
            rows.append((name, *(_number(found.value(percent)) for percent in SHOWN), _number(found.mean)))
    return Table("PERCENTILES", ("", *(f"p{percent:g}" for percent in SHOWN), "mean"), rows)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value.is_integer() else f"{value:.1f}"
