"""GLM-4 (dense), GLM-4.5 to 4.7 (experts), and the latent ones: GLM-4.7-Flash and GLM-5 with a sparse index."""

from kvplan.architectures._attention import read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._latent import feed_forward, latent_decoder, latent_weights, moe_layers, mtp_extras
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.base import Layer
from kvplan.model import Inventory, Weight

_SANDWICH = ("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")
_MTP = ("num_nextn_predict_layers", "num_mtp_layers")


@reads("glm4", "glm4_moe")
def layers(cfg: Config) -> Decoder:
    cfg.only("layer_types", "full_attention")
    heads = read_heads(cfg)
    layer: Layer = heads.full
    return Decoder(
        ((layer,),) * cfg.layers(),
        mtp=(layer,) * cfg.count(*_MTP, maximum=64),
        num_attention_heads=heads.query,
        num_experts=cfg.count("n_routed_experts", "num_local_experts"),
        experts_per_token=cfg.count("num_experts_per_tok"),
    )


def _attention(cfg: Config, *, bias_default: bool) -> tuple[Weight, ...]:
    bias, head_norm = cfg.flag("attention_bias", bias_default), cfg.flag("use_qk_norm")
    return gqa(cfg.integer("hidden_size"), *read_heads(cfg), qkv_bias=bias, head_norm=head_norm)


@weighs("glm4")
def dense_weights(cfg: Config) -> Inventory:
    """Two norms before and two after the sublayers; q, k and v have biases unless the config says not."""
    hidden = cfg.integer("hidden_size")
    block = (
        *_attention(cfg, bias_default=True),
        *mlp(hidden, cfg.integer("intermediate_size")),
        *block_norms(hidden, *_SANDWICH),
    )
    return Inventory((block,) * cfg.layers(), embeddings(cfg, hidden))


@weighs("glm4_moe")
def expert_weights(cfg: Config) -> Inventory:
    hidden, depth = cfg.integer("hidden_size"), cfg.layers()
    attention, ends, norms = _attention(cfg, bias_default=False), feed_forward(cfg), block_norms(hidden)
    blocks = tuple((*attention, *ends[has_experts], *norms) for has_experts in moe_layers(cfg, depth))
    mtp = (*attention, *ends[True], *norms, *mtp_extras(cfg, copies=True))
    return Inventory(blocks, embeddings(cfg, hidden), mtp * cfg.count(*_MTP, maximum=64))


@reads("glm4_moe_lite", "glm_moe_dsa")
def latent_layers(cfg: Config) -> Decoder:
    """MLA in every layer; GLM-5 adds a sparse index, which from 5.2 on only some layers own."""
    return latent_decoder(cfg)


@weighs("glm4_moe_lite", "glm_moe_dsa")
def latent_moe_weights(cfg: Config) -> Inventory:
    """MTP blocks use the embedding and head of the model."""
    return latent_weights(cfg, mtp_copies=False)
