"""DeepSeek V4: a window in every layer, and beside it a cache compressed 1:4 with an index, 1:128, or none.

Modules as in vLLM models/deepseek_v4; `deepseek_ref` is the model_type of the FP8 copies of sgl-project.
"""

from kvplan.architectures._config import Config
from kvplan.architectures._heads import by_name
from kvplan.architectures._parts import block_norms, embeddings, moe, norm, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.errors import MissingField
from kvplan.layers.base import Layer
from kvplan.layers.compressed import Csa, Hca, WindowOnly
from kvplan.model import Inventory, Weight

_RATIO_OF_TYPE = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def _ratios(cfg: Config, depth: int) -> list[int]:
    """Compression of every decoder layer; the list may carry one more entry for the MTP block.

    transformers writes `layer_types` instead when it saves the model. Its class default is not what ships: refused.
    """
    named = list(by_name(cfg, "layer_types", depth, _RATIO_OF_TYPE)) if cfg.has("layer_types") else None
    if named is not None and cfg.has("compress_rates"):
        rates = cfg.sub("compress_rates")
        for kind, ratio in _RATIO_OF_TYPE.items():
            if ratio and rates.integer(kind, default=ratio) != ratio:
                raise rates.fail(kind, "only the ratios 4 and 128 are modelled")
    cfg.ignore("compress_rates", "compress_rate_csa", "compress_rate_hca")
    if named is not None and not cfg.has("compress_ratios"):
        return named
    ratios = cfg.cut("compress_ratios", cfg.integers("compress_ratios"), depth)
    for ratio in ratios:
        if ratio not in (0, 4, 128):
            raise cfg.fail("compress_ratios", f"{ratio} is not modelled; only 0, 4 and 128 are")
    if named not in (None, ratios):
        raise cfg.fail("layer_types", "contradicts compress_ratios")
    return ratios


def _rope(cfg: Config, head_dim: int) -> int:
    """Positional elements inside head_dim."""
    if cfg.has("qk_rope_head_dim") or not cfg.has("partial_rotary_factor"):
        return cfg.integer("qk_rope_head_dim", maximum=head_dim)
    factor = cfg.get("partial_rotary_factor")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 1:
        raise cfg.fail("partial_rotary_factor", "expected a number from 0 to 1")
    return int(head_dim * factor)


@reads("deepseek_v4", "deepseek_ref")
def layers(cfg: Config) -> Decoder:
    head_dim, window = cfg.integer("head_dim"), cfg.integer("sliding_window")
    if cfg.integer("num_key_value_heads", default=1) != 1:
        raise cfg.fail("num_key_value_heads", "DeepSeek V4 keeps one KV head; more are not modelled")
    rope = _rope(cfg, head_dim)
    plain: Layer = WindowOnly(head_dim, rope, window)
    kinds: dict[int, Layer] = {0: plain, 128: Hca(head_dim, rope, window, 128)}
    ratios = _ratios(cfg, cfg.layers())
    if 4 in ratios:
        kinds[4] = Csa(head_dim, rope, window, 4, cfg.integer("index_head_dim"), cfg.integer("index_topk"))
    cfg.ignore("index_n_heads", "index_head_dim", "index_topk", "q_lora_rank", "o_lora_rank", "o_groups")
    cfg.ignore("compress_rope_theta", "partial_rotary_factor")
    return Decoder(
        tuple((kinds[ratio],) for ratio in ratios),
        mtp=(plain,) * cfg.count("num_nextn_predict_layers", maximum=64),
        num_attention_heads=cfg.integer("num_attention_heads"),
        num_experts=cfg.count("n_routed_experts", "num_local_experts"),
        experts_per_token=cfg.count("num_experts_per_tok"),
    )


def _compressor(cfg: Config, name: str, width: int, ratio: int) -> tuple[Weight, ...]:
    """What folds `ratio` tokens into one entry; the windows of ratio 4 overlap, so its rows are twice as wide."""
    rows = width * (2 if ratio == 4 else 1)
    hidden = cfg.integer("hidden_size")
    return (
        Weight(f"{name}.ape", "attention", (ratio, rows), "none"),
        Weight(f"{name}.wkv", "attention", (rows, hidden), "none"),
        Weight(f"{name}.wgate", "attention", (rows, hidden), "none"),
        vector(f"{name}.norm", width),
    )


