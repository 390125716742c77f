"""What `kvplan estimate` says on a screen. Reads documents; computes nothing that is not in them."""

import dataclasses
from typing import Any

from kvplan.document import Assumption, Capacity, Plan, PoolPart, Sequence, Verdict
from kvplan.errors import NO, TOO_CLOSE, YES, UsageError
from kvplan.profiles import paths
from kvplan.tables import WIDTH, Table, print_csv, print_json, print_markdown, print_text
from kvplan.times import term_tables, time_lines, time_tables
from kvplan.units import format_gb, format_gib, format_short, format_tokens

_EXIT = {"yes": YES, "no": NO, "close": TOO_CLOSE}
_VERDICT = {"yes": "FITS", "no": "DOES NOT FIT", "close": "TOO CLOSE TO CALL"}

MOST_COLUMNS = 4
"""Contexts beside each other in one table."""


def exit_code(plan: Plan) -> int:
    return _EXIT[plan.verdict.fits] if plan.verdict else YES


def output_form(*, json: bool, csv: bool, markdown: bool, explain: bool) -> str:
    """The one output format that the flags name; "text" without any. Raises UsageError where they name several."""
    asked = [name for name, given in (("json", json), ("csv", csv), ("markdown", markdown)) if given]
    if len(asked) > 1:
        raise UsageError(f"--{asked[0]} and --{asked[1]} are two output formats; give one")
    if csv and explain:
        raise UsageError("--explain has no rows of its own in --csv; use --json, which holds every line")
    return asked[0] if asked else "text"


def show_plan(plan: Plan, form: str, *, explain: bool) -> None:
    """Print the plan as text, json, csv or markdown."""
    if form == "json":
        print_json(plan.to_dict())
    elif form == "csv":
        print_csv(_csv_rows(plan))
    else:
        lines = _head(plan) + _facts(plan)
        tables = _tables(plan) + (_explained(plan) if explain else [])
        (print_markdown if form == "markdown" else print_text)(lines, tables)


def _head(plan: Plan) -> list[str]:
    contexts = _some(
        [f"{format_tokens(row.context_tokens)} = {row.context_tokens:,}" for row in plan.per_sequence], "  "
    )
    layers = " + ".join(f"{count} {kind}" for kind, count in plan.model.layers.items())
    if plan.verdict is None or plan.per_rank is None:
        return [f"{plan.model.name}: {layers}    {contexts}"]
    layout = plan.per_rank.layout
    gpus = f"{layout['gpus']}x {(plan.inputs['gpu'] or 'gpu').upper()}"
    spread = " ".join(f"{name}{layout[name]}" for name in ("tp", "pp", "dcp", "ep") if name == "tp" or layout[name] > 1)
    replicas = f"{layout['replicas']} replica{'s' if layout['replicas'] > 1 else ''}"
    first = f"{plan.model.name} on {gpus}, {spread}, {replicas}, {plan.inputs['engine']}    {contexts}"
    counts = _some([f"{row.sequences:,} at {format_tokens(row.context_tokens)}" for row in plan.capacity], ", ")
    said = _VERDICT[plan.verdict.fits]
    if plan.verdict.fits != "yes":
        said += f": {plan.verdict.reason}"
    return [first, f"{said}. As typed: {counts}.{_gained(plan.verdict)}"]


def _some(items: list[str], between: str) -> str:
    """All of a few, else the first and the last."""
    return between.join(items) if len(items) <= MOST_COLUMNS else f"{items[0]} … {items[-1]}"


def _gained(verdict: Verdict) -> str:
    """What the last suggestion comes to: further flags on the same GPUs, or other GPUs."""
    if not verdict.try_:
        return ""
    best = verdict.try_[-1]
    words, flags = best.flags.split(), best.flags.count("--")
    how = f"With {flags} more flag{'s' if flags > 1 else ''}"
    if "--gpu" in words:
        nodes = words[words.index("--nodes") + 1] if "--nodes" in words else "1"
        name, _, count = words[words.index("--gpu") + 1].partition(":")
        how = f"On {f'{nodes} nodes of ' if nodes != '1' else ''}{count}x {name.upper()}"
    counts = [f"{row.sequences:,}" for row in best.sequences]
    return f" {how}: {' and '.join(counts) if len(counts) < 3 else _some(counts, ', ')}."


def _facts(plan: Plan) -> list[str]:
    last = plan.per_sequence[-1]
    lines = [f"PER GPU    {_pool_line(plan.pool)}"] if plan.pool else []
    if plan.engine is not None and plan.engine["summary"] and plan.pool and plan.pool.bytes:
        lines.append(f"ENGINE     {plan.engine['name']} {plan.engine['rules_version']}: {plan.engine['summary']}")
    lines.append(f"BYTES      {_rate(last)}")
    if plan.per_rank is not None:
        lines.append(f"PER RANK   {_rate(plan.per_rank.sequences[-1])}")
    lines += _crossing_lines(plan) + time_lines(plan)
    if plan.model.weights_bytes:
        lines.append(
            f"WEIGHTS    {format_gib(plan.model.weights_bytes)} ({format_gb(plan.model.weights_bytes)}), "
            f"{plan.model.weights_kind}"
        )
    assumed = [_assumed(item) for item in plan.assumptions if item.kind == "assumed"]
    if assumed:
        lines.append(f"ASSUMED    {'; '.join(assumed)}")
    if plan.verdict is not None:
        lines.append(f"UNKNOWN    {unknown(plan)}")
    if plan.run is not None:
        lines.append(f"RUN        {plan.run}")
    return lines


