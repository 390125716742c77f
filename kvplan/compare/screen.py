"""A comparison as tables: a column for each model or GPU, or a row where that is too wide."""

from collections.abc import Callable
from typing import Any

from kvplan.compare.figures import Comparison, figures_of
from kvplan.document import Ends
from kvplan.tables import WIDTH, Table, print_csv, print_json, print_markdown, print_text
from kvplan.times import ranged
from kvplan.units import format_gib, format_short, format_tokens

MOST_COLUMNS = 6
"""Beyond so many, and where 80 columns are too few, the columns become rows."""
_TIMES = ("tpot_ms", "ttft_s")
_SILENT = ("", "refused", "beyond")


def show_comparison(found: Comparison, form: str) -> None:
    """Print it as text, json, csv or markdown."""
    if form == "json":
        print_json(found.document())
    elif form == "csv":
        print_csv(_csv_rows(found))
    else:
        lines = [f"{len(found.labels)} side by side    {_lengths(found)}"]
        lines += [f"REFUSED    {one.label}: {one.reason}" for one in found.refused]
        (print_markdown if form == "markdown" else print_text)(lines, _tables(found))


def _lengths(found: Comparison) -> str:
    return "  ".join(f"{format_tokens(tokens)} = {tokens:,}" for tokens in found.contexts)


Row = tuple[str, Callable[[dict[str, Any]], str]]


def _tables(found: Comparison) -> list[Table]:
    """One table with a column for each, or with a row for each where that is too wide."""
    columns = {one["label"]: one for one in map(figures_of, found.cases)}
    rows = [(name, [say(columns[label]) if label in columns else "refused" for label in found.labels])
            for name, say in _rows(found.contexts, list(columns.values()))]  # fmt: skip
    rows = [row for row in rows if any(cell not in _SILENT for cell in row[1])]
    upright = Table("", ("", *found.labels), [(name, *cells) for name, cells in rows])
    if len(found.labels) <= MOST_COLUMNS and upright.width <= WIDTH:
        return [upright]
    return _turned(found.labels, rows)


def _turned(labels: tuple[str, ...], rows: list[tuple[str, list[str]]]) -> list[Table]:
    """A row for each label; as many tables under each other as 80 columns ask for."""
    tables: list[Table] = []
    part: list[tuple[str, list[str]]] = []
    for row in rows:
        if part and _lying(labels, [*part, row]).width > WIDTH:
            tables.append(_lying(labels, part))
            part = []
        part.append(row)
    return [*tables, _lying(labels, part)] if part else tables


def _lying(labels: tuple[str, ...], rows: list[tuple[str, list[str]]]) -> Table:
    cells = [(label, *(values[place] for _, values in rows)) for place, label in enumerate(labels)]
    return Table("", ("", *(name for name, _ in rows)), cells)


def _rows(contexts: list[int], columns: list[dict[str, Any]]) -> list[Row]:
    """Name and text of each line; empty where it does not apply."""
    same_gpu = len({str(one["gpu"]) for one in columns}) == 1
    lines: list[Row] = [
        ("layers", lambda one: " + ".join(f"{count} {kind}" for kind, count in one["layers"].items())),
        ("parameters", lambda one: f"{one['params_total'] / 1e9:,.1f} B" if one["params_total"] else ""),
        ("GPUs", lambda one: "" if same_gpu or not one["layout"] else f"{one['layout']['gpus']}x {one['gpu']}"),
        ("engine", lambda one: f"{one['engine']['name']} {one['engine']['rules_version']}" if one["engine"] else ""),
        ("cache dtype", lambda one: one["kv_cache_dtype"]),
        ("state dtype", lambda one: one["mamba_ssm_dtype"] or ""),
        ("bytes per token", lambda one: f"{one['bytes_per_token']:,}"),
        ("state", lambda one: format_gib(one["state_bytes"]) if one["state_bytes"] else "none"),
        ("windows", lambda one: format_gib(one["window_bytes"]) if one["window_bytes"] else ""),
        ("baseline", lambda one: one["baseline"] or ""),
        ("less from, tokens", lambda one: f"{one['break_even_tokens']:,}" if one["break_even_tokens"] else ""),
        ("weights", lambda one: format_gib(one["weights_bytes"]) if one["weights_bytes"] else ""),
        ("weights, one GPU", lambda one: _size(one["weights_bytes_per_gpu"])),
        ("pool, one GPU", lambda one: _size(one["pool_bytes"])),
    ]
    for tokens in contexts:
        at = format_tokens(tokens)
        lines += [
            (f"bytes at {at}", _at(tokens, lambda row: format_short(row["total_bytes"]))),
            (f"saving at {at}", _at(tokens, lambda row: "" if row["saving"] is None else f"{row['saving']:.1%}")),
            (f"fit at {at}", _at(tokens, _ranged)),
            (f"all replicas at {at}", _at(tokens, _everywhere)),
            (f"binds at {at}", _at(tokens, lambda row: row["binds"] or "")),
            (f"ms a token at {at}", _at(tokens, lambda row: _timed(row["tpot_ms"]))),
            (f"s to first at {at}", _at(tokens, lambda row: _timed(row["ttft_s"]))),
        ]
    return lines


def _at(tokens: int, say: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], str]:
    """What a column says at one length; `beyond` where the model does not reach it, nothing where it was not asked."""

    def cell(one: dict[str, Any]) -> str:
        row = next((row for row in one["contexts"] if row["context_tokens"] == tokens), None)
        if row is not None:
            return say(row)
        most = one["max_context_tokens"]
        return "beyond" if most is not None and tokens > most else ""

    return cell


def _size(size_bytes: int | None) -> str:
    return "" if size_bytes is None else format_gib(size_bytes)


def _ranged(row: dict[str, Any]) -> str:
    if row["sequences"] is None:
        return ""
    return f"{row['sequences']:,}" + ("" if row["low"] == row["high"] else f" ({row['low']:,}-{row['high']:,})")


def _timed(ends: dict[str, Any] | None) -> str:
    return ranged(Ends(**ends)) if ends else ""


def _everywhere(row: dict[str, Any]) -> str:
    if row["sequences"] is None or row["deployment_sequences"] == row["sequences"]:
        return ""
    return f"{row['deployment_sequences']:,}"


def _csv_rows(found: Comparison) -> list[dict[str, Any]]:
    """One row for each column and length; a refused one has its reason alone."""
    rows = []
    for case in found.cases:
        whole = figures_of(case)
        layout, lengths = whole.pop("layout") or {}, whole.pop("contexts")
        engine = whole.pop("engine") or {}
        whole["layers"] = " + ".join(f"{count} {kind}" for kind, count in whole["layers"].items())
        head = whole | {"gpus": layout.get("gpus"), "engine": engine.get("name")}
        rows += [head | _flat(row) | {"refused": None} for row in lengths]
    blank = dict.fromkeys(rows[0])
    return rows + [blank | {"label": one.label, "refused": one.reason} for one in found.refused]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """The ends of a time as columns of their own."""
    flat = {key: value for key, value in row.items() if key not in _TIMES}
    for name in _TIMES:
        flat |= {f"{name}_{end}": row[name][end] if row[name] else None for end in ("value", "low", "high")}
    return flat
