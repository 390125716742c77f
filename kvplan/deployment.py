"""How a model is spread over GPUs, and what the user said about serving it."""

from dataclasses import dataclass

from kvplan.errors import PlacementError


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks of one replica and how they share work. tp × pp ranks hold one copy of the attention weights.

    dp replicas of the attention share routed experts when ep > tp; dcp reuses the tp ranks and adds none.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "dcp", "ep"):
            value = getattr(self, name)
            if not 1 <= value <= 65536:
                raise PlacementError(f"--{name} {value} is out of range 1 to 65536")
        if self.tp % self.dcp:
            raise PlacementError(f"--dcp {self.dcp} does not divide --tp {self.tp}; dcp reuses the ranks of tp")
        if self.tp % self.ep and self.tp * self.dp % self.ep:
            raise PlacementError(f"--ep {self.ep} divides neither --tp {self.tp} nor tp × dp {self.tp * self.dp}")

    @property
    def ranks(self) -> int:
        """GPUs in use over all replicas."""
        return self.tp * self.pp * self.dp

    @property
    def expert_shares(self) -> int:
        """How many ways the routed experts of one pipeline stage are split."""
        return max(self.tp, self.ep)
