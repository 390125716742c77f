"""What one sequence keeps, in integer bytes: layers in, lines and columns out. Knows no GPU and no engine."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm, prod

from kvplan.dtypes import Dtypes
from kvplan.layers.base import Layer, Stored
from kvplan.line import Line
from kvplan.units import ceil_div

COLUMNS = ("kv", "window", "state", "conv", "index")


def column(tensor: Stored) -> str:
    """The column of the plan that a tensor counts in."""
    return "window" if tensor.role == "kv" and tensor.window is not None else tensor.role


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one sequence at one length, by column. `slope` is what one more token adds, snapshots aside."""

    context_tokens: int
    kv: int
    window: int
    state: int
    conv: int
    index: int
    snapshot: int
    slope: Fraction

    @property
    def total(self) -> int:
        return self.kv + self.window + self.state + self.conv + self.index + self.snapshot


class Holding:
    """The tensors that one sequence keeps in a set of layers, equal ones counted once.

    `dcp` ranks share out what grows; the fullest rank is counted.
    """

    def __init__(self, mixers: Iterable[Layer], dtypes: Dtypes, dcp: int = 1) -> None:
        self.dcp = dcp
        self.layers = Counter(mixers)
        self.tensors: Counter[Stored] = Counter()
        self.owned: list[tuple[str, int, Stored]] = []
        for layer, count in self.layers.items():
            for tensor in layer.stored(dtypes):
                self.tensors[tensor] += count
                self.owned.append((layer.kind, count, tensor))

    def bytes(self, tokens: int) -> int:
        """Bytes after `tokens` tokens, snapshots aside."""
        return sum(count * tensor.bytes(tokens, self.dcp) for tensor, count in self.tensors.items())

    def snapshot_bytes(self) -> int:
        """One saved copy of everything that is fixed per sequence and cannot be rebuilt from the cache."""
        return sum(
            count * tensor.entry_bytes for tensor, count in self.tensors.items() if tensor.role in ("state", "conv")
        )

    def growth(self) -> Fraction:
        """Bytes that each further token adds once every window is full."""
        return sum(
            (count * tensor.slope(1 << 62, self.dcp) for tensor, count in self.tensors.items()), start=Fraction(0)
        )

    def footprint(self, tokens: int, snapshots: int = 0) -> Footprint:
        columns = dict.fromkeys(COLUMNS, 0)
        for tensor, count in self.tensors.items():
            columns[column(tensor)] += count * tensor.bytes(tokens, self.dcp)
        slope = sum(
            (count * tensor.slope(tokens, self.dcp) for tensor, count in self.tensors.items()), start=Fraction(0)
        )
        return Footprint(tokens, **columns, snapshot=snapshots * self.snapshot_bytes(), slope=slope)

    def lines(self, tokens: int, snapshots: int = 0) -> list[Line]:
        """One line per kind and tensor, with the arithmetic written out."""
        lines = [
            Line(
                f"{count} × {kind}",
                tensor.name,
                "sequence",
                column(tensor),
                count * tensor.bytes(tokens, self.dcp),
                _formula(tensor, count, tokens, self.dcp),
            )
            for kind, count, tensor in self.owned
        ]
        if snapshots:
            one = self.snapshot_bytes()
            lines.append(
                Line("snapshots", "state", "snapshot", "snapshot", snapshots * one, f"{snapshots:,} × {one:,} B")
            )
        return lines

    def breaks(self) -> set[int]:
        """Lengths at which a window fills."""
        return {tensor.window for tensor in self.tensors if tensor.window is not None}

    def period(self) -> int:
        """Tokens after which growth repeats."""
        return lcm(*(tensor.tokens_per_entry * self.dcp for tensor in self.tensors if tensor.grows))


def _formula(tensor: Stored, count: int, tokens: int, dcp: int) -> str:
    shape = " × ".join(f"{size:,}" for size in tensor.shape)
    element = f"{tensor.bits // 8} B" if tensor.bits % 8 == 0 else f"{tensor.bits} bit"
    if tensor.per == "sequence":
        return f"{count} × {shape} × {element}"
    held = f"{tensor.entries(tokens, dcp):,}"
    if tensor.window is not None:
        held = f"min({tokens:,}, {tensor.window:,})"
    elif dcp > 1:
        held = f"⌈{tokens:,} / {dcp}⌉"
    if tensor.tokens_per_entry > 1:
        held = f"⌊{held if dcp > 1 else f'{tokens:,}'} / {tensor.tokens_per_entry}⌋"
    packed = "" if prod(tensor.shape) * tensor.bits % 8 == 0 else " (rounded up to bytes per entry)"
    return f"{count} × {held} × {shape} × {element}{packed}"


def break_even_tokens(hybrid: Holding, baseline: Holding) -> int | None:
    """The smallest context at which `hybrid` stores no more than `baseline`; None if there is none.

    Exact: between two window fills both sides repeat a fixed step per period, so each residue is solved on its own.
    """
    period = lcm(hybrid.period(), baseline.period())
    starts = [1, *sorted(hybrid.breaks() | baseline.breaks())]
    for start, stop in zip(starts, [*starts[1:], None], strict=True):
        reached = [_reach(hybrid, baseline, first, period) for first in range(start, start + period)]
        within = [tokens for tokens in reached if tokens is not None and (stop is None or tokens < stop)]
        if within:
            return min(within)
    return None


def _reach(hybrid: Holding, baseline: Holding, first: int, period: int) -> int | None:
    """The first of `first`, `first` + period, … at which the hybrid stores no more, if growth stays as it is there."""
    short = hybrid.bytes(first) - baseline.bytes(first)
    if short <= 0:
        return first
    gain = int(period * (baseline.footprint(first).slope - hybrid.footprint(first).slope))
    return first + ceil_div(short, gain) * period if gain > 0 else None
