"""What Gemma 1 to 4 and 3n weigh. Module shapes: transformers modeling_gemma*.py."""

from kvplan.architectures._attention import FULL, read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._heads import Heads
from kvplan.architectures._parts import block_norms, mlp, norm, vector
from kvplan.architectures._registry import weighs
from kvplan.architectures._towers import gemma4, gemma4_audio, gemma4_unified, gemma4_unified_audio, siglip, tower
from kvplan.architectures.gemma import Gemma, gemma3n_shape, gemma4_shape
from kvplan.model import Inventory, Weight

_FOUR_NORMS = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
)  # fmt: skip

GEMMA3N_TOWERS = 983_281_504
"""Vision (MobileNet V5) and audio towers of E2B and E4B, whose configs do not size them: in both the published
count (5,439,438,272 and 7,849,978,192) less the text model and the unused projections leaves this."""


def _embeddings(cfg: Config, hidden: int, vocab: int) -> tuple[Weight, ...]:
    """Token embedding and final norm; the head is the embedding unless the config unties it."""
    table = (cfg.integer("vocab_size", default=vocab), hidden)
    tied = cfg.flag("tie_word_embeddings", default=True)
    head = () if tied else (Weight("lm_head", "head", table),)
    return Weight("embed_tokens", "embedding", table), norm("norm", hidden), *head


@weighs("gemma", "gemma2", "gemma3", "gemma3_text")
def weights(cfg: Config) -> Inventory:
    hidden, model_type = cfg.integer("hidden_size"), cfg.text("model_type")
    third = model_type.startswith("gemma3")
    heads = read_heads(cfg, kv_heads=4, head_dim=256, query_heads=8) if third else read_heads(cfg, head_dim=256)
    bias = cfg.flag("attention_bias")
    block = (
        *_attention(heads, hidden, bias, own_kv=True, head_norm=third),
        *mlp(hidden, cfg.integer("intermediate_size")),
        *(block_norms(hidden) if model_type == "gemma" else block_norms(hidden, *_FOUR_NORMS)),
    )
    outer = _embeddings(cfg, hidden, 262208 if third else 256000)
    return Inventory((block,) * cfg.layers(), (*outer, *(tower(cfg, siglip) if third else ())))


def _attention(
    heads: Heads, hidden: int, bias: bool, *, own_kv: bool, head_norm: bool, one_projection: bool = False
) -> tuple[Weight, ...]:
    """Projections of one layer; a borrowing layer has no K and V, and where K = V one projection serves both."""
    names = [("q_proj", heads.query), *([("k_proj", heads.kv), ("v_proj", heads.kv)] if own_kv else [])]
    if own_kv and one_projection:
        names.pop()
    projections = [
        Weight(f"self_attn.{name}", "attention", (count * heads.dim, hidden), heads=0 if name == "q_proj" else heads.kv)
        for name, count in names
    ]
    projections.append(Weight("self_attn.o_proj", "attention", (hidden, heads.query * heads.dim)))
    biases = [vector(f"{weight.name}.bias", weight.shape[0]) for weight in projections if bias]
    norms = ("self_attn.q_norm", "self_attn.k_norm")[: 1 + own_kv] if head_norm else ()
    return (*projections, *biases, *(vector(name, heads.dim) for name in norms))


def _per_layer(cfg: Config, hidden: int, default: int) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    """Per-layer embeddings: what each block holds for them, and what stands outside."""
    width = cfg.integer("hidden_size_per_layer_input", default=default, minimum=0)
    if not width:
        return (), ()
    total, vocab = cfg.layers() * width, cfg.integer("vocab_size_per_layer_input", default=262144)
    block = (
        Weight("per_layer_input_gate", "mlp", (width, hidden), "none"),
        Weight("per_layer_projection", "mlp", (hidden, width), "none"),
        norm("post_per_layer_input_norm", hidden),
    )
    outer = (
        Weight("embed_tokens_per_layer", "embedding", (vocab, total)),
        Weight("per_layer_model_projection", "other", (total, hidden), "none"),
        norm("per_layer_projection_norm", width),
    )
    return block, outer


