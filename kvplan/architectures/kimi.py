"""Kimi Linear and Kimi K3: Kimi Delta Attention in most layers, NoPE MLA in the rest."""

from kvplan.architectures._config import Config
from kvplan.architectures._parts import block_norms, embeddings, mla, mlp, moe, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.base import Layer
from kvplan.layers.delta import Kda
from kvplan.layers.mla import Mla
from kvplan.model import Inventory, Weight


def _attention_layers(cfg: Config, linear: Config, layers: int) -> list[bool]:
    """True where a layer is MLA. Both lists are 1-based and have to cover every layer exactly once."""
    full, kda = linear.integers("full_attn_layers", minimum=1), linear.integers("kda_layers", minimum=1)
    if sorted(full + kda) != list(range(1, layers + 1)):
        raise linear.fail(
            "kda_layers", f"with full_attn_layers does not cover the {layers} layers once each (both are 1-based)"
        )
    return [number in set(full) for number in range(1, layers + 1)]


@reads("kimi_linear", "kimi_k3")
def layers(cfg: Config) -> Decoder:
    linear = cfg.sub("linear_attn_config")
    latent: Layer = Mla(cfg.integer("kv_lora_rank"), cfg.integer("qk_rope_head_dim"))
    delta: Layer = Kda(
        linear.integer("num_heads"), linear.integer("head_dim"), linear.integer("short_conv_kernel_size")
    )
    cfg.ignore("head_dim", "num_key_value_heads", "mla_use_nope", "q_lora_rank", "qk_nope_head_dim", "v_head_dim")
    attention = _attention_layers(cfg, linear, cfg.layers())
    return Decoder(
        tuple((latent,) if is_mla else (delta,) for is_mla in attention),
        mtp=(latent,) * cfg.integer("num_nextn_predict_layers", default=0, minimum=0),
        num_attention_heads=cfg.integer("num_attention_heads"),
        num_experts=cfg.integer("num_experts", default=0, minimum=0),
        experts_per_token=cfg.integer("num_experts_per_token", default=0, minimum=0),
    )


def _kda(cfg: Config, linear: Config, hidden: int) -> tuple[Weight, ...]:
    heads, head_dim = linear.integer("num_heads"), linear.integer("head_dim")
    width, taps = heads * head_dim, linear.integer("short_conv_kernel_size")
    gate = (
        (Weight("self_attn.g_proj", "attention", (width, hidden)),)
        if linear.flag("use_full_rank_gate")
        else (
            Weight("self_attn.g_a_proj", "attention", (head_dim, hidden), "none"),
            Weight("self_attn.g_b_proj", "attention", (width, head_dim)),
        )
    )
    return (
        *(Weight(f"self_attn.{name}_proj", "attention", (width, hidden)) for name in "qkv"),
        *(Weight(f"self_attn.{name}_conv1d", "attention", (width, 1, taps)) for name in "qkv"),
        Weight("self_attn.f_a_proj", "attention", (head_dim, hidden), "none"),
        Weight("self_attn.f_b_proj", "attention", (width, head_dim)),
        Weight("self_attn.b_proj", "attention", (heads, hidden)),
        *gate,
        vector("self_attn.A_log", heads, split="tp"),
        vector("self_attn.dt_bias", width, split="tp"),
        vector("self_attn.o_norm", head_dim),
        Weight("self_attn.o_proj", "attention", (hidden, width)),
    )


def _mla(cfg: Config, hidden: int) -> tuple[Weight, ...]:
    heads, v_dim = cfg.integer("num_attention_heads"), cfg.integer("v_head_dim")
    nope, rope = cfg.integer("qk_nope_head_dim"), cfg.integer("qk_rope_head_dim")
    latent = mla(hidden, heads, cfg.maybe("q_lora_rank"), cfg.integer("kv_lora_rank"), nope, rope, v_dim)
    if not cfg.flag("mla_use_output_gate"):
        return latent
    return (*latent, Weight("self_attn.g_proj", "attention", (heads * v_dim, hidden)))


def _moe(cfg: Config, hidden: int) -> tuple[Weight, ...]:
    inner, width = cfg.integer("moe_intermediate_size"), cfg.maybe("routed_expert_hidden_size")
    shared = cfg.integer("num_shared_experts", default=0, minimum=0) * inner
    experts = moe(
        hidden, inner, cfg.integer("num_experts"), shared_inner=shared, router_bias=True, width=width,
        prefix="block_sparse_moe",
    )  # fmt: skip
    if width is None:
        return experts
    latent = (
        Weight("block_sparse_moe.latent_down_proj", "mlp", (width, hidden), "none"),
        Weight("block_sparse_moe.latent_up_proj", "mlp", (hidden, width), "none"),
    )
    norms = (vector("block_sparse_moe.latent_norm", width, "mlp"),) if cfg.flag("latent_moe_use_norm") else ()
    return (*experts, *latent, *norms)


@weighs("kimi_linear", "kimi_k3")
def weights(cfg: Config) -> Inventory:
    """Module sizes of Kimi K3: KDA 443,740,384, MLA 232,196,096, MoE without routed experts 189,927,808 per layer."""
    hidden, linear = cfg.integer("hidden_size"), cfg.sub("linear_attn_config")
    dense = cfg.integer("first_k_dense_replace", minimum=0)
    feed_forward = (mlp(hidden, cfg.integer("intermediate_size")), _moe(cfg, hidden))
    mixers = (_kda(cfg, linear, hidden), _mla(cfg, hidden))
    attention = _attention_layers(cfg, linear, cfg.layers())
    blocks = tuple(
        (*mixers[is_mla], *feed_forward[number >= dense], *block_norms(hidden))
        for number, is_mla in enumerate(attention)
    )
    return Inventory(blocks, embeddings(cfg, hidden))