def unknown(plan: Plan) -> str:
    """What these figures cannot say."""
    tried = " ".join(attempt.flags for attempt in plan.verdict.try_) if plan.verdict else ""
    narrow = sorted({name for name in ("fp8", "nvfp4", "int8") if name in f"{tried} {plan.inputs['kv_cache_dtype']}"})
    quality = [f"quality with an {name} cache" for name in narrow]
    if "--mamba-ssm-dtype" in tried:
        quality.append("quality with a narrower state")
    kept = [] if any(row.snapshot_bytes for row in plan.per_sequence) else ["snapshots kept for prefix reuse"]
    return "; ".join([*_speed(plan), *quality, *(kept if plan.per_sequence[-1].state_bytes else [])])


def _speed(plan: Plan) -> list[str]:
    """Speed is unknown without a calibration, and where there are bounds alone."""
    if plan.latency is not None:
        return ["speed beyond the bounds below"] if plan.latency.basis == "bounds" else []
    name = plan.inputs["gpu"]
    return [f"speed (--calibration {name} tells it)" if name in paths("calibration") else "speed"]


def _assumed(item: Assumption) -> str:
    """Name and value in short; a default of the config carries its own name in its value."""
    if item.name == "config_default":
        return str(item.value)
    if type(item.value) is int:
        short = item.name.removesuffix("_bytes")
        return f"{short} {format_gib(item.value) if short != item.name else f'{item.value:,}'}"
    return f"{item.name} {item.value}"


def _pool_line(pool: PoolPart) -> str:
    parts, total = pool.breakdown, pool.breakdown.total_bytes
    if pool.source != "predicted" or total is None:
        return f"pool {format_gib(pool.bytes)}, {pool.source}"
    weights = parts.weights_bytes or 0
    other = sum(size or 0 for size in (parts.activation_bytes, parts.graphs_bytes, parts.other_bytes))
    if pool.bytes == 0:
        return f"{format_gib(total)}; weights {format_gib(weights)} + other {format_gib(other)} leave no pool"
    unused = total - weights - other - pool.bytes
    spread = (
        f" ({format_gib(pool.low_bytes)} - {format_gib(pool.high_bytes)})" if pool.low_bytes < pool.high_bytes else ""
    )
    return (
        f"{format_gib(total)} = weights {format_gib(weights)} + other {format_gib(other)} "
        f"+ pool {format_gib(pool.bytes)}{spread} + unused {format_gib(unused)}"
    )


def _rate(row: Sequence) -> str:
    fixed = row.state_bytes + row.conv_bytes
    parts = [f"{row.bytes_per_token:,} B per token at {format_tokens(row.context_tokens)}"]
    parts += [f"{fixed:,} B of state per sequence"] if fixed else []
    parts += [f"{row.window_bytes:,} B of windows"] if row.window_bytes else []
    return " + ".join(parts)


def _crossing_lines(plan: Plan) -> list[str]:
    lines, crossings = [], plan.crossings
    baseline = plan.per_sequence[-1].baseline
    if baseline is not None:
        savings = ", ".join(
            f"{abs(row.saving):.1%} {'below' if row.saving >= 0 else 'ABOVE'} at {format_tokens(row.context_tokens)}"
            for row in plan.per_sequence
            if row.saving is not None
        )
        turn = crossings.break_even_tokens
        even = f"stores less from {turn:,} tokens on" if turn else "never stores less"
        if crossings.break_even_tokens_per_rank and crossings.break_even_tokens_per_rank != turn:
            even += f" (from {crossings.break_even_tokens_per_rank:,} on one rank)"
        lines.append(f"BASELINE   {baseline.name}: {savings}; {even}")
    if crossings.snapshot_equals_kv_tokens:
        lines.append(
            f"SNAPSHOT   one copy of the state outweighs the sequence's own cache up to "
            f"{crossings.snapshot_equals_kv_tokens:,} tokens"
        )
    return lines


def _tables(plan: Plan) -> list[Table]:
    tables = _capacity_tables(plan, 0, len(plan.capacity)) if plan.capacity else []
    tables += time_tables(plan)
    tables.append(_bytes_table("BYTES OF ONE SEQUENCE, whole model", plan.per_sequence))
    if plan.per_rank is not None and max(plan.per_rank.layout[axis] for axis in ("tp", "pp", "dcp")) > 1:
        tables.append(_bytes_table("BYTES OF ONE SEQUENCE, one rank", plan.per_rank.sequences))
    return tables


