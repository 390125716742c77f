"""What a log says: figures with the rounding they were printed with, and the flags they rest on."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

Unit = Literal["GiB", "MiB", "bytes", "tokens", "blocks", "slots", "requests", "layers", "cells", "x", "%"]
BYTES = {"GiB": 1 << 30, "MiB": 1 << 20, "bytes": 1}
MAX_FIGURES = 4096


@dataclass(frozen=True, slots=True)
class Printed:
    """One figure as it stands in the log."""

    what: str
    text: str
    unit: Unit
    line: int
    who: str = ""
    decimals: int | None = None
    """Places that the engine rounds to, where it drops trailing zeros in print."""

    @property
    def value(self) -> Fraction:
        return Fraction(self.text.replace(",", ""))

    @property
    def half(self) -> Fraction:
        """Half of the last place: the true value lies within value ± half. 0 for whole numbers."""
        shown = len(self.text.partition(".")[2])
        places = max(shown, self.decimals or 0)
        return Fraction(1, 2 * 10**places) if places else Fraction(0)

    @property
    def low_bytes(self) -> int:
        """The least whole number of bytes that prints like this."""
        return max(0, -(-(self.value - self.half) * BYTES[self.unit] // 1))

    @property
    def high_bytes(self) -> int:
        return int((self.value + self.half) * BYTES[self.unit] // 1)

    @property
    def bytes(self) -> int:
        return int(self.value * BYTES[self.unit])

    def holds(self, value: Fraction | int) -> bool:
        """Whether a true value would be printed like this."""
        return abs(Fraction(value) - self.value) <= self.half


@dataclass(slots=True)
class Facts:
    """Everything one engine printed during its last boot."""

    engine: str
    version: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    """The engine's flags, with dashes, as the log states them."""
    told: set[str] = field(default_factory=set)
    """Names that the lines of arguments and of the resolved config hold, those that stand at None too; empty where
    the log has neither line."""
    figures: list[Printed] = field(default_factory=list)
    gpu: str | None = None
    prefix: str = ""
    """Put before the names of figures while another model than the target is being loaded."""
    boots: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, what: str, text: str, unit: Unit, line: int, who: str = "", decimals: int | None = None) -> None:
        if len(self.figures) < MAX_FIGURES and len(text) <= 24:
            self.figures.append(Printed(self.prefix + what, text, unit, line, who, decimals))

    def fill(self, flag: str, value: Any) -> None:
        """A flag that a later line resolves, where the user left it open."""
        if self.values.get(flag) in (None, "auto"):
            self.values[flag] = value

    def start(self) -> None:
        """A new boot begins; only its figures count. Several ranks announce the same boot."""
        self.prefix = ""
        if self.figures:
            self.figures.clear()
            self.values.clear()
            self.told.clear()
            self.boots += 1
        self.boots = max(1, self.boots)

    def all(self, what: str) -> list[Printed]:
        return [figure for figure in self.figures if figure.what == what]

    def last(self, what: str) -> Printed | None:
        """The last figure of that name by the rank that speaks first (others are peers of it)."""
        found = self.all(what)
        return next((figure for figure in reversed(found) if figure.who == found[0].who), None)

    def latest(self, what: str) -> list[Printed]:
        """Each rank's last word."""
        return list({figure.who: figure for figure in self.all(what)}.values())

    def smallest(self, what: str) -> Printed | None:
        """The least over the ranks: engines size every rank by the one with least room."""
        return min(self.latest(what), key=lambda figure: figure.value, default=None)

    def disagree(self, what: str) -> bool:
        """Whether one rank printed different values under this name."""
        first: dict[str, str] = {}
        return any(first.setdefault(figure.who, figure.text) != figure.text for figure in self.all(what))
