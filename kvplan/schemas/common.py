"""What shapes share: the head of every document, and pieces that several of them have."""

from dataclasses import dataclass
from typing import Any, Literal

from kvplan.document import Assumption
from kvplan.schemas.build import Fields, OneOf, Shape

Number = int | float

ENGINE: dict[str, Shape] = {"name": str, "rules_version": str}


@dataclass(frozen=True, slots=True)
class Document:
    """One kind of document: what prints it, and its shape beside the head that all share."""

    printed_by: str
    shape: dict[str, Shape] | Fields | OneOf
    whole: bool = False
    """True where the shape has the head itself."""


def head(name: str) -> dict[str, Shape]:
    """What every document begins with."""
    return {
        "schema": Literal[name], "kvplan_version": str, "inputs": dict[str, Any], "assumptions": [Assumption],
    }  # fmt: skip
