"""From a claim's bases to its verdict. A printed figure is reproduced when the computed one rounds to it."""

from dataclasses import asdict, dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

from kvplan.claims.quantities import QUANTITIES, Asked, NeedsMeasurement, Quantity
from kvplan.claims.schema import UNITS, Basis, Claim, Figure, Outcome, Printed, Sort
from kvplan.errors import KvplanError, ProfileError
from kvplan.interval import Interval

_Ends = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Computed:
    """One figure with everything it came from. `value` is None where `needs` says what has to be measured."""

    quantity: str
    model: str
    flags: dict[str, Any]
    arguments: dict[str, Any]
    sort: Sort
    value: Fraction | None
    needs: str
    times: Fraction
    complement: bool
    over: "Computed | None"
    inputs: dict[str, Any]
    """The plan's inputs, resolved; empty where no plan was made."""
    arithmetic: list[dict[str, Any]]
    """The plan's lines at this length, with the formulas."""
    ends: _Ends | None = None
    """Low and high, where the figure is an interval."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "quantity": self.quantity, "model": self.model, "flags": self.flags, "arguments": self.arguments,
            "times": _number(self.times), "complement": self.complement,
            "over": self.over.to_dict() if self.over else None,
            "sort": self.sort, "value": _number(self.value), "needs": self.needs or None,
            "low": _number(self.ends[0]) if self.ends else None, "high": _number(self.ends[1]) if self.ends else None,
            "inputs": self.inputs, "arithmetic": self.arithmetic,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """A printed number beside the computed one, in the printed unit and precision."""

    name: str
    printed: str
    relation: str
    unit: str
    computed: str | None
    gap: str | None
    """How far off: points for percentages, per cent of the printed figure otherwise."""
    deviation: float | None
    agrees: bool


@dataclass(frozen=True, slots=True)
class BasisResult:
    name: str
    figures: dict[str, Computed]
    comparisons: tuple[Comparison, ...]

    @property
    def agrees(self) -> bool:
        return all(one.agrees for one in self.comparisons)

    @property
    def settled(self) -> bool:
        """Nothing that is still to be measured could change whether the basis agrees."""
        return any(one.computed is not None and not one.agrees for one in self.comparisons)

    @property
    def ranged(self) -> bool:
        """Some printed figure is compared with an interval."""
        return any(self.figures[one.name].ends is not None for one in self.comparisons)

    @property
    def worst(self) -> Comparison:
        return max(self.comparisons, key=lambda one: abs(one.deviation or 0) if not one.agrees else -1.0)


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim, everything computed for it, and the verdict that follows."""

    name: str
    claim: Claim
    verdict: Outcome
    basis: str | None
    detail: str
    bases: tuple[BasisResult, ...]

    @property
    def as_expected(self) -> bool:
        expected = self.claim.expected
        return self.verdict == expected.verdict and expected.basis in (None, self.basis)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "claim": self.claim.claim,
            "source": self.claim.source.model_dump(),
            "printed": [one.model_dump() for one in self.claim.printed],
            "verdict": self.verdict,
            "basis": self.basis,
            "detail": self.detail,
            "expected": self.claim.expected.model_dump(),
            "as_expected": self.as_expected,
            "remark": self.claim.remark,
            "bases": [
                {
                    "name": result.name,
                    "agrees": result.agrees if result.comparisons else None,
                    "comparisons": [asdict(one) for one in result.comparisons],
                    "figures": {name: figure.to_dict() for name, figure in result.figures.items()},
                }
                for result in self.bases
            ],
        }


def judge(name: str, claim: Claim) -> Judged:
    """Compute every basis and say how the claim stands. Raises ProfileError where the file asks for the impossible."""
    bases = tuple(_basis(name, claim, basis) for basis in claim.basis)
    if claim.out_of_scope is not None:
        return Judged(name, claim, "out of scope", None, claim.out_of_scope, bases)
    for number, result in enumerate(bases):
        if result.agrees:
            plain: Outcome = "reproduced in range" if result.ranged else "reproduced exactly"
            outcome: Outcome = "reproduced on another basis" if number else plain
            return Judged(name, claim, outcome, result.name, result.name, bases)
    settled = [result for result in bases if result.settled]
    if len(settled) < len(bases):
        return Judged(name, claim, "needs measurement", None, _needs(bases), bases)
    nearest = min(settled, key=lambda result: abs(result.worst.deviation or 0))
    worst = nearest.worst
    ranged = nearest.figures[worst.name].ends is not None
    said = f"{worst.name} {worst.computed}, {worst.gap}" if ranged else worst.gap
    detail = f"{said} at the nearest: {nearest.name}"
    return Judged(name, claim, "not reproduced", nearest.name, detail, bases)


def _needs(bases: tuple[BasisResult, ...]) -> str:
    found = [figure.needs for result in bases for figure in result.figures.values() if figure.needs]
    return "; ".join(dict.fromkeys(found))


