"""Kimi Linear and Kimi K3: Kimi Delta Attention in most layers, NoPE MLA in the rest."""

from dataclasses import dataclass

from kvplan.architectures._config import Config
from kvplan.architectures._latent import full_by_name, latent_attention, moe_layers
from kvplan.architectures._moonvit import moonvit
from kvplan.architectures._parts import block_norms, embeddings, mlp, moe, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.architectures._towers import tower
from kvplan.errors import MissingField
from kvplan.layers.base import Layer
from kvplan.layers.delta import Kda
from kvplan.layers.mla import Mla
from kvplan.model import Inventory, Weight

_EXPERTS = ("num_experts", "num_local_experts")
_PER_TOKEN = ("num_experts_per_token", "num_experts_per_tok")


@dataclass(frozen=True, slots=True)
class _Delta:
    """The linear layers. `full_rank_gate` is what tells K3's from Kimi Linear's."""

    heads: int
    head_dim: int
    taps: int
    full_rank_gate: bool
    bounded_gate: bool = False


def _delta(cfg: Config) -> _Delta:
    """From `linear_attn_config`, or the flat keys that transformers writes when it saves the model."""
    if not cfg.has("linear_attn_config") and cfg.has("layer_types"):
        heads, head_dim = cfg.integer("linear_num_heads"), cfg.integer("linear_head_dim")
        return _Delta(heads, head_dim, cfg.integer("linear_conv_kernel_dim"), full_rank_gate=False)
    linear = cfg.sub("linear_attn_config")
    return _Delta(
        linear.integer("num_heads"),
        linear.integer("head_dim"),
        linear.integer("short_conv_kernel_size"),
        linear.flag("use_full_rank_gate"),
        bounded_gate=linear.has("gate_lower_bound"),
    )


def _latent_layers(cfg: Config) -> list[bool]:
    """True where a layer is MLA. The lists of `linear_attn_config` are 1-based and cover every layer once."""
    depth = cfg.layers()
    named = full_by_name(cfg, depth)
    if not cfg.has("linear_attn_config") and named is not None:
        return named
    cfg.ignore("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    linear = cfg.sub("linear_attn_config")
    full, delta = linear.integers("full_attn_layers", minimum=1), linear.integers("kda_layers", minimum=1)
    if sorted(full + delta) != list(range(1, depth + 1)):
        raise linear.fail(
            "kda_layers", f"with full_attn_layers does not cover the {depth} layers once each (both are 1-based)"
        )
    latent = [number in set(full) for number in range(1, depth + 1)]
    if named not in (None, latent):
        raise cfg.fail("layer_types", "contradicts linear_attn_config")
    return latent


@reads("kimi_linear", "kimi_k3")
def layers(cfg: Config) -> Decoder:
    delta = _delta(cfg)
    latent: Layer = Mla(cfg.integer("kv_lora_rank"), cfg.integer("qk_rope_head_dim"))
    linear: Layer = Kda(delta.heads, delta.head_dim, delta.taps, delta.bounded_gate)
    cfg.ignore("head_dim", "num_key_value_heads", "q_lora_rank", "qk_nope_head_dim", "qk_head_dim", "v_head_dim")
    cfg.ignore("mla_use_nope", "attn_res_block_size", "use_full_rank_gate")
    return Decoder(
        tuple((latent,) if is_latent else (linear,) for is_latent in _latent_layers(cfg)),
        mtp=(latent,) * cfg.count("num_nextn_predict_layers", maximum=64),
        num_attention_heads=cfg.integer("num_attention_heads"),
        num_experts=cfg.count(*_EXPERTS),
        experts_per_token=cfg.count(*_PER_TOKEN),
    )


def _linear_attention(delta: _Delta, hidden: int) -> tuple[Weight, ...]:
    width = delta.heads * delta.head_dim
    gate: tuple[Weight, ...] = (Weight("self_attn.g_proj", "attention", (width, hidden)),)
    if not delta.full_rank_gate:
        gate = (
            Weight("self_attn.g_a_proj", "attention", (delta.head_dim, hidden), "none"),
            Weight("self_attn.g_b_proj", "attention", (width, delta.head_dim)),
        )
    # K3 checkpoints store A_log at head_dim values, of which engines load the first num_heads.
    spare = max(delta.head_dim - delta.heads, 0) if delta.full_rank_gate else 0
    padding = (vector("self_attn.A_log.padding", spare, "other"),) if spare else ()
    return (
        *(Weight(f"self_attn.{name}_proj", "attention", (width, hidden)) for name in "qkv"),
        *(Weight(f"self_attn.{name}_conv1d", "attention", (width, 1, delta.taps)) for name in "qkv"),
        Weight("self_attn.f_a_proj", "attention", (delta.head_dim, hidden), "none"),
        Weight("self_attn.f_b_proj", "attention", (width, delta.head_dim)),
        Weight("self_attn.b_proj", "attention", (delta.heads, hidden)),
        *gate,
        vector("self_attn.A_log", delta.heads, split="tp"),
        vector("self_attn.dt_bias", width, split="tp"),
        vector("self_attn.o_norm", delta.head_dim),
        Weight("self_attn.o_proj", "attention", (hidden, width)),
        *padding,
    )


def _softmax_attention(cfg: Config, hidden: int) -> tuple[Weight, ...]:
    latent = latent_attention(cfg)
    if not cfg.flag("mla_use_output_gate"):
        return latent
    width = cfg.integer("num_attention_heads") * cfg.integer("v_head_dim")
    return (*latent, Weight("self_attn.g_proj", "attention", (width, hidden)))


def _experts(cfg: Config, hidden: int) -> tuple[Weight, ...]:
    inner, width = cfg.integer("moe_intermediate_size"), cfg.maybe("routed_expert_hidden_size")
    shared = cfg.count("num_shared_experts", "n_shared_experts") * inner
    experts = moe(
        hidden, inner, cfg.integer(*_EXPERTS), shared_inner=shared, router_bias=True, width=width,
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


def _attention_residuals(cfg: Config, *places: str) -> tuple[Weight, ...]:
    """A norm and a one-row projection per place that attends over earlier blocks (vLLM models/kimi_k3)."""
    if cfg.maybe("attn_res_block_size") is None:
        return ()
    hidden = cfg.integer("hidden_size")
    return tuple(vector(f"{place}_res_{part}", hidden, "other") for place in places for part in ("norm", "proj"))


@weighs("kimi_linear", "kimi_k3")
def weights(cfg: Config) -> Inventory:
    """Module sizes of Kimi K3: KDA 443,740,384, MLA 232,196,096, MoE without routed experts 189,927,808 per layer."""
    if cfg.count("num_nextn_predict_layers"):
        raise MissingField("the weights of num_nextn_predict_layers are not modelled for Kimi Linear")
    hidden, depth = cfg.integer("hidden_size"), cfg.layers()
    ends = (mlp(hidden, cfg.integer("intermediate_size")), _experts(cfg, hidden))
    mixers = (_linear_attention(_delta(cfg), hidden), _softmax_attention(cfg, hidden))
    around = (*block_norms(hidden), *_attention_residuals(cfg, "self_attention", "mlp"))
    blocks = tuple(
        (*mixers[is_latent], *ends[has_experts], *around)
        for is_latent, has_experts in zip(_latent_layers(cfg), moe_layers(cfg, depth), strict=True)
    )
    outer = (*embeddings(cfg, hidden), *_attention_residuals(cfg, "output_attn"), *tower(cfg, moonvit))
    return Inventory(blocks, outer)
