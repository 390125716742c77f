"""Families register the `model_type` strings they read."""

from collections.abc import Callable
from dataclasses import dataclass

from kvplan.architectures._config import Config
from kvplan.layers.base import Layer
from kvplan.model import Inventory


@dataclass(frozen=True, slots=True)
class Decoder:
    """What a family reads about storage; the rest of a Model is read the same way for every family."""

    blocks: tuple[tuple[Layer, ...], ...]
    """The sequence mixers of each decoder block, in order."""
    mtp: tuple[Layer, ...] = ()
    num_attention_heads: int = 0
    state_dtype: str | None = None
    num_experts: int = 0
    experts_per_token: int = 0
    max_context_tokens: int | None = None
    """Only where the usual keys do not say it."""


Layers = Callable[[Config], Decoder]
Weigher = Callable[[Config], Inventory]
LAYERS: dict[str, Layers] = {}
WEIGHTS: dict[str, Weigher] = {}


def reads(*model_types: str) -> Callable[[Layers], Layers]:
    """Register a function that reads what the layers store. Outer multimodal types are listed too."""

    def register(reader: Layers) -> Layers:
        for model_type in model_types:
            if model_type in LAYERS:
                raise RuntimeError(f"two readers for model_type {model_type!r}")
            LAYERS[model_type] = reader
        return reader

    return register


def weighs(*model_types: str) -> Callable[[Weigher], Weigher]:
    """Register a function that reads the weights. It may need fields that a config lacks; layers never wait for it."""

    def register(weigher: Weigher) -> Weigher:
        WEIGHTS.update(dict.fromkeys(model_types, weigher))
        return weigher

    return register
