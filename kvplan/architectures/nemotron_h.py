"""Nemotron-H and Nemotron 3: each block is one thing alone, a Mamba-2 mixer, attention, or a feed-forward."""

from typing import Literal

from kvplan.architectures._config import MAX_LAYERS, Config
from kvplan.architectures._heads import Heads, by_name, experts, heads
from kvplan.architectures._parts import embeddings, gqa, mlp, moe, norm, vector
from kvplan.architectures._recurrent import mamba2, state_dtype
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.base import Layer
from kvplan.layers.mamba import Mamba2
from kvplan.model import Inventory, Weight

Part = Literal["mamba", "attention", "mlp", "moe"]
_LETTERS: dict[str, Part] = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_NAMES: dict[str, Part] = {
    "mamba": "mamba", "linear_attention": "mamba", "attention": "attention", "full_attention": "attention",
    "mlp": "mlp", "moe": "moe",
}  # fmt: skip

_UNUSED = (
    "chunk_size", "mamba_chunk_size", "mamba_hidden_act", "use_mamba_kernels", "moe_latent_size", "expand",
    "mamba_expand", "num_query_groups", "kv_channels", "mamba_dt_min", "mamba_dt_max", "mamba_dt_limit",
    "mamba_dt_init_floor",
)  # fmt: skip


def _letters(cfg: Config, key: str) -> tuple[Part, ...]:
    pattern = cfg.text(key)
    if not 1 <= len(pattern) <= MAX_LAYERS:
        raise cfg.fail(key, f"has {len(pattern)} layers; expected 1 to {MAX_LAYERS}")
    for letter in pattern:
        if letter not in _LETTERS:
            raise cfg.fail(key, f"{letter!r} is not modelled; known here: {', '.join(_LETTERS)}")
    return tuple(_LETTERS[letter] for letter in pattern)


def _parts(cfg: Config, listed: str, pattern: str) -> tuple[Part, ...]:
    """The parts in order, from a list of names or from the older pattern string."""
    if cfg.has(listed):
        cfg.ignore(pattern)
        return by_name(cfg, listed, len(cfg.texts(listed)), _NAMES)
    return _letters(cfg, pattern)


def _decoder_parts(cfg: Config) -> tuple[Part, ...]:
    """The decoder's parts; their number is the depth, which newer configs no longer state."""
    parts = _parts(cfg, "layers_block_type", "hybrid_override_pattern")
    stated = cfg.maybe("num_hidden_layers", maximum=MAX_LAYERS)
    if stated is not None and stated != len(parts):
        raise cfg.fail("num_hidden_layers", f"{stated} differs from the {len(parts)} layers of the pattern")
    return parts


def _mtp_parts(cfg: Config) -> tuple[Part, ...]:
    """The parts of the blocks that predict further tokens; one of attention and experts unless said otherwise."""
    blocks = cfg.maybe("num_nextn_predict_layers", minimum=0, maximum=MAX_LAYERS) or 0
    listed, pattern = "mtp_layers_block_type", "mtp_hybrid_override_pattern"
    cfg.ignore(listed, pattern)
    if blocks and not cfg.has(listed) and not cfg.has(pattern):
        cfg.defaults.append(f"{listed} = attention, moe")
        return ("attention", "moe") * blocks
    return _parts(cfg, listed, pattern) * blocks if blocks else ()


def _mamba(cfg: Config) -> Mamba2:
    return Mamba2(
        cfg.integer("mamba_num_heads"),
        cfg.integer("mamba_head_dim"),
        cfg.integer("ssm_state_size"),
        cfg.integer("n_groups", "mamba_n_groups"),
        cfg.integer("conv_kernel", "mamba_d_conv"),
    )


def _heads(cfg: Config, weighed: bool = False) -> Heads:
    """The first Nemotron-H call the head width attention_head_dim."""
    return heads(cfg, derive=False, weighed=weighed, dim_keys=("head_dim", "attention_head_dim"))