def _projections(cfg: Config, shape: Gemma, number: int) -> tuple[Weight, ...]:
    is_full = shape.types[number] == FULL
    return _attention(
        shape.full if is_full else shape.local,
        cfg.integer("hidden_size"),
        cfg.flag("attention_bias"),
        own_kv=number < shape.first_shared,
        head_norm=True,
        one_projection=is_full and cfg.flag("attention_k_eq_v"),
    )


@weighs("gemma3n", "gemma3n_text")
def gemma3n_weights(cfg: Config) -> Inventory:
    """Checkpoints also ship K and V projections of the borrowing layers, which engines do not load."""
    hidden, shape = cfg.integer("hidden_size"), gemma3n_shape(cfg)
    copies, rank = cfg.integer("altup_num_inputs", default=4), cfg.integer("laurel_rank", default=64)
    per_block, outside = _per_layer(cfg, hidden, default=256)
    inner = cfg.get("intermediate_size")
    inners = cfg.integers("intermediate_size", minimum=1) if isinstance(inner, list) else None
    widths = (
        cfg.cut("intermediate_size", inners, cfg.layers()) if inners
        else [cfg.integer("intermediate_size")] * cfg.layers()
    )  # fmt: skip
    extras = (
        vector("altup.correct_output_scale", hidden, "other"),
        Weight("altup.correction_coefs", "other", (copies, copies), "none"),
        Weight("altup.prediction_coefs", "other", (copies * copies, copies), "none"),
        Weight("altup.modality_router", "other", (copies, hidden), "none"),
        vector("altup.router_norm", hidden, "other"),
        Weight("laurel.linear_left", "other", (rank, hidden), "none"),
        Weight("laurel.linear_right", "other", (hidden, rank), "none"),
        vector("laurel.post_laurel_norm", hidden, "other"),
    )
    blocks = tuple(
        (
            *_projections(cfg, shape, number),
            *mlp(hidden, width),
            *extras,
            *per_block,
            *block_norms(hidden, *_FOUR_NORMS),
        )
        for number, width in enumerate(widths)
    )
    mixing = Weight("altup_projections", "other", (hidden, hidden), "none", 2 * (copies - 1))
    towers = (Weight("towers", "vision", (GEMMA3N_TOWERS,), "none"),) if cfg.outer is not None else ()
    return Inventory(blocks, (*_embeddings(cfg, hidden, 262400), *outside, mixing, *towers))


@weighs("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text")
def gemma4_weights(cfg: Config) -> Inventory:
    """The checkpoint also ships K and V projections of the borrowing layers, which engines do not load.

    They and the parts here sum to the published 5,123,178,051 of E2B; 12B closes without (11,959,730,224).
    """
    hidden, shape = cfg.integer("hidden_size"), gemma4_shape(cfg)
    unified = cfg.text("model_type").startswith("gemma4_unified")
    per_block, outside = ((), ()) if unified else _per_layer(cfg, hidden, default=256)
    inner, wide = cfg.integer("intermediate_size"), cfg.flag("use_double_wide_mlp")
    experts = _experts(cfg, hidden) if cfg.flag("enable_moe_block") else ()
    blocks = tuple(
        (
            *_projections(cfg, shape, number),
            *mlp(hidden, inner * 2 if wide and number >= shape.first_shared else inner),
            *experts,
            *per_block,
            *block_norms(hidden, *_FOUR_NORMS),
            vector("layer_scalar", 1, "other"),
        )
        for number in range(cfg.layers())
    )
    sight, hearing = (gemma4_unified, gemma4_unified_audio) if unified else (gemma4, gemma4_audio)
    towers = (*tower(cfg, sight), *tower(cfg, hearing, "audio_config"))
    return Inventory(blocks, (*_embeddings(cfg, hidden, 262144), *outside, *towers))


def _experts(cfg: Config, hidden: int) -> tuple[Weight, ...]:
    """Routed experts beside the dense MLP, with three norms of their own."""
    count, inner = cfg.integer("num_experts"), cfg.integer("moe_intermediate_size")
    return (
        Weight("router.proj", "router", (count, hidden), "none"),
        vector("router.scale", hidden, "router"),
        vector("router.per_expert_scale", count, "router"),
        *(Weight(f"experts.{name}", "expert", (inner, hidden), "ep", count) for name in ("gate_proj", "up_proj")),
        Weight("experts.down_proj", "expert", (hidden, inner), "ep", count),
        *block_norms(
            hidden, "post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"
        ),
    )
