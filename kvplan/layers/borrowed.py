"""Layers that keep nothing that grows: KV shared from another layer, and cross-attention to an encoder."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from kvplan.dtypes import BITS, Dtypes
from kvplan.errors import UsageError
from kvplan.layers.base import Layer, Stored, split_kv_heads


@dataclass(frozen=True)
class Shared(Layer):
    """Reads the cache of an earlier layer and keeps none of its own (Gemma 3n, Gemma 4, YOCO)."""

    kind: ClassVar[str] = "shared"
    source: Layer
    """The layer whose cache is read."""

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        return ()

    def read_bytes(self, dtypes: Dtypes, tokens: int) -> int:
        return self.source.read_bytes(dtypes, tokens)

    def on_rank(self, tp: int) -> Self:
        return replace(self, source=self.source.on_rank(tp))


@dataclass(frozen=True)
class Cross(Layer):
    """Keeps the keys and values of `encoder_tokens` encoder positions, whatever has been generated."""

    kind: ClassVar[str] = "cross"
    kv_heads: int
    k_dim: int
    v_dim: int
    encoder_tokens: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        if dtypes.kv not in BITS:
            raise UsageError(f"--kv-cache-dtype {dtypes.kv} is not defined for cross-attention; use bf16 or fp8")
        rows = (self.encoder_tokens, self.kv_heads)
        return (
            Stored("cross_key", "kv", "sequence", (*rows, self.k_dim), BITS[dtypes.kv]),
            Stored("cross_value", "kv", "sequence", (*rows, self.v_dim), BITS[dtypes.kv]),
        )

    def on_rank(self, tp: int) -> Self:
        return replace(self, kv_heads=split_kv_heads(self.kv_heads, tp))
