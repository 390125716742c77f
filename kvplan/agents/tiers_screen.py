"""What `kvplan agents tiers` says on a screen and as a document."""

import dataclasses
from collections.abc import Sequence
from math import inf
from typing import Any

from kvplan.agents.host_pools import Split
from kvplan.agents.idle import Replica
from kvplan.agents.screen import document, warn
from kvplan.agents.tiers import HBM, TierRow
from kvplan.agents.tiers_report import TIER, HostSplit, TiersReport
from kvplan.agents.ttl import Ttl
from kvplan.document import Assumption
from kvplan.interval import Interval
from kvplan.tables import Table, print_json, print_text
from kvplan.units import format_gib, format_short, format_tokens

CLASSES = {"tool": "a tool", "user": "a person", "any": "any pause"}


def show_tiers(report: TiersReport, *, as_json: bool) -> None:
    warn(report.usage.warnings)
    if as_json:
        print_json(document("kvplan.tiers/1", report.inputs, report.assumptions, tiers_body(report)))
        return
    held = [_hold_table(report)] if any(row.hold for row in report.rows) else []
    tables = [_tier_table(report), _resume_table(report), *held, _break_even_table(report)]
    print_text(tiers_lines(report), tables)


def tiers_body(report: TiersReport) -> dict[str, Any]:
    host = report.host
    best = report.best
    return {
        "engine": {"name": report.replica.pool.engine, "rules_version": report.replica.pool.rules_version},
        "workload": {"name": report.usage.name, "source": report.usage.source, "reuse": report.usage.reuse},
        "context_tokens": report.context_tokens,
        "risk": report.risk,
        "pool_share": plain(report.pool_share),
        "best": best.name if best else None,
        "tiers": [plain(dataclasses.asdict(row)) for row in report.rows],
        "break_even": [plain(dataclasses.asdict(one)) for one in report.break_evens],
        "host_split": None if host is None else dataclasses.asdict(host),
        "warnings": list(report.usage.warnings),
    }


def plain(value: Any) -> Any:
    """The same without infinities, which JSON has no word for: null there means without an end."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return None if value in (inf, -inf) else value


def tiers_lines(report: TiersReport) -> list[str]:
    best, replica, tokens = report.best, report.replica, report.context_tokens
    sizes = (replica.rank_bytes(tokens), replica.replica_bytes(tokens), replica.whole.bytes(tokens))
    rank, ranks, one = map(format_short, sizes)
    again = next(one.prefill_s for one in report.break_evens if one.context_tokens == tokens)
    lines = [
        f"{replica.model.name}: {_where(report, again)}",
        f"RESUME     {tokens:,} tokens on average: {rank} a rank, {ranks} over {replica.gpus} ranks, {one} as one copy",
        *(
            [f"SHARE      a session takes {report.pool_share:.1%} of the GPUs' pool while it stays there"]
            if report.pool_share < inf
            else []
        ),
        *_reuse_line(report.usage.reuse, best),
        *caching_line(replica),
        _host_line(report.host, replica.pool.engine),
    ]
    return [*lines, *assumed_lines(report.assumptions)]


def _where(report: TiersReport, again: Interval) -> str:
    best, pool, idle = report.best, report.replica.pool, f"idle sessions of {report.usage.name}"
    if best is not None:
        return f"{idle} live best in {best.name}: back in {seconds(best.resume_s)}, not {seconds(again)}"
    if pool.refusal:
        return f"not one session of {report.usage.name} fits: {pool.refusal}"
    why = "no tier beside the GPUs is surely sooner than" if report.replica.caching else "prefix caching is off:"
    return f"{idle} are computed again: {why} {seconds(again)}"


def caching_line(replica: Replica) -> list[str]:
    """Said where the GPUs keep nothing of an idle session."""
    return [] if replica.caching else ["CACHING    off: the GPUs keep nothing of an idle session, and no tier gets any"]


def _reuse_line(reuse: float | None, best: TierRow | None) -> list[str]:
    if reuse is None or best is None or best.critical_reuse is None:
        return []
    bound = "transfers bound the prefill" if reuse > best.critical_reuse else "arithmetic bounds it"
    return [
        f"REUSE      {reuse:,.0f} cached tokens per new one where {best.critical_reuse:,.0f} is critical on "
        f"{best.name}: {bound}"
    ]


def assumed_lines(assumptions: Sequence[Assumption]) -> list[str]:
    """What the figures rest on and nobody gave, by name and value; sources, and each tier's figures, are in --json."""
    clipped = [
        f"CLIPPED    {one.source}: {_value(one.value)} tokens" for one in assumptions if one.name == "clipped_at_tokens"
    ]
    found = [
        f"{one.name} {_value(one.value)}"
        for one in assumptions
        if one.kind == "assumed" and one.value is not None and not one.name.startswith(TIER)
    ]
    if any(one.name.startswith(TIER) for one in assumptions):
        found.append("tiers as `kvplan agents tiers` shows them, --tier changes one")
    return [*clipped, f"ASSUMED    {'; '.join(found)}; sources in --json"] if found else clipped


