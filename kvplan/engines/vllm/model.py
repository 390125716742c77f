"""From the layers of one rank to the specs that vLLM's planner is given (each layer's get_kv_cache_spec)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvplan.deployment import Deployment
from kvplan.dtypes import Dtypes
from kvplan.engines.vllm.settings import Blocks, Settings, block_sizes, window_block, with_drafts
from kvplan.engines.vllm.specs import Kind, Spec
from kvplan.errors import PlacementError, UsageError
from kvplan.layers.base import Layer, Stored

_PACKED_WINDOW_BLOCK = 64
_PACKED_ALIGNMENT = {"fp8_ds_mla": 576}
"""Page alignment of DeepSeek V4's records; 512 for its other formats (models/deepseek_v4/attention.py)."""
_RING_BLOCKS = {8: 4, 128: 8}
"""Tokens per block of DeepSeek V4's compressor rings, by the tokens that they hold (deepseek_v4/compressor.py)."""


@dataclass(frozen=True, slots=True)
class Specs:
    """The specs of a model in layer order, where each pipeline stage ends among them, and its block sizes."""

    specs: tuple[Spec, ...]
    stops: tuple[int, ...]
    blocks: Blocks
    packed: bool
    """The model's kernels need a block-outermost layout."""


def model_specs(
    stages: Sequence[Sequence[Layer]], draft: Sequence[Layer], settings: Settings, dtypes: Dtypes,
    deployment: Deployment, max_model_len: int,
) -> Specs:  # fmt: skip
    """Specs of every layer, the draft's behind those of the last stage.

    Raises PlacementError where the release cannot serve such layers under this layout.
    """
    layers = [layer for stage in stages for layer in stage]
    if deployment.dcp > 1 and any(_windows(layer, dtypes) for layer in layers):
        raise PlacementError("--dcp: vLLM does not split sliding-window or chunked layers over ranks")
    row, state = _attention_row(layers, dtypes), _largest_state(layers, settings, deployment, dtypes)
    blocks = block_sizes(settings, deployment, dtypes, layers, row, state)
    maker = _Maker(settings, deployment, dtypes, blocks, max_model_len)
    made = {layer: maker.specs(layer) for layer in {*layers, *draft}}
    specs: list[Spec] = []
    stops: list[int] = []
    for stage in stages:
        specs += [spec for layer in stage for spec in made[layer]]
        stops.append(len(specs))
    own = [
        replace(spec, dcp_sharded=False) if deployment.dcp > 1 and spec.window else spec
        for layer in draft
        for spec in made[layer]
    ]
    specs += own
    stops[-1] = len(specs)
    return Specs(tuple(specs), tuple(stops), blocks, any(layer.packed for layer in layers))


def _windows(layer: Layer, dtypes: Dtypes) -> bool:
    return any(tensor.window is not None for tensor in layer.stored(dtypes))


def _growing(layer: Layer, dtypes: Dtypes) -> list[Stored]:
    return [tensor for tensor in layer.stored(dtypes) if tensor.role == "kv" and tensor.per == "token"]


def _attention_row(layers: Sequence[Layer], dtypes: Dtypes) -> int | None:
    """One token of the model's attention on one rank: the commonest layer that keeps everything, else a window's."""
    rows: Counter[int] = Counter()
    windows: Counter[int] = Counter()
    for layer in layers:
        tensors = _growing(layer, dtypes)
        if not tensors:
            continue
        kept = windows if tensors[0].window is not None else rows
        kept[sum(tensor.entry_bytes for tensor in tensors)] += 1
    found = rows or windows
    return found.most_common(1)[0][0] if found else None


def _state_tensors(layer: Layer, settings: Settings, deployment: Deployment, dtypes: Dtypes) -> tuple[Stored, ...]:
    """What a state page holds: the state, the convolution's tail, and replay records where they lie in the page."""
    tensors = tuple(tensor for tensor in layer.stored(dtypes) if tensor.role in ("state", "conv"))
    if not tensors or layer.packed or not deployment.use_replayssm:
        return tensors
    record = layer.replay_record(settings.drafts, deployment.replayssm_buffer_len)
    if not record:
        raise UsageError("--use-replayssm: vLLM has no replay for the state layers of this model")
    outside = layer.checkpoint_kernel() == "flashkda" and not settings.rules.record_in_page
    return tensors if outside else tensors + record


def _state_bytes(layer: Layer, settings: Settings, deployment: Deployment, dtypes: Dtypes) -> int:
    tensors = _state_tensors(layer, settings, deployment, dtypes)
    return sum(with_drafts(tensor, settings.drafts) for tensor in tensors)


