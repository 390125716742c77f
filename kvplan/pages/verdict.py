"""Page 1: whether it fits, the main figures of each model, and what they rest on."""

from dataclasses import asdict
from typing import Any

from matplotlib.figure import Figure

from kvplan.cases import Case
from kvplan.document import Assumption, Times
from kvplan.pages import _axes as draw
from kvplan.pages import _style as style
from kvplan.pages._base import Numbers, Page
from kvplan.pages._column import Column
from kvplan.pages._frame import put
from kvplan.pages._subject import Subject, deployed
from kvplan.pages._text import clean, shorten
from kvplan.show import unknown
from kvplan.times import ranged
from kvplan.units import format_gib, format_tokens

_SAID = {"yes": "fits", "no": "does not fit", "close": "too close to call"}
_COLORS = {"yes": style.GREEN, "no": style.VERMILION, "close": style.ORANGE}
_INDENT_PT = 58.0
_MEANS = (
    "Sequences at once that stay safe while all of them decode; in brackets what the range of the pool makes of it. "
    "Binds: what runs out first. Saving: below the same model with its own attention in every layer, at the longest "
    "length."
)


class Verdict(Page[Subject]):
    name = "verdict"
    title = "Does it fit, and on what does the answer rest?"
    order = 10

    def sheets(self, subject: Subject) -> list[Numbers]:
        rows = [_figures(case) for case in subject.cases]
        sources = [case.model.source.origin for case in subject.cases]
        sources += [case.now.engine.source for case in subject.cases]
        sources += [case.gpu.source.memory.title for case in subject.cases if case.gpu]
        return [
            {
                "subtitle": subject.subtitle,
                "models": rows,
                "refused": [{"model": one.label, "reason": one.reason} for one in subject.refused],
                "assumptions": _shared(subject),
                "notes": [_MEANS],
                "sources": [clean(source) for source in sources],
            }
        ]

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        column, rows = Column(figure), numbers["models"]
        if len(rows) == 1:
            _headline(column, rows[0])
        _verdicts(column, rows)
        if len(rows) == 1:
            _gains(column, rows[0])
            for label in ("engine", "times", "unknown", "run"):
                if rows[0][label]:
                    column.labelled(label, clean(rows[0][label]), _INDENT_PT)
        for one in numbers["refused"]:
            column.labelled("not read", f"{clean(one['model'])}: {clean(one['reason'])}", _INDENT_PT)
        for one in numbers.get("left_out", []):
            column.labelled("left out", f"{one['title']}: {one['reason']}", _INDENT_PT)
        column.space(8)
        _assumptions(column, numbers["assumptions"], [row["model"] for row in rows])


def _figures(case: Case) -> dict[str, Any]:
    made, layout = case.plan, case.plan.per_rank.layout if case.plan.per_rank else {}
    last = made.per_sequence[-1]
    return {
        "model": case.label,
        "deployed": deployed(case),
        "fits": made.verdict.fits if made.verdict else None,
        "reason": made.verdict.reason if made.verdict else "",
        "replicas": layout.get("replicas", 1),
        "capacity": [
            {"context_tokens": row.context_tokens, "sequences": row.sequences, "low": row.low, "high": row.high,
             "ideal": row.ideal, "binds": row.binds}
            for row in made.capacity
        ],
        "bytes_per_token": last.bytes_per_token,
        "state_bytes": last.state_bytes + last.conv_bytes,
        "window_bytes": last.window_bytes,
        "saving": last.saving,
        "saving_at_tokens": last.context_tokens,
        "baseline": last.baseline.name if last.baseline else None,
        "break_even_tokens": made.crossings.break_even_tokens,
        "weights_bytes_per_gpu": made.per_rank.weights_bytes if made.per_rank else None,
        "pool_bytes": made.pool.bytes if made.pool else None,
        "pool_low_bytes": made.pool.low_bytes if made.pool else None,
        "pool_high_bytes": made.pool.high_bytes if made.pool else None,
        "engine": (made.engine or {}).get("summary") or None,
        "tries": [
            {"flags": one.flags, "sequences": {str(row.context_tokens): row.sequences for row in one.sequences}}
            for one in (made.verdict.try_ if made.verdict else ())
        ],
        "times": _times(made.latency),
        "unknown": unknown(made),
        "run": made.run,
    }  # fmt: skip


def _times(part: Times | None) -> str | None:
    """A step with the most sequences of the last length, and its first token, in words."""
    if part is None or not part.decode:
        return None
    step, first, at = part.decode[-1], part.first_token[-1], format_tokens(part.decode[-1].context_tokens)
    return (
        f"{ranged(step.tpot_ms)} ms a token with {step.sequences:,} at {at}, {ranged(first.cold_s)} s to the first "
        f"token of a cold session of {at}; {part.says}"
    )


def _shared(subject: Subject) -> list[dict[str, Any]]:
    """Each assumption once with the models that rest on it, none where all do; what nobody gave comes first."""
    found: dict[Assumption, list[str]] = {}
    for case in subject.cases:
        report = subject.sessions.get(case.label)
        for one in (*case.plan.assumptions, *(report.assumptions if report else ())):
            labels = found.setdefault(one, [])
            labels += [case.label] if case.label not in labels else []
    kinds = ("assumed", "measured", "derived", "given")
    return [
        asdict(one) | {"models": labels if len(labels) < len(subject.cases) else []}
        for one, labels in sorted(found.items(), key=lambda item: kinds.index(item[0].kind))
    ]


