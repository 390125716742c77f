"""What a KDA layer is given, as the precision study and the engines' own kernels take it."""

from typing import NamedTuple

import torch


class Inputs(NamedTuple):
    """q, k, v, g [n,H,128] and b [n,H] bf16; A_log [H], dt_bias [H,128] fp32; n sequences (decode) or tokens."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    g: torch.Tensor
    b: torch.Tensor
    A_log: torch.Tensor
    dt_bias: torch.Tensor

    def packed(self) -> torch.Tensor:
        """q, k and v of a token side by side [n, 3 H 128]."""
        return torch.cat([x.flatten(1) for x in (self.q, self.k, self.v)], dim=1)

    def tokens(self, begin: int, end: int) -> "Inputs":
        return Inputs(*(x[begin:end] for x in self[:5]), self.A_log, self.dt_bias)
