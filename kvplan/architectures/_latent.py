"""What DeepSeek V3 handed to many families: latent attention, its sparse index, experts after dense layers, MTP."""

from kvplan.architectures._config import Config
from kvplan.architectures._parts import block_norms, embeddings, mla, mlp, moe, norm, vector
from kvplan.architectures._registry import Decoder
from kvplan.layers.base import Layer
from kvplan.layers.dsa import Dsa
from kvplan.layers.mla import Mla
from kvplan.model import Inventory, Weight

_UNUSED = (
    "head_dim", "num_key_value_heads", "qk_nope_head_dim", "qk_head_dim", "v_head_dim", "q_lora_rank", "index_n_heads",
    "indexer_rope_interleave", "index_share_for_mtp_iteration",
)  # fmt: skip

_TYPES = ("full_attention", "indexed_attention", "sparse_attention", "deepseek_sparse_attention", "mla", "attention")


def latent_layers(cfg: Config) -> tuple[list[Layer], tuple[Layer, ...]]:
    """Decoder and MTP mixers: MLA, with a sparse index where `index_topk` says so. MTP blocks own their index."""
    cfg.ignore(*_UNUSED)
    cfg.only("layer_types", *_TYPES)
    if not cfg.flag("use_mla", True):
        raise cfg.fail("use_mla", "false (keys and values for every head) is not modelled here")
    depth, mtp = cfg.layers(), cfg.count("num_nextn_predict_layers", maximum=64)
    latent, rope = cfg.integer("kv_lora_rank"), cfg.integer("qk_rope_head_dim", minimum=0)
    if not cfg.has("index_topk") and not cfg.has("index_head_dim"):
        layer: Layer = Mla(latent, rope)
        return [layer] * depth, (layer,) * mtp
    width, topk = cfg.integer("index_head_dim"), cfg.integer("index_topk")
    owner: Layer = Dsa(latent, rope, width, topk)
    reuser: Layer = Dsa(latent, rope, width, topk, owns_index=False)
    return [owner if owns else reuser for owns in index_owners(cfg, depth)], (owner,) * mtp


def index_owners(cfg: Config, layers: int) -> list[bool]:
    """True where a layer runs its own indexer; elsewhere the last choice is reused (IndexShare).

    Order of precedence and the offset's default as in transformers glm_moe_dsa and vLLM deepseek_v32.
    """
    for key in ("indexer_types", "index_topk_pattern"):
        cfg.ignore("indexer_types", "index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")
        if not cfg.has(key):
            continue
        kinds = list(cfg.text(key)) if isinstance(cfg.get(key), str) else cfg.texts(key)
        for kind in kinds:
            if kind not in ("full", "shared", "F", "S"):
                raise cfg.fail(key, f"{kind[:40]!r} is neither full nor shared")
        return [kind in ("full", "F") for kind in cfg.cut(key, kinds, layers)]
    if not cfg.has("index_topk_freq"):
        return [True] * layers
    every, offset = cfg.integer("index_topk_freq"), cfg.integer("index_skip_topk_offset", default=2, minimum=0)
    return [max(number - offset + 1, 0) % every == 0 for number in range(layers)]


def full_by_name(cfg: Config, layers: int) -> list[bool] | None:
    """What `layer_types` says of a hybrid: True for full attention, False for linear; None where it is absent."""
    if not cfg.has("layer_types"):
        return None
    cfg.only("layer_types", "full_attention", "linear_attention")
    return [kind == "full_attention" for kind in cfg.cut("layer_types", cfg.texts("layer_types"), layers)]


def moe_layers(cfg: Config, layers: int) -> list[bool]:
    """True where a layer has routed experts: a list per layer, or from `first_k_dense_replace` on."""
    if cfg.has("mlp_layer_types"):
        kinds = cfg.cut("mlp_layer_types", cfg.texts("mlp_layer_types"), layers)
        return [kind != "dense" for kind in kinds]
    if isinstance(cfg.get("moe_layer_freq", default=1), list):
        return [flag > 0 for flag in cfg.cut("moe_layer_freq", cfg.integers("moe_layer_freq"), layers)]
    first, every = cfg.integer("first_k_dense_replace", minimum=0), cfg.integer("moe_layer_freq", default=1)
    return [number >= first and number % every == 0 for number in range(layers)]


