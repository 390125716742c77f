"""A model as kvplan sees it: decoder blocks that store things, and an inventory of what they weigh."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from kvplan.layers.base import Layer

Split = Literal["tp", "ep", "none"]
Role = Literal["attention", "mlp", "shared_expert", "expert", "router", "norm", "embedding", "head", "vision", "other"]


@dataclass(frozen=True, slots=True)
class Weight:
    """`count` equal tensors of `shape`. `name` is the module path inside its block, as checkpoints spell it."""

    name: str
    role: Role
    shape: tuple[int, ...]
    split: Split = "tp"
    """How tensor parallelism treats it: "tp" shared out, "ep" as routed experts, "none" one copy a rank."""
    count: int = 1
    heads: int = 0
    """For key and value projections: KV heads, replicated beyond that many ranks; 0 = splits freely."""

    @property
    def params(self) -> int:
        return prod(self.shape) * self.count


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every weight of a model, by where pipeline parallelism puts it."""

    blocks: tuple[tuple[Weight, ...], ...]
    """One tuple per decoder block, in order."""
    outer: tuple[Weight, ...] = ()
    """Embedding, head, final norm and whatever stands outside the decoder."""
    mtp: tuple[Weight, ...] = ()
    """Multi-token-prediction blocks shipped with the model."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """`count` equal tensors of a checkpoint, as its headers list them. Expert numbers in `name` become `*`."""

    name: str
    dtype: str
    """As the header spells it: BF16, F8_E4M3, U8, or a GGUF type."""
    shape: tuple[int, ...]
    bytes: int
    """Of one tensor."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model or figure comes from."""

    origin: str
    date: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """What the publisher states and arithmetic cannot give. None = not stated."""

    params_total: int | None = None
    params_active: int | None = None
    checkpoint_bytes: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """A model read from a config, a profile or a GGUF header."""

    name: str
    source: Source
    model_type: str
    architecture: str
    dtype: str
    """Activation dtype, canonical; what `auto` means for the KV cache and the convolution tail."""
    blocks: tuple[tuple[Layer, ...], ...]
    """The sequence mixers of each decoder block, in order: none, one, or several in parallel."""
    mtp: tuple[Layer, ...] = ()
    """Mixers of the multi-token-prediction blocks shipped with the model; not part of its own cache."""
    weights: Inventory | None = None
    """None where the config lacks a field that sizes them; `weights_missing` names it."""
    weights_missing: str = ""
    num_attention_heads: int = 0
    """Query heads, which tensor parallelism has to divide; 0 where there is no attention."""
    max_context_tokens: int | None = None
    state_dtype: str | None = None
    """What the config asks for the recurrent state, canonical; None = it does not say."""
    kv_cache_dtype: str | None = None
    """What the checkpoint's quantization config asks for the KV cache; None = it does not say."""
    num_experts: int = 0
    experts_per_token: int = 0
    quantization: dict[str, Any] = field(default_factory=dict)
    published: Published = Published()
    unread: tuple[str, ...] = ()
    """Config keys that no rule reads and that do not change what is stored."""
    defaults: tuple[str, ...] = ()
    """Fields the config leaves out and that were filled from the family's documented default."""
    hf_id: str = ""
    """Its id on the Hugging Face hub; empty where it has none."""
    snapshot: str | None = None
    """Directory the model was read from, if it came from one."""
    tensors: tuple[Tensor, ...] = ()
    """Every tensor of the checkpoint, from safetensors or GGUF headers; empty where there were none to read."""
    tensors_missing: str = ""
    """Why `tensors` is empty although the source names weight files."""
    towers: tuple[str, ...] = ()
    """Sub-configs of other modalities (`vision_config`, …), whose weights the decoder's rules do not size."""

    def mixers(self) -> Iterator[Layer]:
        """Every sequence mixer of the decoder, in order."""
        for block in self.blocks:
            yield from block

    def layer_counts(self) -> dict[str, int]:
        """Mixers by kind; blocks without one count as "none"."""
        kinds = Counter(mixer.kind for mixer in self.mixers())
        kinds["none"] = sum(not block for block in self.blocks)
        return {kind: count for kind, count in kinds.items() if count}
