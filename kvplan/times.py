"""A plan's times on a screen, as ranges: a time is never shown as a point."""

from kvplan.document import Ends, FirstToken, Plan, StepTime, TermTime, Times
from kvplan.tables import Table
from kvplan.units import format_tokens


def ranged(ends: Ends | None, scale: float = 1.0) -> str:
    """`12.3 (10.1-15.0)`; bounds have no middle; nothing for nothing."""
    if ends is None:
        return ""
    low, high = short(ends.low * scale), short(ends.high * scale)
    return f"{low} to {high}" if ends.value is None else f"{short(ends.value * scale)} ({low}-{high})"


def short(value: float) -> str:
    """Three digits of a number, whole from a hundred on."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def time_lines(plan: Plan) -> list[str]:
    """Where the times come from, and where one cost passes another."""
    part = plan.latency
    if part is None:
        return []
    if not part.decode:
        return ["TIME       none: not one sequence can be held"]
    crossings = part.crossings
    lines = [f"TIME       calibration {part.calibration}: {part.says}"]
    if crossings.reads_equal_state_tokens:
        rank = crossings.reads_equal_state_tokens_per_rank
        own = f" ({rank:,} on one rank)" if rank not in (None, crossings.reads_equal_state_tokens) else ""
        whole = f"{crossings.reads_equal_state_tokens:,}"
        lines.append(f"CROSSING   a step reads more cache than it moves state from {whole} tokens on{own}")
    at, rate = format_tokens(crossings.reload_context_tokens), ranged(crossings.reload_bytes_per_s, 1e-9)
    return [*lines, f"RELOAD     beats replay at {at} from {rate} GB/s on"]


def time_tables(plan: Plan) -> list[Table]:
    """A decode step by length and batch, and the time to the first token."""
    return (
        []
        if plan.latency is None or not plan.latency.decode
        else [_steps(plan.latency), _firsts(plan.latency.first_token)]
    )


def _steps(part: Times) -> Table:
    columns = ("context", "at once", "ms", "tokens/s each", "tokens/s per GPU")
    return Table("TIME PER OUTPUT TOKEN", columns, [_step(row) for row in part.decode])


def _step(row: StepTime) -> tuple[str, ...]:
    rates = ranged(row.tokens_per_s_each), ranged(row.tokens_per_s_per_gpu)
    return format_tokens(row.context_tokens), f"{row.sequences:,}", ranged(row.tpot_ms), *rates


def _firsts(rows: list[FirstToken]) -> Table:
    cells = [
        (format_tokens(row.context_tokens), ranged(row.cold_s), ranged(row.resumed_s), ranged(row.reloaded_s))
        for row in rows
    ]
    title = f"TIME TO FIRST TOKEN, s; resumed with {rows[-1].new_tokens:,} new"
    return Table(title, ("context", "cold", "resumed", "reloaded"), cells)


def term_tables(plan: Plan) -> list[Table]:
    """Every term of the last row's step and of a cold prefill, at the longest length that can be held."""
    if plan.latency is None or not plan.latency.decode:
        return []
    columns = ("term", "kernels", "GB", "TFLOP", "ms", "from")
    return [
        Table("TERMS of a decode step", columns, [_term(row) for row in plan.latency.decode_terms]),
        Table("TERMS of a cold prefill", columns, [_term(row) for row in plan.latency.prefill_terms]),
    ]


def _term(row: TermTime) -> tuple[str, ...]:
    moved, computed = short(row.bytes / 1e9), short(row.flops / 1e12)
    return row.name, f"{row.calls:,}", moved, computed, ranged(row.seconds, 1e3), row.source