@reads("nemotron_h")
def layers(cfg: Config) -> Decoder:
    """The inner width is mamba_num_heads × mamba_head_dim; `expand` is shipped and unused."""
    parts = _decoder_parts(cfg)
    mtp = _mtp_parts(cfg)
    mixers: dict[Part, tuple[Layer, ...]] = {"mlp": (), "moe": ()}
    query = 0
    if "attention" in (*parts, *mtp):
        ordinary = _heads(cfg)
        query, mixers["attention"] = ordinary.query, (ordinary.full,)
    if "mamba" in (*parts, *mtp):
        mixers["mamba"] = (_mamba(cfg),)
    cfg.ignore(*_UNUSED)
    total, per_token = experts(cfg, "n_routed_experts", "num_local_experts") if "moe" in parts else (0, 0)
    return Decoder(
        tuple(mixers[part] for part in parts),
        mtp=tuple(layer for part in mtp for layer in mixers[part]),
        num_attention_heads=query,
        state_dtype=state_dtype(cfg),
        num_experts=total,
        experts_per_token=per_token,
    )


def _moe(cfg: Config, hidden: int) -> tuple[Weight, ...]:
    """Ungated experts, at the latent width where there is one, and shared experts at the full width.

    Published counts leave out the router's score-correction bias, a buffer of one number per expert.
    """
    latent, total = cfg.maybe("moe_latent_size"), cfg.integer("n_routed_experts", "num_local_experts")
    shared = cfg.integer("moe_shared_expert_intermediate_size", minimum=0) * cfg.integer("n_shared_experts", minimum=0)
    weights = moe(
        hidden, cfg.integer("moe_intermediate_size"), total, shared_inner=shared, gated=False, width=latent,
        prefix="mixer",
    )  # fmt: skip
    if latent is None:
        return weights
    return (
        *weights,
        Weight("mixer.fc1_latent_proj", "mlp", (latent, hidden), "none"),
        Weight("mixer.fc2_latent_proj", "mlp", (hidden, latent), "none"),
    )


def _mlp(cfg: Config, hidden: int) -> tuple[Weight, ...]:
    inner = cfg.integer("intermediate_size")
    weights = mlp(hidden, inner, gated=False, prefix="mixer")
    if not cfg.flag("mlp_bias"):
        return weights
    biases = (vector("mixer.up_proj.bias", inner, "mlp", "tp"), vector("mixer.down_proj.bias", hidden, "mlp"))
    return (*weights, *biases)


def _part_weights(cfg: Config, hidden: int, part: Part) -> tuple[Weight, ...]:
    """One block: a norm and its only module."""
    if part == "mamba":
        bias, conv_bias = cfg.flag("use_bias"), cfg.flag("use_conv_bias", True)
        module = mamba2(hidden, _mamba(cfg), conv_bias=conv_bias, in_bias=bias, out_bias=bias, prefix="mixer")
    elif part == "attention":
        module = gqa(hidden, *_heads(cfg, weighed=True), prefix="mixer")
    else:
        module = _moe(cfg, hidden) if part == "moe" else _mlp(cfg, hidden)
    return (norm("norm", hidden), *module)


@weighs("nemotron_h")
def weights(cfg: Config) -> Inventory:
    """An MTP block starts with a projection of (embedding, hidden state) and ends with a norm of its own."""
    hidden = cfg.integer("hidden_size")
    parts, mtp = _decoder_parts(cfg), _mtp_parts(cfg)
    sized = {part: _part_weights(cfg, hidden, part) for part in {*parts, *mtp}}
    predicted = cfg.maybe("num_nextn_predict_layers", minimum=0, maximum=MAX_LAYERS) or 0
    joints = (
        Weight("mtp.eh_proj", "attention", (hidden, 2 * hidden)),
        *(norm(f"mtp.{name}", hidden) for name in ("enorm", "hnorm", "final_layernorm")),
    )
    return Inventory(
        tuple(sized[part] for part in parts),
        embeddings(cfg, hidden),
        (*joints * predicted, *(weight for part in mtp for weight in sized[part])),
    )
