"""DeepSeek V4: a cache compressed along the sequence (CSA 1:4 with an index, HCA 1:128), a window in every layer.

Sizes and default records: vLLM models/deepseek_v4 and its blog of 2026-04-24. One KV head, replicated over TP.
The record `fp8_ds_mla` is 448 fp8 + 64 bf16 + 8 scale bytes = 584 B; plain `fp8` is one byte an element.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from kvplan.dtypes import BITS, Dtypes
from kvplan.errors import UsageError
from kvplan.layers.base import Layer, Stored, index_key


def _record(
    head_dim: int, rope: int, kv: str, window: int | None = None, tokens_per_entry: int = 1
) -> tuple[Stored, ...]:
    where = "window" if window is not None else "compressed"
    if kv == "fp8_ds_mla":
        if (head_dim, rope) != (512, 64):
            raise UsageError(
                f"--kv-cache-dtype fp8_ds_mla is defined for head_dim 512 with 64 rope, not {head_dim}, {rope}"
            )
        parts: tuple[tuple[str, int, int], ...] = (("nope", head_dim - rope, 8), ("rope", rope, 16), ("scale", 8, 8))
    elif kv in BITS:
        parts = (("row", head_dim, BITS[kv]),)
    else:
        raise UsageError(f"--kv-cache-dtype {kv} is not defined for DeepSeek V4; use bf16, fp8 or fp8_ds_mla")
    return tuple(
        Stored(f"{where}_{name}", "kv", "token", (size,), bits, window, tokens_per_entry) for name, size, bits in parts
    )


@dataclass(frozen=True)
class WindowOnly(Layer):
    """A V4 layer of compress ratio 0: the window and nothing else."""

    kind: ClassVar[str] = "swa"
    latent: ClassVar[bool] = True
    packed: ClassVar[bool] = True
    head_dim: int
    qk_rope_head_dim: int
    window: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        return _record(self.head_dim, self.qk_rope_head_dim, dtypes.kv, self.window)

    def on_rank(self, tp: int) -> Self:
        return self


@dataclass(frozen=True)
class Hca(WindowOnly):
    """One entry per `ratio` tokens, a window, and the compressor's ring: `ratio` rows of 2 × head_dim, fp32.

    The incomplete last group lives in the compressor state alone.
    """

    kind: ClassVar[str] = "hca"
    ratio: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        return (
            *super().stored(dtypes),
            *_record(self.head_dim, self.qk_rope_head_dim, dtypes.kv, tokens_per_entry=self.ratio),
            Stored("compressor", "state", "sequence", (self.ratio, 2 * self.head_dim), 32),
        )


@dataclass(frozen=True)
class Csa(WindowOnly):
    """One entry per `ratio` tokens with an index key each, a window, and two overlapping compressors.

    Main ring 2·ratio rows of 4 × head_dim, indexer ring 2·ratio rows of 4 × index_head_dim, both fp32.
    The index key is bf16 under a bf16 cache and fp8 with an fp32 scale under an fp8 one.
    """

    kind: ClassVar[str] = "csa"
    ratio: int
    index_head_dim: int
    index_topk: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        follows = "fp8" if dtypes.kv.startswith("fp8") else "bf16"
        rows = 2 * self.ratio
        return (
            *super().stored(dtypes),
            *_record(self.head_dim, self.qk_rope_head_dim, dtypes.kv, tokens_per_entry=self.ratio),
            *index_key(self.index_head_dim, follows if dtypes.index == "auto" else dtypes.index, self.ratio),
            Stored("compressor", "state", "sequence", (rows, 4 * self.head_dim), 32),
            Stored("index_compressor", "state", "sequence", (rows, 4 * self.index_head_dim), 32),
        )

    def read_bytes(self, dtypes: Dtypes, tokens: int) -> int:
        return sum(
            tensor.bytes(min(tokens, self.index_topk * self.ratio) if tensor.grows and tensor.role == "kv" else tokens)
            for tensor in self.stored(dtypes)
        )
