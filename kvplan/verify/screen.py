"""The report as a document or on a terminal."""

from kvplan.tables import Table, print_json, print_text
from kvplan.verify.report import Report, Row

_VERDICTS = ("exact", "within", "differs", "not-modelled")


def show_report(report: Report, *, as_json: bool) -> None:
    """Print it on stdout."""
    if as_json:
        print_json(report.to_dict())
        return
    print_text([*_head(report), *_warnings(report)], _tables(report))


def _head(report: Report) -> list[str]:
    counts = {name: sum(row.verdict == name for row in report.lines) for name in _VERDICTS}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    version = report.engine_version or "of an unknown version"
    rules = f", rules of {report.rules_version}" if report.rules_version not in (None, report.engine_version) else ""
    flags = " ".join(
        f"--{name.replace('_', '-')} {value}"
        for name, value in report.inputs.items()
        if name not in ("model", "engine_version")
    )
    return [
        f"{report.engine} {version}{rules}: {report.model}",
        f"{_headline(counts)}. {told or 'no figure'}.",
        f"READ       {flags or 'no flags'}",
    ]


def _headline(counts: dict[str, int]) -> str:
    if counts["differs"]:
        return "DIFFERS"
    return "HOLDS" if counts["exact"] or counts["within"] else "NOTHING COMPARED"


def _warnings(report: Report) -> list[str]:
    notes = [f"NOTE       {assumption.value}" for assumption in report.assumptions]
    return notes + [f"WARNING    {text}" for text in report.warnings]


def _tables(report: Report) -> list[Table]:
    figures = Table("FIGURES, as printed and recomputed", ("what", "printed", "computed", "unit", "verdict", "note"), [
        _cells(row) for row in report.lines
    ])  # fmt: skip
    steps = Table("ARITHMETIC", ("",), [(step,) for step in report.arithmetic])
    return [figures, *([steps] if report.arithmetic else [])]


def _cells(row: Row) -> tuple[str, ...]:
    shown = [_shown(value, row.places) for value in (row.printed, row.computed)]
    return (row.what, *shown, row.unit, row.verdict, row.note)


def _shown(value: int | float | None, places: int) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{places or 3}f}"
