"""Selective state spaces: Mamba-1 (a state per channel) and Mamba-2 (a state per head, shared B and C groups)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from kvplan.dtypes import Dtypes
from kvplan.layers.base import Layer, Stored, conv_tail, recurrent, split_heads


@dataclass(frozen=True)
class Mamba1(Layer):
    """`d_inner` × `d_state`, and a convolution over d_inner."""

    kind: ClassVar[str] = "mamba1"
    d_inner: int
    d_state: int
    d_conv: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        return recurrent((self.d_inner, self.d_state), dtypes), *conv_tail(self.d_inner, self.d_conv, dtypes)

    def on_rank(self, tp: int) -> Self:
        return replace(self, d_inner=split_heads(self.d_inner, tp, "the inner width of the Mamba layers"))


@dataclass(frozen=True)
class Mamba2(Layer):
    """`num_heads` matrices of head_dim × d_state; a convolution over x, B and C.

    Where tp does not divide `n_groups`, each rank gets a copy of the group it needs: the groups are widened first
    (vLLM mamba_utils.extra_groups_for_head_shards), which is why a rank's convolution can exceed its plain share.
    """

    kind: ClassVar[str] = "mamba2"
    num_heads: int
    head_dim: int
    d_state: int
    n_groups: int
    d_conv: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        width = self.num_heads * self.head_dim + 2 * self.n_groups * self.d_state
        return (
            recurrent((self.num_heads, self.head_dim, self.d_state), dtypes),
            *conv_tail(width, self.d_conv, dtypes),
        )

    def on_rank(self, tp: int) -> Self:
        groups = self.n_groups if self.n_groups % tp == 0 else max(self.n_groups, tp)
        return replace(
            self,
            num_heads=split_heads(self.num_heads, tp, "the number of Mamba-2 heads"),
            n_groups=split_heads(groups, tp, "the number of Mamba-2 groups"),
        )
