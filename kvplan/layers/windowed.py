"""Attention that forgets: a sliding window, or a local chunk. Both keep at most so many tokens."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from kvplan.dtypes import Dtypes
from kvplan.layers.base import Layer, Stored, kv_tensors, split_kv_heads


@dataclass(frozen=True)
class SlidingWindow(Layer):
    """Keeps the last `window` tokens; shorter sequences behave as full attention."""

    kind: ClassVar[str] = "swa"
    kv_heads: int
    k_dim: int
    v_dim: int
    window: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        return (
            *kv_tensors("key", (self.kv_heads, self.k_dim), dtypes, self.window),
            *kv_tensors("value", (self.kv_heads, self.v_dim), dtypes, self.window),
        )

    def on_rank(self, tp: int) -> Self:
        return replace(self, kv_heads=split_kv_heads(self.kv_heads, tp))

    def copies(self, tp: int) -> int:
        return max(1, tp // self.kv_heads)


@dataclass(frozen=True)
class ChunkedLocal(SlidingWindow):
    """Attends within chunks of `window` tokens. Live tokens are n mod window; engines keep a whole chunk."""

    kind: ClassVar[str] = "chunked"
    chunked: ClassVar[bool] = True