def _value(value: str | int | float | bool | None) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _host_line(host: HostSplit | None, engine: str) -> str:
    if host is None:
        one = "one pool of blocks serves rows and states: neither strands the other"
        return f"HOST       {one if engine == 'vllm' else 'no pools of rows and state slots apart from each other'}"
    even = host.balanced
    best = (
        f"{format_gib(host.budget_bytes)} hold {even.sessions:,} sessions with {format_gib(even.kv_bytes)} of rows and "
        f"{format_gib(even.state_bytes)} of state slots"
    )
    return f"HOST       {_cut_as_is(host.now)}{best}, {host.states} states each"


def _cut_as_is(now: Split | None) -> str:
    if now is None:
        return ""
    more = "rows" if now.kv_sessions > now.state_sessions else "states"
    strand = f", {format_gib(now.stranded_bytes)} of {more} are dead" if now.stranded_bytes else ""
    return (
        f"as the engine cuts it {now.kv_sessions:,} sessions have rows and {now.state_sessions:,} states{strand}; "
        "balanced, "
    )


def _tier_table(report: TiersReport) -> Table:
    dense = any(row.dense_at_mean is not None for row in report.rows)
    head = (
        "tier", "per GPU", "at mean", f"at {report.risk * 100:g} % risk", *(("dense",) if dense else ()),
        "$/GB-h", "$/session-h",
    )  # fmt: skip
    rows = [
        (
            row.name,
            "no limit" if row.bytes_per_gpu is None else format_short(row.bytes_per_gpu),
            _count(row.sessions_at_mean),
            _count(row.sessions_at_risk),
            *((_count(row.dense_at_mean),) if dense else ()),
            "" if row.price_per_gb_hour is None else f"{row.price_per_gb_hour:.2g}",
            "" if row.price_per_session_hour == inf else f"{row.price_per_session_hour:.2g}",
        )
        for row in report.rows
    ]
    return Table("SESSIONS that a tier holds, a replica", head, rows)


def _resume_table(report: TiersReport) -> Table:
    rows = [
        (
            row.name,
            span(row.resume_s),
            row.choice or "",
            _rate(row.bytes_per_s),
            _rate(row.needed_bytes_per_s),
            _reuse(row),
        )
        for row in report.rows
        if row.name != HBM
    ]
    head = ("tier", "seconds", "sooner", "GB/s", "needs", "critical reuse")
    return Table("BACK ON THE GPUs over links of so many GB/s, and from how many on that wins", head, rows)


def _rate(rate: Interval | None) -> str:
    return "" if rate is None else f"{rate.value / 1e9:,.2f}"


def _reuse(row: TierRow) -> str:
    return "" if row.critical_reuse is None else f"{row.critical_reuse:,.0f}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{int(value):,}"


def span(time: Interval) -> str:
    """Seconds with their ends, for a table's cell."""
    return f"{_digits(time.value)} ({_digits(time.low)}-{_digits(time.high)})"


def _hold_table(report: TiersReport) -> Table:
    rows = []
    for row in report.rows:
        name = "computing again" if row.name == HBM else row.name
        rows += [(name, CLASSES[kind], *_held(hold)) for kind, hold in row.hold.items()]
    head = ("a miss costs", "pause for", "hold s", "hits", "gains s", "held to the end s")
    return Table("HOLD on the GPUs before letting go, where sessions compete for the pool", head, rows)


def _held(hold: Ttl) -> tuple[str, ...]:
    time = "no end" if hold.seconds == inf else f"{hold.seconds:,.0f}"
    return time, f"{hold.hit:.0%}", f"{hold.gain_s:.2f}", f"{hold.gain_of_holding_s:.2f}"


def _break_even_table(report: TiersReport) -> Table:
    rows = [
        (
            format_tokens(one.context_tokens),
            span(one.prefill_s),
            f"{one.one_copy_bytes_per_s.value / 1e9:.2f}",
            f"{one.rank_bytes_per_s.value / 1e9:.2f}",
        )
        for one in report.break_evens
    ]
    head = ("context", "prefill s", "one copy GB/s", "each rank's link GB/s")
    return Table("RELOADING WINS from this bandwidth on", head, rows)


def seconds(time: Interval) -> str:
    """A time with its ends, in the unit that its value asks for: `7.4 s (6.2-9.1)`, `12 min (10-15)`."""
    scale, unit = next((size, name) for size, name in ((3600, "h"), (60, "min"), (0, "s")) if time.value >= 10 * size)
    value, low, high = (_digits(part / (scale or 1)) for part in (time.value, time.low, time.high))
    return f"{value} {unit}" if low == high else f"{value} {unit} ({low}-{high})"


def _digits(value: float) -> str:
    """Two significant digits, and never a power of ten."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
