"""Inkling: a window in most layers, and four short convolutions in each: over keys, values, and both outputs.

What one sequence needs is one tail per convolution at that layer's own width (transformers modeling_inkling,
vLLM amd/sconv_swa_attn). SGLang 0.5.23 allots every layer the widths of both kinds: 7,299,072 B instead of 6,352,896.
"""

from kvplan.architectures._attention import pick
from kvplan.architectures._config import Config
from kvplan.architectures._heads import Heads
from kvplan.architectures._registry import Decoder, reads
from kvplan.layers.base import Layer
from kvplan.layers.full import Full
from kvplan.layers.linear import ShortConv
from kvplan.layers.windowed import SlidingWindow

_HYBRID, _SLIDING = "hybrid", "hybrid_sliding"
_HARMLESS = (
    "swa_num_attention_heads",
    "mtp_local_layer_ids",
    "num_mtp_layers",
    "num_nextn_predict_layers",
)


@reads("inkling_mm_model", "inkling_model", "inkling_text")
def layers(cfg: Config) -> Decoder:
    """Layers of `local_layer_ids` (0-based) keep a window and have heads of their own. Draft layers are not counted."""
    depth, hidden = cfg.layers(), cfg.integer("hidden_size")
    full = Heads(cfg.count("num_attention_heads"), cfg.integer("num_key_value_heads"), cfg.integer("head_dim"))
    local = Heads(full.query, cfg.integer("swa_num_key_value_heads"), cfg.integer("swa_head_dim"))
    window = cfg.integer("sliding_window_size", "sliding_window")
    taps = cfg.integer("sconv_kernel_size", "conv_kernel_size", default=4)
    v_dim, local_v_dim = cfg.maybe("v_head_dim") or full.dim, cfg.maybe("swa_v_head_dim") or local.dim
    if cfg.integer("number_of_conv_states", default=4) != 4:
        raise cfg.fail("number_of_conv_states", "other than 4 is not modelled for Inkling")
    if not cfg.flag("use_sconv", True):
        raise cfg.fail("use_sconv", "false is not modelled for Inkling")
    cfg.ignore(*_HARMLESS)
    kinds: dict[str, Layer] = {
        _HYBRID: Full(full.kv, full.dim, v_dim),
        _SLIDING: SlidingWindow(local.kv, local.dim, local_v_dim, window),
    }
    tails: dict[str, Layer] = {
        _HYBRID: ShortConv(full.kv * (full.dim + v_dim) + 2 * hidden, taps),
        _SLIDING: ShortConv(local.kv * (local.dim + local_v_dim) + 2 * hidden, taps),
    }
    return Decoder(
        tuple((pick(cfg, name, kinds), tails[name]) for name in _types(cfg, depth)),
        num_attention_heads=full.query,
        num_experts=cfg.count("n_routed_experts"),
        experts_per_token=cfg.count("num_experts_per_tok"),
    )


def _types(cfg: Config, depth: int) -> list[str]:
    if cfg.get("layer_types", default=None) is not None:
        cfg.ignore("local_layer_ids")
        return [str(name) for name in cfg.cut("layer_types", cfg.texts("layer_types"), depth)]
    local = set(cfg.integers("local_layer_ids"))
    return [_SLIDING if number in local else _HYBRID for number in range(depth)]
