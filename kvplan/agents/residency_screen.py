"""What `kvplan agents residency` prints: the knee, and what holds up to it."""

import dataclasses
from typing import Any

from kvplan.agents.knee import Knee, Row
from kvplan.agents.residency_report import SCALES, ResidencyReport
from kvplan.agents.screen import document, warn
from kvplan.agents.tiers_screen import plain
from kvplan.tables import Table, print_json, print_text
from kvplan.units import format_tokens

_KNEE = "knee"


def show_residency(report: ResidencyReport, *, as_json: bool) -> None:
    warn(report.warnings)
    if as_json:
        print_json(document("kvplan.residency/1", report.inputs, report.assumptions, _body(report)))
        return
    lines = _lines(report, report.knee) if report.knee else _content_lines(report)
    tables = [] if report.pool.refusal else [_rows(report.rows) if report.knee else _contents(report)]
    print_text(lines, tables)


def _body(report: ResidencyReport) -> dict[str, Any]:
    pool, reuse = report.pool, report.reuse
    cache = None if reuse is None else dataclasses.asdict(reuse)
    if cache is not None:
        cache.pop("assumptions")
    return {
        "engine": {"name": pool.engine, "rules_version": pool.rules_version},
        "pool": {"units": pool.units.name, "capacity": pool.units.capacity, "replicas": pool.replicas},
        "cache": cache,
        "workload": {"name": report.workload, "source": report.source},
        "knee": None if report.knee is None else plain(dataclasses.asdict(report.knee)),
        "rows": [plain(dataclasses.asdict(row)) for row in report.rows],
        "pools": [dataclasses.asdict(one) for one in report.contents],
        "warnings": list(report.warnings),
    }


def _lines(report: ResidencyReport, knee: Knee) -> list[str]:
    pool, asked, (low, high) = report.pool, report.inputs, knee.hit_range
    if pool.refusal:
        return [f"{pool.model.name} finds not one open session of {report.workload} again: {pool.refusal}"]
    found = f"{knee.sessions:,} open sessions" if knee.sessions else "not one open session"
    lines = [
        f"{pool.model.name} finds {found} of {report.workload} again: the knee, at x = {knee.x:.2f}",
        f"POOL       {pool.units.capacity:,} {pool.units.name} a replica ({pool.engine} {pool.rules_version}); "
        f"a context takes {knee.footprint:,.1f} on average",
        _cache(report),
        f"HIT        {knee.hit:.3f} of the prompts' tokens at the knee ({low:.3f}-{high:.3f} by run), "
        f"{knee.infinite_hit:.3f} without limits; the knee is where {knee.keep:.0%} of that is left",
        f"CHE        the approximation puts the knee at {knee.che_sessions:,} sessions kept whole",
    ]
    if knee.dense_sessions is not None:
        most, least = knee.dense_sessions
        lines.append(
            f"DENSE      if every block's state stayed as long as its session, the knee would lie between {most:,} and "
            f"{least:,} (one state a block, one a full step)"
        )
    lines.append(
        f"SIMULATED  {asked['hours']:g} h, {asked['runs']} runs from seed {asked['seed']}, {asked['eviction']}; how "
        "deep hits fall past the knee is not predicted"
    )
    said = "; ".join(one.source for one in report.assumptions if one.kind == "assumed")
    return [*lines, f"ASSUMED    {said}"]


def _cache(report: ResidencyReport) -> str:
    reuse = report.reuse
    if reuse is None:
        return f"CACHE      whole sessions: {report.pool.engine}'s own prefix cache is not modelled for this model"
    if reuse.keeps == "pages":
        slots = (
            "no states" if reuse.slots is None else f"{reuse.slots:,} state slots, {reuse.slots_per_request} a request"
        )
        return f"CACHE      pages of {reuse.block_tokens:,} tokens, {slots}"
    if not reuse.state_units:
        return f"CACHE      blocks of {reuse.block_tokens:,} tokens, no states"
    kept = "every boundary that a step ends on" if reuse.retention_tokens is None else "resume points only"
    if reuse.retention_tokens:
        kept = f"resume points and every {format_tokens(reuse.retention_tokens)} tokens"
    size = reuse.state_units // reuse.shares
    return f"CACHE      blocks of {reuse.block_tokens:,} tokens; a state takes {size}, kept at {kept}; a hit needs both"


def _rows(rows: tuple[Row, ...]) -> Table:
    some = any(row.refused for row in rows)
    head = ("sessions", "x", "hit", "whole", "che", "waited", *(("refused",) if some else ()), "")
    cells = [
        (
            f"{row.sessions:,}", f"{row.x:.2f}", _share(row.hit), _share(row.whole), _share(row.che),
            _percent(row.waited), *((_percent(row.refused),) if some else ()),
            "past the knee: no promise" if row.past_knee else "",
        )
        for row in rows
    ]  # fmt: skip
    return Table("OPEN SESSIONS, a replica: share of prompt tokens found again", head, cells)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _share(value: float | None) -> str:
    return _KNEE if value is None else f"{value:.3f}"


def _content_lines(report: ResidencyReport) -> list[str]:
    pool, named = report.pool, list(zip((*SCALES, None), report.contents, strict=True))
    own = next(one for scale, one in named if scale == 1.0)
    if pool.refusal:
        return [f"{pool.model.name} finds nothing of {report.workload} again: {pool.refusal}"]
    return [
        f"{pool.model.name} finds {own.hit:.1%} of the prompt tokens of {report.workload} again",
        f"POOL       {pool.units.capacity:,} {pool.units.name} a replica ({pool.engine} {pool.rules_version})",
        _cache(report),
        "SESSIONS   the trace has none, so there is no knee in their number: one request after another",
        *(f"NOTE       {one.name}: {one.source}" for one in report.assumptions),
    ]


def _contents(report: ResidencyReport) -> Table:
    named = zip((*SCALES, None), report.contents, strict=True)
    cells = [
        (
            "infinite" if scale is None else f"{scale:g} x", "-" if one.capacity is None else f"{one.capacity:,}",
            f"{one.hit:.3f}", f"{one.refused:,}",
        )
        for scale, one in named
    ]  # fmt: skip
    return Table("POOLS: share of prompt tokens found again", ("pool", "units", "hit", "refused"), cells)
