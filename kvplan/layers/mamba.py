"""Selective state spaces: Mamba-1 (a state per channel) and Mamba-2 (a state per head, shared B and C groups)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from kvplan.dtypes import Dtypes
from kvplan.layers.base import Layer, Stored, conv_tail, recurrent, split_heads


@dataclass(frozen=True)
class Mamba1(Layer):
    """`d_inner` × `d_state`, and a convolution over d_inner."""

    kind: ClassVar[str] = "mamba1"
    states_at_chunks: ClassVar[bool] = True
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

    A single group is copied to every rank (vLLM mamba_utils.extra_groups_for_head_shards), which is why a rank's
    convolution can exceed its plain share; several groups have to divide over the ranks (vLLM mamba_mixer2.py:320,
    SGLang layers/attention/mamba/mamba.py:249).
    """

    kind: ClassVar[str] = "mamba2"
    states_at_chunks: ClassVar[bool] = True
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
        groups = tp if self.n_groups == 1 else self.n_groups
        return replace(
            self,
            num_heads=split_heads(self.num_heads, tp, "the number of Mamba-2 heads"),
            n_groups=split_heads(groups, tp, "the number of Mamba-2 groups"),
        )

    def checkpoint_kernel(self) -> str | None:
        return "mamba2"

    def replay_record(self, drafts: int, history: int) -> tuple[Stored, ...]:
        """Inputs of the last `history` tokens, and of the window being verified where there are drafts
        (vLLM mamba_utils.append_replayssm_ring)."""
        rows = history + (1 + drafts if drafts else 0)
        return (
            Stored("replay_x", "state", "sequence", (self.num_heads, rows, self.head_dim), 16),
            Stored("replay_dt", "state", "sequence", (self.num_heads, rows), 32),
            Stored("replay_b", "state", "sequence", (self.n_groups, rows, self.d_state), 16),
        )
