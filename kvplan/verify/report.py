"""The outcome as a document, schema `kvplan.verify/1`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from kvplan import __version__
from kvplan.document import Assumption
from kvplan.errors import NO, YES
from kvplan.logs.figures import Printed

Outcome = Literal["exact", "within", "differs", "not-modelled"]


Number = int | float


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: as printed, as computed. `places` is how many decimals the log shows."""

    what: str
    printed: Number
    computed: Number | None
    unit: str
    verdict: Outcome
    note: str = ""
    line: int = 0
    places: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a log was found to say."""

    engine: str
    engine_version: str | None
    rules_version: str | None
    model: str
    inputs: dict[str, Any]
    lines: tuple[Row, ...]
    arithmetic: tuple[str, ...]
    """The block arithmetic, step by step."""
    warnings: tuple[str, ...]
    """Figures that mislead, and flags that touch memory unmodelled."""
    assumptions: tuple[Assumption, ...]

    @property
    def exit_code(self) -> int:
        return NO if any(row.verdict == "differs" for row in self.lines) else YES

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        for row in fields["lines"]:
            del row["places"]
        return {"schema": "kvplan.verify/1", "kvplan_version": __version__} | fields


def compare(printed: Printed, computed: Fraction | int | float, note: str = "") -> Row:
    """Exact where the computed value would be printed like this."""
    value = Fraction(computed)
    return _row(printed, value, "exact" if printed.holds(value) else "differs", note)


def estimate(printed: Printed, computed: Fraction, low: Fraction, high: Fraction, note: str) -> Row:
    """A predicted figure: within where its own range holds what was printed."""
    inside = low - printed.half <= printed.value <= high + printed.half
    verdict: Outcome = "exact" if printed.holds(computed) else "within" if inside else "differs"
    off = f" ({float((computed - printed.value) / printed.value):+.1%})" if printed.value else ""
    return _row(printed, computed, verdict, note + off)


def unmodelled(printed: Printed, why: str) -> Row:
    return _row(printed, None, "not-modelled", why)


def _row(printed: Printed, computed: Fraction | None, verdict: Outcome, note: str) -> Row:
    places = max(len(printed.text.partition(".")[2]), printed.decimals or 0)
    return Row(
        printed.what, _number(printed.value, places), None if computed is None else _number(computed, places),
        printed.unit, verdict, note, printed.line, places,
    )  # fmt: skip


def _number(value: Fraction, places: int) -> Number:
    """A whole number where the log prints one, else to the log's places."""
    if places:
        return round(float(value), places)
    return int(value) if value.denominator == 1 else round(float(value), 3)


def spread(values: Sequence[Printed]) -> str:
    """`41.9 to 42.3` over the ranks."""
    ordered = sorted(values, key=lambda figure: figure.value)
    return ordered[0].text if ordered[0].text == ordered[-1].text else f"{ordered[0].text} to {ordered[-1].text}"
