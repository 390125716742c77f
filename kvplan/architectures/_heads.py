"""Head counts, expert counts and per-layer type lists, for families whose configs state all of them."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from kvplan.architectures._config import Config
from kvplan.layers.full import Full
from kvplan.layers.windowed import SlidingWindow

T = TypeVar("T")


class Heads(NamedTuple):
    """Query heads (0 where the config leaves them out and storage is clear without), KV heads, head width."""

    query: int
    kv: int
    dim: int

    @property
    def full(self) -> Full:
        return Full(self.kv, self.dim, self.dim)

    def sliding(self, window: int) -> SlidingWindow:
        return SlidingWindow(self.kv, self.dim, self.dim, window)


def heads(
    cfg: Config, *, derive: bool = True, weighed: bool = False, dim_keys: tuple[str, ...] = ("head_dim",)
) -> Heads:
    """The heads of a config. `derive` divides hidden_size where the family does so when the width is absent;
    `weighed` insists on query heads, which projections need and the cache does not.

    Raises ConfigError where the counts do not divide.
    """
    query = cfg.integer("num_attention_heads") if weighed else cfg.maybe("num_attention_heads") or 0
    kv = cfg.integer("num_key_value_heads")
    if query % kv:
        raise cfg.fail("num_key_value_heads", f"{kv} does not divide num_attention_heads {query}")
    dim = cfg.maybe(*dim_keys) if derive else cfg.integer(*dim_keys)
    return Heads(query, kv, dim or quotient(cfg, cfg.integer("num_attention_heads")))


def quotient(cfg: Config, query: int) -> int:
    """The head width that hidden_size and the query heads imply."""
    hidden = cfg.integer("hidden_size")
    if hidden % query:
        raise cfg.fail("hidden_size", f"{hidden} is not a multiple of num_attention_heads {query}")
    return hidden // query


def by_name(cfg: Config, key: str, layers: int, known: Mapping[str, T]) -> tuple[T, ...]:
    """One entry of `known` per decoder layer, from a list of type names."""
    names = cfg.cut(key, cfg.texts(key), layers)
    for name in names:
        if name not in known:
            raise cfg.fail(key, f"{name[:40]!r} is not modelled; known here: {', '.join(known)}")
    return tuple(known[name] for name in names)


def experts(cfg: Config, *keys: str) -> tuple[int, int]:
    """Routed experts and experts per token; zeros in a dense model."""
    total = cfg.maybe(*keys, minimum=0) or 0
    return total, (cfg.maybe("num_experts_per_tok", minimum=0) or 0) if total else 0
