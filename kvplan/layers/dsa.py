"""MLA with a sparse index (DeepSeek Sparse Attention): everything is kept, top-k rows are read."""

from dataclasses import dataclass
from typing import ClassVar

from kvplan.dtypes import Dtypes
from kvplan.layers.base import Stored, index_key
from kvplan.layers.mla import Mla, latent_row


@dataclass(frozen=True)
class Dsa(Mla):
    """MLA whose reads are chosen by an indexer.

    Layers that own an indexer keep one key of `index_head_dim` per token; by default fp8 with one fp32 scale
    (132 B for 128), even under a bf16 KV cache (vLLM indexer). Under IndexShare (GLM-5.2) the other layers reuse
    a neighbour's choice and keep no key: `owns_index` is False there.
    """

    kind: ClassVar[str] = "dsa"
    sparse: ClassVar[bool] = True
    index_head_dim: int
    index_topk: int
    owns_index: bool = True

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        row = latent_row(self.kv_lora_rank, self.qk_rope_head_dim, dtypes.kv)
        if not self.owns_index:
            return row
        return (*row, *index_key(self.index_head_dim, "fp8" if dtypes.index == "auto" else dtypes.index))

    def read_bytes(self, dtypes: Dtypes, tokens: int) -> int:
        return sum(
            tensor.bytes(tokens if tensor.role == "index" else min(tokens, self.index_topk))
            for tensor in self.stored(dtypes)
        )
