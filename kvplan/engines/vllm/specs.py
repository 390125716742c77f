"""What vLLM's planner sees of a model: one spec per cache of a layer (v1/kv_cache_interface.py)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvplan.units import ceil_div

Kind = Literal["full", "latent", "sliding", "sliding_latent", "chunked", "state", "encoder"]
GROWING = ("full", "latent")
WINDOWED = ("sliding", "sliding_latent")


@dataclass(frozen=True, slots=True)
class Spec:
    """One cache of one layer on one rank. Specs that compare equal may share a group."""

    kind: Kind
    block_tokens: int
    row_bytes: int
    """One stored row of `tokens_per_row` tokens; the whole state for `state`."""
    shape: tuple[object, ...] = ()
    """What tells apart layers of equal size: heads, widths, element bits."""
    tokens_per_row: int = 1
    window: int | None = None
    """Sliding window or chunk, in tokens; encoder positions for `encoder`."""
    padded_bytes: int | None = None
    align_bytes: int = 1
    """Pages are rounded up to a multiple of it."""
    dcp_sharded: bool = True
    state_blocks: int | None = 1
    """Blocks per request of a state; None = one per block of tokens."""
    drafts: int = 0
    """Of a state: speculative tokens with a block of their own."""

    @property
    def real_bytes(self) -> int:
        """A page without padding."""
        if self.kind == "state":
            return self.row_bytes
        return self.block_tokens // self.tokens_per_row * self.row_bytes

    @property
    def page_bytes(self) -> int:
        if self.padded_bytes is not None:
            return self.padded_bytes
        return ceil_div(self.real_bytes, self.align_bytes) * self.align_bytes

    def padded_to(self, page_bytes: int) -> "Spec":
        return replace(self, padded_bytes=page_bytes)

    def with_block(self, block_tokens: int) -> "Spec":
        return replace(self, block_tokens=block_tokens)

    def blocks(self, tokens: int, in_flight: int, dcp: int = 1) -> int:
        """Blocks that vLLM reckons for one request of `tokens` tokens, `in_flight` tokens being scheduled at most."""
        if self.kind == "state":
            return ceil_div(tokens, self.block_tokens) if self.state_blocks is None else self.state_blocks
        if self.kind == "encoder":
            return ceil_div(self.window or 0, self.block_tokens)
        if self.kind == "chunked":
            return ceil_div(min((self.window or 0) + in_flight, tokens), self.block_tokens)
        if self.kind in WINDOWED:
            return ceil_div(min((self.window or 1) - 1 + in_flight, tokens), self.block_tokens) + 1
        return ceil_div(ceil_div(tokens, dcp if self.dcp_sharded else 1), self.block_tokens)


def same_type(first: Spec, second: Spec) -> bool:
    """Whether both need the same number of blocks always (UniformTypeKVCacheSpecs.is_uniform_type)."""
    if first.block_tokens != second.block_tokens or first.dcp_sharded != second.dcp_sharded:
        return False
    if first.kind in GROWING:
        return second.kind in GROWING
    if first.kind == "state":
        alike = (first.state_blocks, first.drafts, first.page_bytes) == (
            second.state_blocks, second.drafts, second.page_bytes,
        )  # fmt: skip
        return second.kind == "state" and alike
    kinds = WINDOWED if first.kind == "sliding" else (first.kind,)
    return second.kind in kinds and first.window == second.window


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share one block table. `layers` are positions in the list of specs that was grouped."""

    layers: tuple[int, ...]
    specs: tuple[Spec, ...]
    slots: int
    """Layers that fit beside one another in a block; more than `layers` where the group is padded."""

    @property
    def spec(self) -> Spec:
        return self.specs[0]

    @property
    def page_bytes(self) -> int:
        """One block of this group, over all its layers."""
        return sum(spec.page_bytes for spec in self.specs)

    def on_stage(self, first: int, stop: int) -> "Group":
        """The part of this group that lies on layers `first` to `stop` - 1, as pipeline parallelism splits it."""
        kept = [(layer, spec) for layer, spec in zip(self.layers, self.specs, strict=True) if first <= layer < stop]
        return Group(tuple(layer for layer, _ in kept), tuple(spec for _, spec in kept), self.slots)

    def blocks(self, tokens: int, in_flight: int, dcp: int = 1) -> int:
        """Blocks that vLLM reckons for one request."""
        return max(spec.blocks(tokens, in_flight, dcp) for spec in self.specs)


def make_group(positions: Sequence[int], specs: Sequence[Spec], slots: int) -> Group:
    return Group(tuple(positions), tuple(specs[position] for position in positions), slots)
