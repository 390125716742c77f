"""Softmax attention that keeps everything: MHA, GQA and MQA, K and V of equal or different width."""

from dataclasses import dataclass
from typing import ClassVar, Self

from kvplan.dtypes import Dtypes
from kvplan.layers.base import Layer, Stored, kv_tensors, split_kv_heads


@dataclass(frozen=True)
class Full(Layer):
    """Keeps `kv_heads` keys of `k_dim` and values of `v_dim` per token."""

    kind: ClassVar[str] = "full"
    kv_heads: int
    k_dim: int
    v_dim: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        return (
            *kv_tensors("key", (self.kv_heads, self.k_dim), dtypes),
            *kv_tensors("value", (self.kv_heads, self.v_dim), dtypes),
        )

    def on_rank(self, tp: int) -> Self:
        return type(self)(split_kv_heads(self.kv_heads, tp), self.k_dim, self.v_dim)

    def copies(self, tp: int) -> int:
        return max(1, tp // self.kv_heads)
