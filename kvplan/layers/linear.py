"""Other fixed-size recurrences: lightning attention, RWKV-7, and a gated short convolution alone."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from kvplan.dtypes import BITS, Dtypes
from kvplan.layers.base import Layer, Stored, conv_tail, recurrent, split_heads


@dataclass(frozen=True)
class Lightning(Layer):
    """`num_heads` (query heads) matrices of head_dim × head_dim; no convolution."""

    kind: ClassVar[str] = "lightning"
    num_heads: int
    head_dim: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        return (recurrent((self.num_heads, self.head_dim, self.head_dim), dtypes),)

    def on_rank(self, tp: int) -> Self:
        return replace(self, num_heads=split_heads(self.num_heads, tp, "num_attention_heads"))


@dataclass(frozen=True)
class Rwkv7(Layer):
    """`num_heads` matrices of head_dim × head_dim, fp32 unless asked otherwise (fla layers/rwkv7.py), and the last
    input of the time mix and of the channel mix (token shift)."""

    kind: ClassVar[str] = "rwkv7"
    state_dtype_fixed: ClassVar[str | None] = "fp32"
    num_heads: int
    head_dim: int
    hidden_size: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        wkv = recurrent((self.num_heads, self.head_dim, self.head_dim), dtypes)
        if dtypes.conv is None:
            return (wkv,)
        return wkv, Stored("token_shift", "conv", "sequence", (2, self.hidden_size), BITS[dtypes.conv])

    def on_rank(self, tp: int) -> Self:
        return replace(self, num_heads=split_heads(self.num_heads, tp, "the number of RWKV-7 heads"))


@dataclass(frozen=True)
class ShortConv(Layer):
    """A causal convolution of `kernel` taps over `width` channels and nothing else (LFM2)."""

    kind: ClassVar[str] = "short_conv"
    width: int
    kernel: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        return conv_tail(self.width, self.kernel, dtypes)

    def on_rank(self, tp: int) -> Self:
        return replace(self, width=split_heads(self.width, tp, "the width of the short convolution"))