def _largest_state(layers: Sequence[Layer], settings: Settings, deployment: Deployment, dtypes: Dtypes) -> int | None:
    sizes = [_state_bytes(layer, settings, deployment, dtypes) for layer in set(layers) if not layer.packed]
    return max(sizes, default=0) or None


@dataclass(frozen=True, slots=True)
class _Maker:
    settings: Settings
    deployment: Deployment
    dtypes: Dtypes
    blocks: Blocks
    max_model_len: int

    def specs(self, layer: Layer) -> tuple[Spec, ...]:
        tensors = layer.stored(self.dtypes)
        kv = [tensor for tensor in tensors if tensor.role == "kv"]
        tokens = [tensor for tensor in kv if tensor.per == "token"]
        parts = [
            self._rows(layer, [tensor for tensor in tokens if tensor.window is None]),
            self._rows(layer, [tensor for tensor in tensors if tensor.role == "index"], "latent"),
            self._rows(layer, [tensor for tensor in tokens if tensor.window is not None]),
            self._encoder([tensor for tensor in kv if tensor.per == "sequence"]),
            *(self._rings(tensors) if layer.packed else [self._state(layer)]),
        ]
        return tuple(spec for spec in parts if spec is not None)

    def _rows(self, layer: Layer, tensors: list[Stored], kind: Kind | None = None) -> Spec | None:
        if not tensors:
            return None
        window = tensors[0].window
        if kind is None and window is None:
            kind = "latent" if layer.latent else "full"
        elif kind is None:
            kind = "chunked" if layer.chunked else "sliding_latent" if layer.latent else "sliding"
        block = self.blocks.tokens
        if kind == "sliding":
            block = window_block(self.settings, block)
        elif kind == "sliding_latent" and layer.packed:
            block = _PACKED_WINDOW_BLOCK
        row = sum(tensor.entry_bytes for tensor in tensors)
        if not self.settings.rules.own_values(kind):
            row = 2 * (row - sum(tensor.entry_bytes for tensor in tensors if tensor.name.startswith("value")))
        return Spec(
            kind=kind,
            block_tokens=block,
            row_bytes=row,
            shape=tuple((tensor.shape, tensor.bits) for tensor in tensors),
            tokens_per_row=tensors[0].tokens_per_entry,
            window=window,
            align_bytes=_PACKED_ALIGNMENT.get(self.dtypes.kv, 512) if layer.packed else 1,
        )

    def _encoder(self, tensors: list[Stored]) -> Spec | None:
        if not tensors:
            return None
        positions = tensors[0].shape[0]
        row = sum(tensor.entry_bytes // positions for tensor in tensors)
        shape = tuple((tensor.shape, tensor.bits) for tensor in tensors)
        return Spec("encoder", self.blocks.tokens, row, shape, window=positions)

    def _state(self, layer: Layer) -> Spec | None:
        size = _state_bytes(layer, self.settings, self.deployment, self.dtypes)
        if not size:
            return None
        settings = self.settings
        tensors = _state_tensors(layer, settings, self.deployment, self.dtypes)
        return Spec(
            kind="state",
            block_tokens=self.blocks.tokens if settings.mode != "none" else self.max_model_len,
            row_bytes=size,
            shape=tuple((tensor.shape, tensor.bits) for tensor in tensors),
            padded_bytes=self.blocks.padded_bytes,
            dcp_sharded=False,
            state_blocks=settings.rules.state_blocks(settings.mode, settings.draft_blocks, settings.checkpoints),
            drafts=settings.draft_blocks,
        )

    def _rings(self, tensors: Sequence[Stored]) -> list[Spec | None]:
        """Compressor rings, which vLLM stores as windows of a few tokens per block."""
        rings = [tensor for tensor in tensors if tensor.role == "state"]
        return [self._ring(ring) for ring in rings]

    def _ring(self, ring: Stored) -> Spec:
        held = ring.shape[0]
        if held not in _RING_BLOCKS:
            raise UsageError(f"--engine vllm: a compressor ring of {held} tokens has no known block size")
        alignment = _PACKED_ALIGNMENT.get(self.dtypes.kv, 512)
        return Spec(
            kind="sliding_latent",
            block_tokens=_RING_BLOCKS[held],
            row_bytes=ring.entry_bytes // held,
            shape=((ring.shape, ring.bits),),
            window=held,
            align_bytes=alignment,
        )
