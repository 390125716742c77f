"""EXAONE 4: a window in most layers of the large models (`LLLG`), none in the small ones."""

from kvplan.architectures._attention import FULL, SLIDING, blocks, every, layer_types, projections, read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._parts import block_norms, embeddings, mlp
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.errors import MissingField
from kvplan.model import Inventory


@reads("exaone4")
def layers(cfg: Config) -> Decoder:
    heads, depth = read_heads(cfg), cfg.layers()
    types = layer_types(cfg, depth)
    cfg.ignore("sliding_window_pattern")
    if types is None:
        types = _pattern(cfg, depth)
    return Decoder(blocks(cfg, types, heads), num_attention_heads=heads.query)


def _pattern(cfg: Config, depth: int) -> list[str]:
    """`sliding_window_pattern`: a period, or a string of L (window) and G (global) that repeats; the last is global."""
    for key in ("sliding_window", "sliding_window_pattern"):
        if cfg.absent(key):
            raise MissingField(f"{cfg.name(key)} is missing (null would mean no window)")
    pattern = cfg.get("sliding_window_pattern", default=None)
    if pattern is None or cfg.get("sliding_window", default=None) is None:
        return [FULL] * depth
    if not isinstance(pattern, str):
        return every(depth, cfg.integer("sliding_window_pattern"))
    if not pattern or set(pattern) - {"L", "G"}:
        raise cfg.fail("sliding_window_pattern", f"{pattern[:40]!r} is not a period or a string of L and G")
    types = [SLIDING if pattern[number % len(pattern)] == "L" else FULL for number in range(depth)]
    return [*types[:-1], FULL]


@weighs("exaone4")
def weights(cfg: Config) -> Inventory:
    """Norms stand behind attention and MLP; q and k are normed per head."""
    hidden = cfg.integer("hidden_size")
    block = (
        *projections(cfg, read_heads(cfg), head_norm=True),
        *mlp(hidden, cfg.integer("intermediate_size")),
        *block_norms(hidden, "post_attention_layernorm", "post_feedforward_layernorm"),
    )
    return Inventory((block,) * cfg.layers(), embeddings(cfg, hidden))
