"""Grouped-query attention with a block-sparse index (MiniMax M3): all KV kept, chosen blocks read."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from kvplan.dtypes import BITS, BLOCKS, Dtypes
from kvplan.errors import UsageError
from kvplan.layers.base import Stored, index_key, split_kv_heads
from kvplan.layers.full import Full


@dataclass(frozen=True)
class GqaIndex(Full):
    """Full attention plus one shared index key of `index_dim` per token, replicated over TP.

    The key follows the KV cache by default: bf16, or one byte an element when the cache is fp8
    (vLLM indexer, num_kv_heads = 1, no scale).
    """

    kind: ClassVar[str] = "gqa_index"
    index_dim: int
    topk_tokens: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        follows = "fp8" if dtypes.kv == "fp8" else "bf16"
        index = follows if dtypes.index == "auto" else dtypes.index
        if index in BLOCKS:
            return (*super().stored(dtypes), *index_key(self.index_dim, index))
        if index == "fp4":
            raise UsageError("--index-dtype fp4 is not defined for the index of MiniMax M3; use bf16 or fp8")
        key = Stored("index_key", "index", "token", (self.index_dim,), BITS[index])
        return (*super().stored(dtypes), key)

    def read_bytes(self, dtypes: Dtypes, tokens: int) -> int:
        return sum(
            tensor.bytes(tokens if tensor.role == "index" else min(tokens, self.topk_tokens))
            for tensor in self.stored(dtypes)
        )

    def on_rank(self, tp: int) -> Self:
        return replace(self, kv_heads=split_kv_heads(self.kv_heads, tp))
