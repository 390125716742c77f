"""One line of the ledger: so many bytes, why, and on whose word."""

from dataclasses import dataclass
from typing import Literal

Scope = Literal["weights", "sequence", "snapshot", "reserve"]
Kind = Literal["exact", "derived", "given", "engine rule", "measured", "simulated", "assumed", "published"]


@dataclass(frozen=True, slots=True)
class Line:
    """Bytes of one owner. Every table, page and document is a group-by of these."""

    owner: str
    """What holds them: `69 × kda`, `routed experts`."""
    name: str
    """The tensor or part: `recurrent`, `latent`, `gate_proj`."""
    scope: Scope
    role: str
    """The column it counts in: kv, window, state, conv, index, snapshot, or a weight's role."""
    bytes: int
    formula: str
    """The arithmetic with numbers put in."""
    source: str = ""
    kind: Kind = "exact"
