"""Llama and the dense models shaped like it: grouped-query attention in every layer, one MLP.

SmolLM3, Arcee, Seed-OSS and ERNIE 4.5 (dense) differ in biases and activation alone. Mllama adds layers that attend
to an image: they keep `max_num_tiles` × ((image_size / patch_size)² + 1) encoder tokens for one image.
"""

from kvplan.architectures._attention import FULL, Blocks, blocks, layer_types, projections, read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._heads import Heads
from kvplan.architectures._parts import block_norms, embeddings, mlp, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.borrowed import Cross
from kvplan.model import Inventory, Weight

_HARMLESS = ("compression_ratio", "no_rope_layers", "no_rope_layer_interval", "max_window_layers")


@reads("llama", "arcee", "seed_oss", "ernie4_5")
def layers(cfg: Config) -> Decoder:
    heads = read_heads(cfg)
    cfg.ignore(*_HARMLESS)
    types = layer_types(cfg, cfg.layers())
    mixers: Blocks = blocks(cfg, types, heads) if types else ((heads.full,),) * cfg.layers()
    return Decoder(mixers, num_attention_heads=heads.query)


@reads("smollm3")
def smollm3(cfg: Config) -> Decoder:
    """SmolLM3 windows its NoPE layers where `use_sliding_window` is true; layer_types say it, else no_rope_layers."""
    heads, depth = read_heads(cfg), cfg.layers()
    cfg.ignore(*_HARMLESS, "use_sliding_window")
    types = layer_types(cfg, depth)
    if types is None and cfg.flag("use_sliding_window") and cfg.has("sliding_window"):
        raise cfg.fail("use_sliding_window", "true without layer_types is not modelled for smollm3")
    return Decoder(blocks(cfg, types or [FULL] * depth, heads), num_attention_heads=heads.query)


@reads("mllama", "mllama_text_model")
def mllama(cfg: Config) -> Decoder:
    """Images per sequence are a property of the request; one is counted, padded to all tiles as engines do."""
    heads = read_heads(cfg)
    vision = cfg.sub("vision_config")
    side = vision.integer("image_size") // vision.integer("patch_size")
    tokens = vision.integer("max_num_tiles") * (side * side + 1)
    cross = Cross(heads.kv, heads.dim, heads.dim, tokens)
    places = set(cfg.integers("cross_attention_layers"))
    if any(place >= cfg.layers() for place in places):
        raise cfg.fail("cross_attention_layers", f"names a layer beyond the {cfg.layers()} there are")
    cfg.defaults.append(f"images per sequence = 1 ({tokens} encoder tokens)")
    vision.ignore(*vision.data)
    return Decoder(
        tuple((cross if number in places else heads.full,) for number in range(cfg.layers())),
        num_attention_heads=heads.query,
    )


def dense_block(
    cfg: Config, heads: Heads, *, qkv_bias: bool, o_bias: bool, mlp_bias: bool = False, gated: bool = True
) -> tuple[Weight, ...]:
    """A pre-norm block with one MLP."""
    hidden, inner = cfg.integer("hidden_size"), cfg.integer("intermediate_size")
    bias: tuple[Weight, ...] = ()
    if mlp_bias:
        ups = ("up_proj", "gate_proj") if gated else ("up_proj",)
        bias = (
            *(vector(f"mlp.{up}.bias", inner, "mlp", "tp") for up in ups),
            vector("mlp.down_proj.bias", hidden, "mlp"),
        )
    return (
        *projections(cfg, heads, qkv_bias=qkv_bias, o_bias=o_bias),
        *mlp(hidden, inner, gated=gated),
        *bias,
        *block_norms(hidden),
    )


@weighs("llama", "arcee", "smollm3", "seed_oss", "ernie4_5")
def weights(cfg: Config) -> Inventory:
    model_type = cfg.text("model_type")
    bias = cfg.flag("use_bias") if model_type == "ernie4_5" else cfg.flag("attention_bias", model_type == "seed_oss")
    block = dense_block(
        cfg, read_heads(cfg),
        qkv_bias=bias,
        o_bias=cfg.flag("attention_out_bias") if model_type == "seed_oss" else bias,
        mlp_bias=bias if model_type == "ernie4_5" else cfg.flag("mlp_bias"),
        gated=model_type != "arcee",
    )  # fmt: skip
    tied = model_type in ("smollm3", "ernie4_5")
    return Inventory((block,) * cfg.layers(), embeddings(cfg, cfg.integer("hidden_size"), tied_default=tied))