def _attention(cfg: Config, ratio: int) -> tuple[Weight, ...]:
    hidden, heads, head_dim = cfg.integer("hidden_size"), cfg.integer("num_attention_heads"), cfg.integer("head_dim")
    q_rank, o_rows = cfg.integer("q_lora_rank"), cfg.integer("o_groups") * cfg.integer("o_lora_rank")
    base = (
        Weight("attn.wq_a", "attention", (q_rank, hidden), "none"),
        vector("attn.q_norm", q_rank),
        Weight("attn.wq_b", "attention", (heads * head_dim, q_rank)),
        Weight("attn.wkv", "attention", (head_dim, hidden), "none"),
        vector("attn.kv_norm", head_dim),
        Weight("attn.wo_a", "attention", (o_rows, heads * head_dim // cfg.integer("o_groups"))),
        Weight("attn.wo_b", "attention", (hidden, o_rows)),
        vector("attn.attn_sink", heads, split="tp"),
    )
    if ratio == 0:
        return base
    compressed = (*base, *_compressor(cfg, "attn.compressor", head_dim, ratio))
    if ratio != 4:
        return compressed
    index_heads, width = cfg.integer("index_n_heads"), cfg.integer("index_head_dim")
    return (
        *compressed,
        Weight("attn.indexer.wq_b", "attention", (index_heads * width, q_rank), "none"),
        Weight("attn.indexer.weights_proj", "attention", (index_heads, hidden), "none"),
        *_compressor(cfg, "attn.indexer.compressor", width, ratio),
    )


def _experts(cfg: Config, *, hashed: bool) -> tuple[Weight, ...]:
    """Routed and shared experts; the first layers route by a table of token ids instead of a bias."""
    hidden, inner = cfg.integer("hidden_size"), cfg.integer("moe_intermediate_size")
    shared = cfg.count("n_shared_experts") * inner
    experts = moe(
        hidden, inner, cfg.integer("n_routed_experts", "num_local_experts"), shared_inner=shared,
        router_bias=not hashed, prefix="ffn",
    )  # fmt: skip
    if not hashed:
        return experts
    table = (cfg.integer("vocab_size"), cfg.integer("num_experts_per_tok"))
    return (*experts, Weight("ffn.gate.tid2eid", "other", table, "none"))


def _hyper_connection(cfg: Config, name: str) -> tuple[Weight, ...]:
    """The mixing of the residual streams around one sublayer."""
    streams = cfg.integer("hc_mult")
    rows, width = (2 + streams) * streams, streams * cfg.integer("hidden_size")
    return (
        Weight(f"{name}_fn", "other", (rows, width), "none"),
        vector(f"{name}_base", rows, "other"),
        vector(f"{name}_scale", 3, "other"),
    )


def _hyper_head(cfg: Config) -> tuple[Weight, ...]:
    streams = cfg.integer("hc_mult")
    return (
        Weight("hc_head_fn", "other", (streams, streams * cfg.integer("hidden_size")), "none"),
        vector("hc_head_base", streams, "other"),
        vector("hc_head_scale", 1, "other"),
    )


def _mtp(cfg: Config) -> tuple[Weight, ...]:
    """What an MTP block has besides a decoder block of ratio 0; embedding and head are the model's own."""
    hidden = cfg.integer("hidden_size")
    return (
        norm("enorm", hidden),
        norm("hnorm", hidden),
        Weight("e_proj", "other", (hidden, hidden), "none"),
        Weight("h_proj", "other", (hidden, hidden), "none"),
        norm("norm", hidden),
        *_hyper_head(cfg),
    )


@weighs("deepseek_v4", "deepseek_ref")
def weights(cfg: Config) -> Inventory:
    if cfg.count("vision_n_layers"):
        raise MissingField("the weights of vision_n_layers are not modelled for DeepSeek V4")
    hidden, depth = cfg.integer("hidden_size"), cfg.layers()
    around = (*block_norms(hidden, "attn_norm", "ffn_norm"), *_hyper_connection(cfg, "hc_attn"))
    around += _hyper_connection(cfg, "hc_ffn")
    hashed = cfg.integer("num_hash_layers", minimum=0)
    blocks = tuple(
        (*_attention(cfg, ratio), *_experts(cfg, hashed=number < hashed), *around)
        for number, ratio in enumerate(_ratios(cfg, depth))
    )
    mtp = (*_attention(cfg, 0), *_experts(cfg, hashed=False), *around, *_mtp(cfg))
    outer = (*embeddings(cfg, hidden), *_hyper_head(cfg))
    return Inventory(blocks, outer, mtp * cfg.count("num_nextn_predict_layers", maximum=64))
