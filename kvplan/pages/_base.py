"""The contract of a page: a module of this package with a `PAGE`, found by being there."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Literal, TypeVar

from matplotlib.figure import Figure

from kvplan.registry import import_all

Book = Literal["deployment", "claims", "frontier"]
Numbers = dict[str, Any]
"""What one sheet shows, as JSON takes it. `draw` sees nothing else, so no plotted number is missing from the JSON."""

SubjectT = TypeVar("SubjectT")


class LeftOut(Exception):
    """The page would be empty; the message says why and what would fill it."""


class Page(ABC, Generic[SubjectT]):
    """One page of a report. Pages come in the order of `order`; beyond eight sheets the last ones are left out."""

    name: ClassVar[str]
    title: ClassVar[str]
    order: ClassVar[int]
    book: ClassVar[Book] = "deployment"
    """Which report it belongs to."""

    @abstractmethod
    def sheets(self, subject: SubjectT) -> list[Numbers]:
        """The numbers of each sheet, mostly one. Raises LeftOut.

        Keys that every sheet may have: `subtitle`, `notes` (lines above the footer), `sources`.
        """

    @abstractmethod
    def draw(self, figure: Figure, numbers: Numbers) -> None:
        """Draw one sheet between title and footer."""


def pages_of(book: Book) -> list[Page[Any]]:
    """The pages of a book, in order."""
    found = [module.PAGE for module in import_all("kvplan.pages") if hasattr(module, "PAGE")]
    return sorted((page for page in found if page.book == book), key=lambda page: page.order)