def _basis(name: str, claim: Claim, basis: Basis) -> BasisResult:
    try:
        specs = claim.all_figures(basis)
        figures = {key: _compute(spec) for key, spec in specs.items()}
        compared = tuple(_compare(one, figures[one.name], specs[one.name].unit or one.unit) for one in claim.printed)
    except KvplanError as error:
        raise ProfileError(f"claim {name}, basis {basis.name!r}: {error}") from None
    return BasisResult(basis.name, figures, compared)


def _compute(spec: Figure) -> Computed:
    quantity = QUANTITIES.get(spec.quantity or "")
    if quantity is None:
        near = ", ".join(get_close_matches(spec.quantity or "", QUANTITIES, n=3)) or "total_bytes, saving, sequences, …"
        raise ProfileError(f"quantity {spec.quantity!r} is not known; for example {near}")
    asked = Asked(spec.model or "", spec.flags, spec.arguments)
    over = None if spec.over is None else _compute(spec.over.under(_ground(spec)))
    value, ends, needs = None, None, ""
    try:
        value, ends = _evaluate(quantity, asked, spec, over)
    except NeedsMeasurement as error:
        needs = str(error)
    else:
        if unused := set(spec.arguments) - asked.used:
            raise ProfileError(f"{spec.quantity} takes no argument {', '.join(sorted(unused))}")
    plan = asked.made
    lines = [] if plan is None else [line for line in plan.ledger if line.context_tokens is not None]
    return Computed(
        quantity=spec.quantity or "",
        model=asked.name,
        flags=dict(spec.flags),
        arguments=dict(spec.arguments),
        sort="share" if over is not None else quantity.sort,
        value=value,
        needs=needs,
        times=Fraction(spec.times),
        complement=spec.complement,
        over=over,
        inputs=dict(plan.inputs) if plan else {},
        arithmetic=[
            {"owner": line.owner, "name": line.name, "bytes": line.bytes, "formula": line.formula} for line in lines
        ],
        ends=ends,
    )


def _evaluate(
    quantity: Quantity, asked: Asked, spec: Figure, over: Computed | None
) -> tuple[Fraction | None, _Ends | None]:
    """A figure and, where it rests on measured times, its ends. Raises NeedsMeasurement."""
    found, times, ends = quantity.compute(asked), Fraction(spec.times), None
    if isinstance(found, Interval):
        ends, found = (Fraction(found.low) * times, Fraction(found.high) * times), Fraction(found.value)
    value: Fraction | None = Fraction(found) * times
    if over is not None:
        if over.value == 0:
            raise ProfileError(f"{spec.quantity} is over nothing: {over.quantity} is 0")
        value, ends = _over(Fraction(found) * times, ends, over)
    if spec.complement and value is not None:
        value, ends = 1 - value, ends and (1 - ends[1], 1 - ends[0])
    return value, ends


def _over(value: Fraction, ends: _Ends | None, over: Computed) -> tuple[Fraction | None, _Ends | None]:
    """A fraction and its ends; the figure below the bar may be an interval as well."""
    if over.value is None:
        return None, None
    if ends is None and over.ends is None:
        return value / over.value, None
    low, high = ends or (value, value)
    least, most = over.ends or (over.value, over.value)
    return value / over.value, (low / most, high / least)


def _ground(spec: Figure) -> Figure:
    """What the figure below a fraction bar takes over from the one above it: model and flags."""
    given: dict[str, Any] = {"model": spec.model, "flags": spec.flags}
    return Figure.model_construct(set(given), **given)


def _compare(printed: Printed, figure: Computed, unit: str) -> Comparison:
    sort, scale = UNITS[unit]
    if sort != figure.sort:
        raise ProfileError(f"{printed.name} is printed in {unit!r}, and {figure.quantity} gives {figure.sort}")
    if figure.value is None:
        return Comparison(printed.name, printed.value, printed.relation, unit, None, None, None, False)
    value, target = figure.value / Fraction(scale), Fraction(printed.value.replace(",", ""))
    places = len(printed.value.partition(".")[2])
    difference = value - target
    half = Fraction(1, 2 * 10**places)
    low, high = (end / Fraction(scale) for end in figure.ends) if figure.ends else (value, value)
    agrees = {"equal": low - half <= target <= high + half, "at least": high >= target, "at most": low <= target}
    return Comparison(
        name=printed.name,
        printed=printed.value,
        relation=printed.relation,
        unit=unit,
        computed=_spelled(value, (low, high) if figure.ends else None, places),
        gap=_gap(value, target, unit),
        deviation=float(difference / target) if target else float(difference),
        agrees=agrees[printed.relation],
    )


def _spelled(value: Fraction, ends: tuple[Fraction, Fraction] | None, places: int) -> str:
    if ends is None:
        return f"{float(value):,.{places}f}"
    digits = max(places, 1)
    return f"{float(value):,.{digits}f} ({float(ends[0]):,.{digits}f}-{float(ends[1]):,.{digits}f})"


def _gap(value: Fraction, target: Fraction, unit: str) -> str:
    if unit == "%":
        return f"{float(value - target):+.1f} points"
    return f"{float(value / target - 1) * 100:+.2f} %" if target else f"{float(value):+,.2f}"


def _number(value: Fraction | None) -> int | float | None:
    if value is None:
        return None
    return int(value) if value.denominator == 1 else float(value)
