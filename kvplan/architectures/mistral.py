"""Mistral, Ministral 3, Mixtral and their multimodal wrappers: one window for all layers, or none.

Mistral Large 3 is a DeepSeek-V3 clone inside the same wrapper: `kv_lora_rank` says so. The interleaved windows of
Ministral-8B-2410 stand in its params.json alone; a config.json without layer_types is read as engines read it.
"""

from kvplan.architectures._attention import projections, read_heads, uniform
from kvplan.architectures._config import Config
from kvplan.architectures._parts import block_norms, embeddings, mla, mlp, moe
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.architectures._towers import pixtral, tower
from kvplan.architectures.llama import dense_block
from kvplan.layers.base import Layer
from kvplan.layers.mla import Mla
from kvplan.model import Inventory, Weight

_WRAPPERS = ("mistral3", "pixtral", "llava")
_CLASS_WINDOW = 4096


@reads("mistral", "ministral", "ministral3", "mistral4", *_WRAPPERS)
def layers(cfg: Config) -> Decoder:
    if cfg.has("kv_lora_rank"):
        return _latent(cfg)
    model_type = cfg.text("model_type")
    if model_type == "pixtral" and cfg.outer is None:
        raise cfg.fail("model_type", "'pixtral' without a text_config is a vision encoder, which keeps no cache")
    heads = read_heads(cfg)
    window = None if model_type == "ministral3" else _CLASS_WINDOW
    return Decoder(uniform(cfg, heads, window), num_attention_heads=heads.query)


def _latent(cfg: Config) -> Decoder:
    latent: Layer = Mla(cfg.integer("kv_lora_rank"), cfg.integer("qk_rope_head_dim"))
    cfg.ignore("head_dim", "num_key_value_heads", "q_lora_rank", "qk_nope_head_dim", "v_head_dim", "qk_head_dim")
    if cfg.maybe("sliding_window", minimum=0):
        raise cfg.fail("sliding_window", "a window over a latent cache is not modelled")
    return Decoder(
        ((latent,),) * cfg.layers(),
        num_attention_heads=cfg.integer("num_attention_heads"),
        num_experts=cfg.integer("n_routed_experts", "num_local_experts", default=0, minimum=0),
        experts_per_token=cfg.integer("num_experts_per_tok", default=0, minimum=0),
    )


@reads("mixtral")
def mixtral(cfg: Config) -> Decoder:
    heads = read_heads(cfg)
    return Decoder(
        uniform(cfg, heads),
        num_attention_heads=heads.query,
        num_experts=cfg.integer("num_local_experts", default=0, minimum=0),
        experts_per_token=cfg.integer("num_experts_per_tok", default=0, minimum=0),
    )


@weighs("mistral", "ministral", "ministral3", "mistral4", *_WRAPPERS)
def weights(cfg: Config) -> Inventory:
    hidden = cfg.integer("hidden_size")
    if cfg.has("kv_lora_rank"):
        blocks = _latent_blocks(cfg, hidden)
    else:
        blocks = (dense_block(cfg, read_heads(cfg), qkv_bias=False, o_bias=False),) * cfg.layers()
    return Inventory(blocks, (*embeddings(cfg, hidden), *tower(cfg, pixtral)))


def _latent_blocks(cfg: Config, hidden: int) -> tuple[tuple[Weight, ...], ...]:
    attention = mla(
        hidden, cfg.integer("num_attention_heads"), cfg.maybe("q_lora_rank"), cfg.integer("kv_lora_rank"),
        cfg.integer("qk_nope_head_dim"), cfg.integer("qk_rope_head_dim"), cfg.integer("v_head_dim"),
    )  # fmt: skip
    inner = cfg.integer("moe_intermediate_size")
    shared = cfg.integer("n_shared_experts", minimum=0) * inner
    experts = moe(hidden, inner, cfg.integer("n_routed_experts"), shared_inner=shared)
    feed_forward = (mlp(hidden, cfg.integer("intermediate_size")), experts)
    dense = cfg.integer("first_k_dense_replace", minimum=0)
    return tuple((*attention, *feed_forward[number >= dense], *block_norms(hidden)) for number in range(cfg.layers()))


@weighs("mixtral")
def mixtral_weights(cfg: Config) -> Inventory:
    hidden = cfg.integer("hidden_size")
    block = (
        *projections(cfg, read_heads(cfg)),
        *moe(hidden, cfg.integer("intermediate_size"), cfg.integer("num_local_experts"), prefix="block_sparse_moe"),
        *block_norms(hidden),
    )
    return Inventory((block,) * cfg.layers(), embeddings(cfg, hidden))
