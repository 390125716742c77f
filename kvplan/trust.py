"""`kvplan calibrations check` on a screen and as a document."""

from typing import Any

from kvplan import __version__
from kvplan.latency.check import (
    GOAL_MEDIAN,
    GOAL_P90,
    Errors,
    PublicPoint,
    errors,
    held_out,
    public_points,
)
from kvplan.tables import Table, print_json, print_text
from kvplan.times import short


def show_check(name: str, against: str | None, *, as_json: bool) -> bool:
    """Print the errors; True where KDA and MLA meet both goals and public points hold or say why they do not."""
    what, guesses = held_out(name, against)
    rows, points = errors(guesses), public_points(name)
    met = rows[-1].median <= GOAL_MEDIAN and rows[-1].p90 <= GOAL_P90
    holds = met and all(point.holds or point.note for point in points)
    if as_json:
        print_json(_document(name, what, rows, points, holds))
        return holds
    firsts, steps = ([point for point in points if bool(point.sequences) is step] for step in (False, True))
    tables = [_points_table("PUBLISHED, s to the first token", firsts, 1.0)]
    tables += [_points_table("PUBLISHED, ms a token", steps, 1e3)] if steps else []
    print_text(_lines(name, what, rows[-1], points, met), [_errors_table(rows), *tables])
    return holds


def _lines(name: str, what: str, goal: Errors, points: list[PublicPoint], met: bool) -> list[str]:
    inside = sum(point.holds for point in points)
    return [
        f"{name} predicts {what}: {goal.samples} of {goal.kernel}, median error {goal.median:.1%}, "
        f"90th percentile {goal.p90:.1%}.",
        f"{'Within' if met else 'Beyond'} the goals of {GOAL_MEDIAN:.0%} and {GOAL_P90:.0%}. "
        f"{inside} of {len(points)} published times lie in their intervals.",
        *(
            f"MISSED     {point.model} on {point.gpu}, {point.what}: {point.note}"
            for point in points
            if _explained(point)
        ),
    ]


def _explained(point: PublicPoint) -> bool:
    return bool(point.note) and not point.holds


def _errors_table(rows: list[Errors]) -> Table:
    cells = [
        (row.kernel, str(row.samples), f"{row.median:.1%}", f"{row.p90:.1%}", f"{row.covered:.0%}",
         f"{row.worst:+.1%}", row.worst_shape)
        for row in rows
    ]  # fmt: skip
    return Table("LEFT OUT AND PREDICTED", ("kernel", "n", "median", "p90", "in range", "worst", "at"), cells)


def _points_table(title: str, points: list[PublicPoint], scale: float) -> Table:
    cells = [
        (f"{point.model} on {point.gpu}", _published(point, scale), _predicted(point, scale),
         "yes" if point.holds else "NO", f"{point.what} ({point.source})")
        for point in points
    ]  # fmt: skip
    return Table(title, ("where", "theirs", "predicted", "in", "what"), cells)


def _published(point: PublicPoint, scale: float) -> str:
    low, high = short(point.low_s * scale), short(point.high_s * scale)
    return low if low == high else f"{low}-{high}"


def _predicted(point: PublicPoint, scale: float) -> str:
    low, high = short(point.predicted_s.low * scale), short(point.predicted_s.high * scale)
    if point.basis == "bounds":
        return f"{low} to {high}"
    return f"{short(point.predicted_s.value * scale)} ({low}-{high})"


def _document(name: str, what: str, rows: list[Errors], points: list[PublicPoint], holds: bool) -> dict[str, Any]:
    return {
        "schema": "kvplan.calibration_check/1",
        "kvplan_version": __version__,
        "inputs": {"calibration": name, "left_out": what},
        "assumptions": [],
        "goals": {"median": GOAL_MEDIAN, "p90": GOAL_P90},
        "holds": holds,
        "errors": [
            {
                "kernel": row.kernel, "samples": row.samples, "median": row.median, "p90": row.p90,
                "worst": row.worst, "worst_shape": row.worst_shape, "covered": row.covered,
            }
            for row in rows
        ],
        "published": [
            {
                "model": point.model, "gpu": point.gpu, "what": point.what, "source": point.source,
                "address": point.address, "note": point.note, "sequences": point.sequences,
                "low_s": point.low_s, "high_s": point.high_s, "basis": point.basis, "holds": point.holds,
                "predicted_s": {
                    "value": None if point.basis == "bounds" else point.predicted_s.value,
                    "low": point.predicted_s.low, "high": point.predicted_s.high, "how": point.predicted_s.how,
                },
            }
            for point in points
        ],
    }  # fmt: skip
