"""Multi-head latent attention: one compressed row per token, shared by all heads and replicated over TP."""

from dataclasses import dataclass
from typing import ClassVar, Self

from kvplan.dtypes import BITS, BLOCK_ELEMENTS, BLOCKS, Dtypes
from kvplan.errors import UsageError
from kvplan.layers.base import Layer, Stored
from kvplan.units import ceil_div


def latent_row(latent: int, rope: int, kv: str) -> tuple[Stored, ...]:
    """The row of one token: `latent` compressed elements and `rope` positional ones.

    The record formats are vLLM's (v1/attention/backends/mla/flashmla_sparse.py:100-155): `fp8_ds_mla` is 512 fp8 +
    4 fp32 scales + 64 bf16 = 656 B; `nvfp4_ds_mla` is 512 fp4 + 32 fp8 scales + 64 fp8 = 352 B.
    """
    parts: dict[str, tuple[int, int, int]] = {"fp8_ds_mla": (8, 32, 16), "nvfp4_ds_mla": (4, 8, 8)}
    if kv in parts:
        if (latent, rope) != (512, 64):
            raise UsageError(
                f"--kv-cache-dtype {kv} is defined for kv_lora_rank 512 + qk_rope_head_dim 64, not {latent} + {rope}"
            )
        latent_bits, scale_bits, rope_bits = parts[kv]
        scales = 4 if kv == "fp8_ds_mla" else 32
        return (
            Stored("latent", "kv", "token", (latent,), latent_bits),
            Stored("latent_scale", "kv", "token", (scales,), scale_bits),
            Stored("rope", "kv", "token", (rope,), rope_bits),
        )
    if kv in BLOCKS:
        bits, scale_bits = BLOCKS[kv]
        blocks = (ceil_div(latent + rope, BLOCK_ELEMENTS),)
        scale = Stored("latent_scale", "kv", "token", blocks, scale_bits)
        return Stored("latent", "kv", "token", (latent + rope,), bits), scale
    if kv not in BITS:
        raise UsageError(f"--kv-cache-dtype {kv} is not defined for MLA; use bf16, fp8, fp8_ds_mla or nvfp4_ds_mla")
    row = (Stored("latent", "kv", "token", (latent,), BITS[kv]),)
    return (*row, Stored("rope", "kv", "token", (rope,), BITS[kv])) if rope else row


@dataclass(frozen=True)
class Mla(Layer):
    """Keeps `kv_lora_rank` + `qk_rope_head_dim` elements per token; K and V are the same row.

    A NoPE MLA (Kimi) still stores the rope slot.
    """

    kind: ClassVar[str] = "mla"
    latent: ClassVar[bool] = True
    kv_lora_rank: int
    qk_rope_head_dim: int

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        return latent_row(self.kv_lora_rank, self.qk_rope_head_dim, dtypes.kv)

    def on_rank(self, tp: int) -> Self:
        return self