def _value(one: dict[str, Any]) -> str:
    value = one["value"]
    if type(value) is int:
        is_size = one["name"].endswith("_bytes") or one["name"] == "weights"
        return format_gib(value) if is_size else f"{value:,}"
    return "none" if value is None else clean(str(value))


def _headline(column: Column, row: dict[str, Any]) -> None:
    """The answer in one line."""
    counts = ", ".join(f"{fit['sequences']:,} at {format_tokens(fit['context_tokens'])}" for fit in row["capacity"][:4])
    said = _SAID[row["fits"]].capitalize()
    why = f": {row['reason']}" if row["fits"] != "yes" else f": {counts} at once on one replica"
    column.space(4)
    text = shorten(f"{said}{why}", column.room_pt, 12.5, bold=True)
    put(column.figure, column.x_pt, column.y_pt, text, 12.5, bold=True, color=draw.dark(_COLORS[row["fits"]]))
    column.space(22)


def _verdicts(column: Column, rows: list[dict[str, Any]]) -> None:
    lengths = sorted({fit["context_tokens"] for row in rows for fit in row["capacity"]})
    shown = lengths if len(lengths) <= 3 else [lengths[0], lengths[-1]]
    head = [
        "model", "verdict", *(f"at {format_tokens(tokens)}" for tokens in shown), "binds", "B per token, whole model",
        "state, whole model", "saving", "weights, one GPU", "pool (range), one GPU",
    ]  # fmt: skip
    column.heading("Sequences at once on one replica, safe (range of the pool)")
    cells = [_cells(row, shown) for row in rows]
    if len(rows) > 1:
        head, cells = ["", *head], [[f"{place}", *row] for place, row in enumerate(cells, 1)]
    column.table(head, cells, size=style.BODY_PT if len(rows) < 3 else style.SMALL_PT)
    column.space(6)


def _gains(column: Column, row: dict[str, Any]) -> None:
    """Flags that hold more, each with those above it."""
    if not row["tries"]:
        return
    lengths = [str(fit["context_tokens"]) for fit in row["capacity"]]
    shown = lengths if len(lengths) <= 6 else [*lengths[:3], *lengths[-3:]]
    column.heading("With other flags")
    head = ["flags in place of those above, or beside them", *(f"at {format_tokens(int(tokens))}" for tokens in shown)]
    rows = [[one["flags"], *(f"{one['sequences'][tokens]:,}" for tokens in shown)] for one in row["tries"]]
    column.table(head, rows, size=style.BODY_PT, numeric=len(shown))
    column.space(6)


def _cells(row: dict[str, Any], shown: list[int]) -> list[str]:
    fits = {fit["context_tokens"]: fit for fit in row["capacity"]}
    counts = [_count(fits[tokens]) if tokens in fits else "beyond" for tokens in shown]
    at = format_tokens(row["saving_at_tokens"])
    saving = "" if row["saving"] is None else f"{row['saving']:.1%} of {row['baseline']} at {at}"
    spread = "" if row["pool_low_bytes"] == row["pool_high_bytes"] else f" ({_range(row)})"
    return [
        clean(row["model"]), _SAID.get(row["fits"], ""), *counts,
        " / ".join(dict.fromkeys(fit["binds"] for fit in row["capacity"])), f"{row['bytes_per_token']:,}",
        format_gib(row["state_bytes"]) if row["state_bytes"] else "none", saving,
        format_gib(row["weights_bytes_per_gpu"]) if row["weights_bytes_per_gpu"] else "",
        f"{format_gib(row['pool_bytes'])}{spread}",
    ]  # fmt: skip


def _range(row: dict[str, Any]) -> str:
    low, high = format_gib(row["pool_low_bytes"]), format_gib(row["pool_high_bytes"])
    unit = f" {high.split()[-1]}"
    return f"{low.removesuffix(unit)} - {high.removesuffix(unit)}" if low.endswith(unit) else f"{low} - {high}"


def _count(fit: dict[str, Any]) -> str:
    spread = "" if fit["low"] == fit["high"] else f" ({fit['low']:,}-{fit['high']:,})"
    return f"{fit['sequences']:,}{spread}"


def _assumptions(column: Column, rows: list[dict[str, Any]], models: list[str]) -> None:
    """What is known alike in one row; several models are told apart by their numbers."""
    column.heading("What the figures rest on")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in rows:
        groups.setdefault((one["name"], one["kind"]), []).append(one)
    cells = [[name, _values(group, models), kind, _sources(group)] for (name, kind), group in groups.items()]
    shown = column.table(["name", "value", "kind", "source"], cells, size=6.8)
    if shown < len(cells):
        kinds = ", ".join(dict.fromkeys(row[2] for row in cells[shown:]))
        column.lines(f"… and {len(cells) - shown} more ({kinds}), all in the JSON", style.FOOT_PT, color=style.MUTED)


def _values(group: list[dict[str, Any]], models: list[str]) -> str:
    """Values with the numbers of their models; without where one value holds for all."""
    said = []
    for one in group:
        places = ", ".join(str(models.index(model) + 1) for model in one["models"])
        said.append(f"{_value(one)}{f' ({places})' if places else ''}")
    return "; ".join(said)


def _sources(group: list[dict[str, Any]]) -> str:
    found = list(dict.fromkeys(clean(one["source"]) for one in group))
    return "; ".join(found) if len(found) <= 2 else f"{found[0]}; and {len(found) - 1} like it, in the JSON"


PAGE = Verdict()
