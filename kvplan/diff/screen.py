"""What `kvplan diff` prints: the verdict, the rules at work, then tables of what differs."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from kvplan.diff.compare import Change, Diff, Value
from kvplan.tables import Table, print_csv, print_json, print_markdown, print_text
from kvplan.units import format_tokens


def show_diff(found: Diff, form: str) -> None:
    """Print the comparison as text, json, csv or markdown."""
    if form == "json":
        print_json(found.to_dict())
    elif form == "csv":
        print_csv(_csv_rows(found))
    else:
        (print_markdown if form == "markdown" else print_text)(_head(found), _tables(found))


def _head(found: Diff) -> list[str]:
    lines = [f"{found.before} → {found.after}", _verdict(found)]
    for rule in found.rules:
        if rule.change is not None:
            figures = ", ".join(rule.moved)
            lines.append(f"RULE       {figures}: {rule.change} ({rule.engine} {', '.join(rule.releases)})")
    others = [f"{rule.rule} ({', '.join(rule.releases)})" for rule in found.rules if rule.change is None]
    if others:
        lines.append(f"ALSO       changed between the releases, unseen in these figures: {'; '.join(others)}")
    return lines


def _verdict(found: Diff) -> str:
    limit = "" if found.limit is None else f" (limit {_percent(found.limit)})"
    if not any(None not in (row.before, row.after) for row in found.capacity):
        return "NOT COMPARED: no context has a capacity in both plans."
    worst = found.worst
    if worst is None:
        return f"NOTHING LOST{limit}."
    word = "DROPS TOO MUCH" if found.too_much else "DROPS"
    lost = f"{_number(worst.before)} to {_number(worst.after)} sequences, {_percent(worst.share)}"
    return f"{word}: {lost} at {format_tokens(worst.context_tokens or 0)}{limit}."


def _tables(found: Diff) -> list[Table]:
    tables = [_capacity(found)] if found.capacity else []
    for title, rows in (
        ("INPUTS that differ", found.inputs),
        ("ENGINE FIGURES that differ", found.engine),
        ("BYTES that differ", found.sizes),
        ("POOL, where it differs", found.pool),
    ):
        shown = [row for row in rows if not _is_list(row.before) and not _is_list(row.after)]
        if shown:
            cells = [(_name(row), _number(row.before), _number(row.after), _percent(row.share)) for row in shown]
            tables.append(Table(title, ("figure", "before", "after", "change"), cells))
    return tables


def _capacity(found: Diff) -> Table:
    """Sequences of a replica; of the deployment beside them where it has several."""
    several = [(row.before, row.after) for row in found.deployment] != [
        (row.before, row.after) for row in found.capacity
    ]
    rows = []
    for row, total in zip(found.capacity, found.deployment, strict=True):
        cells = [format_tokens(row.context_tokens or 0), _number(row.before), _number(row.after), _percent(row.share)]
        cells += [_number(total.before), _number(total.after), _percent(total.share)] if several else []
        binds = dict.fromkeys(name for name in found.binds[row.context_tokens or 0] if name)
        rows.append((*cells, " → ".join(binds)))
    columns = ("context", "before", "after", "change", *(("all before", "all after", "change") if several else ()))
    return Table("SEQUENCES AT ONCE", (*columns, "binds"), rows)


def _name(row: Change) -> str:
    name = _short(row.name, 40)
    return name if row.context_tokens is None else f"{name} at {format_tokens(row.context_tokens)}"


def _number(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4f}" if isinstance(value, float) else _short(value)


def _is_list(value: Value) -> bool:
    """A list or object, kept as JSON text: in --json and --csv, too long for a table."""
    return isinstance(value, str) and value.startswith(("[", "{"))


def _short(text: str, most: int = 16) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _percent(share: Fraction | None) -> str:
    return "" if share is None else f"{float(share):.1%}"


def _csv_rows(found: Diff) -> list[dict[str, Any]]:
    parts: Sequence[tuple[str, list[Change]]] = (
        ("capacity", found.capacity),
        ("deployment", found.deployment),
        ("inputs", found.inputs),
        ("engine", found.engine),
        ("bytes", found.sizes),
        ("pool", found.pool),
    )
    rows = [{"part": part} | row.to_dict() for part, changes in parts for row in changes]
    blank: dict[str, Any] = {"name": "", "before": "", "after": "", "context_tokens": "", "change": ""}
    return rows or [{"part": "capacity"} | blank]