def _capacity_tables(plan: Plan, first: int, last: int) -> list[Table]:
    """One table, or several under each other where the contexts are too many for 80 columns."""
    table = _capacity_table(plan, slice(first, last))
    if last - first == 1 or (last - first <= MOST_COLUMNS and table.width <= WIDTH):
        return [table]
    middle = first + min(MOST_COLUMNS, (last - first + 1) // 2)
    return [*_capacity_tables(plan, first, middle), *_capacity_tables(plan, middle, last)]


def _capacity_table(plan: Plan, part: slice) -> Table:
    """Counts at some of the contexts, under the flags as typed and under each suggestion."""
    shown = plan.capacity[part]
    contexts = [format_tokens(row.context_tokens) for row in shown]
    binds = " / ".join(dict.fromkeys(row.binds for row in shown))
    rows = [("as typed", *(_ranged(row) for row in shown), binds)]
    if any(row.deployment_sequences != row.sequences for row in shown):
        rows.append(("all replicas", *(f"{row.deployment_sequences:,}" for row in shown), ""))
    if plan.inputs["engine"] != "ideal":
        rows.append(("bytes alone (ideal)", *(f"{row.ideal:,}" for row in shown), ""))
    before = ""
    for attempt in plan.verdict.try_ if plan.verdict else ():
        added = attempt.flags.startswith(before) and "--gpu " not in attempt.flags
        label = f"+ {attempt.flags.removeprefix(before).strip()}" if added else f"instead {attempt.flags}"
        rows.append((label, *(f"{row.sequences:,}" for row in attempt.sequences[part]), ""))
        before = attempt.flags
    ranged = " (range)" if any(row.low != row.high for row in shown) else ""
    return Table("", (f"AT ONCE per replica, safe{ranged}", *contexts, "binds"), rows)


def _ranged(row: Capacity) -> str:
    """Sequences, and what the ends of the pool's range would hold where that differs."""
    spread = "" if row.low == row.high else f" ({row.low:,}-{row.high:,})"
    return f"{row.sequences:,}{spread}"


def _bytes_table(title: str, rows: list[Sequence]) -> Table:
    """Exact bytes and their parts; the short total and the baseline make room where there are many parts."""
    sizes = [_columns(row) for row in rows]
    cells = {"context": [format_tokens(row.context_tokens) for row in rows]}
    cells |= {
        name: [format_short(size[name]) for size in sizes] for name in sizes[0] if any(size[name] for size in sizes)
    }
    cells["total"] = [format_short(row.total_bytes) for row in rows]
    cells["exact bytes"] = [f"{row.total_bytes:,}" for row in rows]
    if any(row.baseline for row in rows):
        cells["baseline"] = [format_short(row.baseline.total_bytes) if row.baseline else "" for row in rows]
        cells["saving"] = [f"{row.saving:.1%}" if row.saving is not None else "" for row in rows]
    for spare in ("total", "baseline"):
        if sum(2 + max(map(len, (name, *column))) for name, column in cells.items()) - 2 > WIDTH:
            cells.pop(spare, None)
    return Table(title, tuple(cells), list(zip(*cells.values(), strict=True)))


def _columns(row: Sequence) -> dict[str, int]:
    """The columns of the screen; the convolution tail belongs to the state there, and apart in JSON."""
    return {
        "kv": row.kv_bytes,
        "window": row.window_bytes,
        "state": row.state_bytes + row.conv_bytes,
        "index": row.index_bytes,
        "saved": row.snapshot_bytes,
    }


def _explained(plan: Plan) -> list[Table]:
    """Every line of the ledger, and what the figures rest on."""
    cache = [
        (format_tokens(line.context_tokens), line.owner, line.name, f"{line.bytes:,}", line.formula)
        for line in plan.ledger
        if line.context_tokens
    ]
    weights = [
        (line.owner, line.name, f"{line.bytes:,}", line.formula) for line in plan.ledger if not line.context_tokens
    ]
    notes = [(item.name, str(item.value), item.kind, item.source) for item in plan.assumptions]
    tables = [
        Table("LEDGER of one sequence", ("context", "owner", "tensor", "bytes", "= arithmetic"), cache),
        Table("LEDGER of the weights", ("owner", "format", "bytes", "= arithmetic"), weights),
        *term_tables(plan),
        Table("RESTS ON", ("name", "value", "kind", "source"), notes),
    ]
    return [table for table in tables if table.rows]


def _csv_rows(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    for index, row in enumerate(plan.per_sequence):
        flat = {key: value for key, value in dataclasses.asdict(row).items() if key != "baseline"}
        flat |= {
            "baseline_name": row.baseline.name if row.baseline else "",
            "baseline_bytes": row.baseline.total_bytes if row.baseline else "",
        }
        if plan.capacity:
            fit = plan.capacity[index]
            flat |= {key: value for key, value in dataclasses.asdict(fit).items() if key != "context_tokens"}
        rows.append({"model": plan.model.name} | flat)
    return rows