def latent_attention(cfg: Config, *, q_lora: bool = True, prefix: str = "self_attn") -> tuple[Weight, ...]:
    """The projections of one MLA layer."""
    hidden, heads = cfg.integer("hidden_size"), cfg.integer("num_attention_heads")
    q_rank = cfg.maybe("q_lora_rank") if q_lora else None
    kv_rank, rope = cfg.integer("kv_lora_rank"), cfg.integer("qk_rope_head_dim", minimum=0)
    nope, v_dim = cfg.integer("qk_nope_head_dim"), cfg.integer("v_head_dim")
    weights = mla(hidden, heads, q_rank, kv_rank, nope, rope, v_dim, prefix=prefix)
    if not cfg.flag("attention_bias"):
        return weights
    query_bias = () if q_rank is None else (vector(f"{prefix}.q_a_proj.bias", q_rank),)
    return (
        *weights,
        *query_bias,
        vector(f"{prefix}.kv_a_proj_with_mqa.bias", kv_rank + rope),
        vector(f"{prefix}.o_proj.bias", hidden),
    )


def indexer(cfg: Config) -> tuple[Weight, ...]:
    """The indexer of one sparse layer; every rank runs a whole one."""
    hidden, width = cfg.integer("hidden_size"), cfg.integer("index_head_dim")
    heads, q_rank = cfg.integer("index_n_heads"), cfg.integer("q_lora_rank")
    return (
        Weight("self_attn.indexer.wq_b", "attention", (heads * width, q_rank), "none"),
        Weight("self_attn.indexer.wk", "attention", (width, hidden), "none"),
        vector("self_attn.indexer.k_norm", width),
        vector("self_attn.indexer.k_norm.bias", width),
        Weight("self_attn.indexer.weights_proj", "attention", (heads, hidden), "none"),
    )


def feed_forward(cfg: Config) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    """The dense block and the expert block of a DeepSeek-like model."""
    hidden, inner = cfg.integer("hidden_size"), cfg.integer("moe_intermediate_size")
    shared = cfg.count("n_shared_experts", "num_shared_experts") * inner
    experts = cfg.integer("n_routed_experts", "num_local_experts", "num_experts")
    bias = cfg.text("topk_method", default="noaux_tc") == "noaux_tc"
    return (
        mlp(hidden, cfg.integer("intermediate_size")),
        moe(hidden, inner, experts, shared_inner=shared, router_bias=bias),
    )


def mtp_extras(cfg: Config, *, copies: bool) -> tuple[Weight, ...]:
    """What an MTP block has besides a decoder block; `copies` are an embedding and a head of its own."""
    hidden = cfg.integer("hidden_size")
    joint = (
        norm("enorm", hidden),
        norm("hnorm", hidden),
        Weight("eh_proj", "other", (hidden, 2 * hidden), "none"),
        norm("shared_head.norm", hidden),
    )
    if not copies:
        return joint
    table = (cfg.integer("vocab_size"), hidden)
    return (*joint, Weight("embed_tokens", "embedding", table), Weight("shared_head.head", "head", table))


def latent_decoder(cfg: Config) -> Decoder:
    """A decoder of MLA layers alone, with or without a sparse index."""
    decoder, mtp = latent_layers(cfg)
    return Decoder(
        tuple((layer,) for layer in decoder),
        mtp=mtp,
        num_attention_heads=cfg.integer("num_attention_heads"),
        num_experts=cfg.count("n_routed_experts", "num_local_experts", "num_experts"),
        experts_per_token=cfg.count("num_experts_per_tok", "num_experts_per_token"),
    )


def latent_weights(cfg: Config, *, mtp_copies: bool) -> Inventory:
    """The weights of such a decoder."""
    hidden, depth = cfg.integer("hidden_size"), cfg.layers()
    sparse = cfg.has("index_topk")
    owners = index_owners(cfg, depth) if sparse else [False] * depth
    attention, index = latent_attention(cfg), indexer(cfg) if sparse else ()
    ends, norms = feed_forward(cfg), block_norms(hidden)
    blocks = tuple(
        (*attention, *(index if owns else ()), *ends[has_experts], *norms)
        for owns, has_experts in zip(owners, moe_layers(cfg, depth), strict=True)
    )
    mtp = (*attention, *index, *ends[True], *norms, *mtp_extras(cfg, copies=mtp_copies))
    return Inventory(blocks, embeddings(cfg, hidden), mtp * cfg.count("num_nextn_predict_layers", maximum=64))
