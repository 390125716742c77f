"""The plain law behind a kernel's times: t0 + bytes / bandwidth + FLOPs / peak + serial steps × their time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from kvplan.latency.kernels import Work


@dataclass(frozen=True, slots=True)
class Law:
    """Seconds per call, byte, FLOP and serial step; none is negative."""

    t0: float
    per_byte: float
    per_flop: float
    per_step: float

    def seconds(self, work: Work) -> float:
        return self.t0 + self.per_byte * work.bytes + self.per_flop * work.flops + self.per_step * work.serial

    def shares(self, work: Work) -> tuple[float, float, float]:
        """Parts of the time that go with bandwidth, with arithmetic, and with neither."""
        whole = self.seconds(work)
        moved, computed = self.per_byte * work.bytes / whole, self.per_flop * work.flops / whole
        return moved, computed, 1 - moved - computed


_RATES_FIRST = (2, 1, 3, 0)
"""Where one sample fits every term alike, its arithmetic explains it, else its bytes; never a constant."""


def fit_law(points: Sequence[tuple[Work, float]], t0: float = 0.0) -> Law:
    """Least squares of the relative error with no negative term: of all choices of terms, the best that holds.

    `t0` seconds are taken off beforehand, for samples too alike to tell a constant from a rate.
    """
    rows = [((1.0, work.bytes, work.flops, work.serial), max(seconds - t0, seconds / 2)) for work, seconds in points]
    scales = [max(row[0][term] for row in rows) or 1.0 for term in range(4)]
    best: tuple[float, tuple[float, ...]] | None = None
    for count in range(1, 5):
        for chosen in combinations(_RATES_FIRST, count):
            found = _solve(rows, scales, chosen)
            if found is not None and (best is None or found[0] < best[0] * (1 - 1e-9)):
                best = found
    if best is None:
        raise ValueError("no sample to fit")
    return Law(best[1][0] + t0, *best[1][1:])


def _solve(
    rows: Sequence[tuple[tuple[float, ...], float]], scales: Sequence[float], chosen: tuple[int, ...]
) -> tuple[float, tuple[float, ...]] | None:
    """(sum of squared relative errors, terms) with the chosen terms alone; None where they are not determined."""
    scaled = [[row[term] / scales[term] / seconds for term in chosen] for row, seconds in rows]
    matrix = [[sum(row[a] * row[b] for row in scaled) for b in range(len(chosen))] for a in range(len(chosen))]
    solution = _gauss(matrix, [sum(row[a] for row in scaled) for a in range(len(chosen))])
    if solution is None or min(solution) < 0:
        return None
    missed = sum((_dot(row, solution) - 1) ** 2 for row in scaled)
    terms = [0.0] * 4
    for term, value in zip(chosen, solution, strict=True):
        terms[term] = value / scales[term]
    return missed, tuple(terms)


def _dot(one: Iterable[float], other: Iterable[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _gauss(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Solve by elimination with pivots; None for a matrix that is singular to working precision."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    largest = max(abs(cell) for row in matrix for cell in row)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        if abs(rows[pivot][column]) <= 1e-10 * largest:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for row in range(size):
            if row != column:
                factor = rows[row][column] / rows[column][column]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column], strict=True)]
    return [rows[row][size] / rows[row][row] for row in range(size)]
