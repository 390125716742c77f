"""Delta-rule recurrences: Kimi Delta Attention, Gated DeltaNet (1 and 2). A matrix per head, fixed in size."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from kvplan.dtypes import Dtypes
from kvplan.layers.base import Layer, Stored, conv_tail, recurrent, split_heads


@dataclass(frozen=True)
class Kda(Layer):
    """`num_heads` matrices of head_dim × head_dim, and three short convolutions (q, k, v) of num_heads × head_dim.

    vLLM fixes the matrix to fp32 (mamba_utils.kda_state_dtype) up to 0.29 and defaults to it later.
    """

    kind: ClassVar[str] = "kda"
    state_dtype_fixed: ClassVar[str | None] = "fp32"
    num_heads: int
    head_dim: int
    short_conv_kernel_size: int
    bounded_gate: bool = False
    """The config bounds the decay gate from below, which the FlashKDA prefill kernel needs."""

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        width = 3 * self.num_heads * self.head_dim
        return (
            recurrent((self.num_heads, self.head_dim, self.head_dim), dtypes),
            *conv_tail(width, self.short_conv_kernel_size, dtypes),
        )

    def on_rank(self, tp: int) -> Self:
        return replace(self, num_heads=split_heads(self.num_heads, tp, "linear_attn_config.num_heads"))

    def checkpoint_kernel(self) -> str | None:
        return "flashkda" if self.bounded_gate and self.head_dim == 128 else None

    def replay_record(self, drafts: int, history: int) -> tuple[Stored, ...]:
        """A correction, a key and a raw gate per verified token (vLLM mamba_utils.append_kda_recoverssm_record)."""
        rows = (1 + drafts, self.num_heads, self.head_dim)
        return (
            Stored("recover_correction", "state", "sequence", rows, 32),
            Stored("recover_key_gate", "state", "sequence", (2, *rows), 16),
        )


@dataclass(frozen=True)
class Gdn(Layer):
    """`value_heads` matrices of key_dim × value_dim; one convolution over q, k and v together.

    Gated DeltaNet-2 keeps the same shapes: its erase and write gates add no state (arXiv 2605.22791).
    """

    kind: ClassVar[str] = "gdn"
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        width = 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
        return (
            recurrent((self.value_heads, self.value_dim, self.key_dim), dtypes),
            *conv_tail(width, self.conv_kernel, dtypes),
        )

    def on_rank(self, tp: int) -> Self:
        return replace(
            self,
            key_heads=split_heads(self.key_heads, tp, "linear_num_key_heads"),
            value_heads=split_heads(self.value_heads, tp, "linear_num_value_heads"),
        )

    def checkpoint_kernel(self) -> str | None:
        return "flashinfer_gdn" if self.key_dim == 128 else None
