"""Zamba2: Mamba-2 in every block, and attention whose weights are shared but whose cache is not in some of them."""

from kvplan.architectures._config import Config
from kvplan.architectures._heads import by_name, heads
from kvplan.architectures._recurrent import state_dtype
from kvplan.architectures._registry import Decoder, reads
from kvplan.layers.base import Layer
from kvplan.layers.full import Full
from kvplan.layers.mamba import Mamba2

_UNUSED = (
    "kv_channels", "num_query_groups", "mamba_headdim", "mamba_dt_rank", "chunk_size", "use_mamba_kernels",
    "num_mem_blocks", "use_mem_eff_path", "use_mem_rope", "use_shared_attention_adapter", "use_shared_mlp_adapter",
    "use_shared_block_adapter", "hybrid_layer_ids", "attention_hidden_size", "use_long_context", "state_size",
)  # fmt: skip


@reads("zamba2")
def layers(cfg: Config) -> Decoder:
    """Attention works on the hidden state beside the embedding, so its heads share 2 × hidden_size."""
    hidden, inner = cfg.integer("hidden_size"), cfg.integer("mamba_expand") * cfg.integer("hidden_size")
    count = cfg.integer("n_mamba_heads")
    if inner % count:
        raise cfg.fail("n_mamba_heads", f"{count} does not divide the inner width {inner}")
    groups, conv = cfg.integer("mamba_ngroups"), cfg.integer("mamba_d_conv")
    mamba: Layer = Mamba2(count, inner // count, cfg.integer("mamba_d_state"), groups, conv)
    ordinary = heads(cfg, derive=False, weighed=True, dim_keys=("attention_head_dim", "head_dim"))
    if ordinary.query * ordinary.dim != 2 * hidden:
        raise cfg.fail("attention_head_dim", f"{ordinary.dim} × {ordinary.query} heads is not 2 × hidden_size {hidden}")
    both: tuple[Layer, ...] = (Full(ordinary.kv, ordinary.dim, ordinary.dim), mamba)
    kinds = {"mamba": (mamba,), "linear_attention": (mamba,), "hybrid": both}
    cfg.ignore(*_UNUSED)
    return Decoder(
        by_name(cfg, "layers_block_type", cfg.layers(), kinds),
        num_attention_heads=ordinary.query,
        state_dtype=state_dtype(cfg),
    )
