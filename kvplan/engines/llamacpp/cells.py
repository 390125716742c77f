"""llama.cpp's caches, cell by cell (src/llama-kv-cache*.cpp, llama-memory-recurrent.cpp, llama-hparams.cpp)."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvplan.dtypes import Dtypes
from kvplan.layers.base import Layer, Stored
from kvplan.layers.compressed import Csa, Hca, WindowOnly
from kvplan.layers.gqa_index import GqaIndex
from kvplan.layers.windowed import SlidingWindow
from kvplan.model import Model
from kvplan.units import ceil_div

PAD = 256
"""Cells come in multiples of this (llama-context.cpp, llama-kv-cache-iswa.cpp)."""
MAX_SEQ = 256
UBATCH = 512

_WINDOWED = {
    "afmoe", "cohere2", "cohere2_moe", "exaone4", "exaone_moe", "gemma2", "gemma3", "gemma3_text", "gemma3n",
    "gemma3n_text", "gemma4", "gemma4_text", "gemma4_unified", "gpt_oss", "granite_moe_swa", "granite_swa", "laguna",
    "llama4", "llama4_text", "mellum", "mimo_v2", "mimo_v2_flash", "muse_glimmer", "olmo3", "smallthinker", "step3p5",
    "step3p7",
}  # fmt: skip
"""Model types for which llama.cpp keeps windows in a cache of their own; elsewhere it keeps them whole."""


@dataclass(frozen=True, slots=True)
class Context:
    """What the flags make of the context: cells per stream, streams, sequences."""

    n_ctx_seq: int
    n_seq_max: int
    unified: bool
    n_ubatch: int
    swa_full: bool

    @property
    def streams(self) -> int:
        return 1 if self.unified else self.n_seq_max

    def window_cells(self, window: int) -> int:
        """A window for each sequence of the stream, and a batch that is being written."""
        if self.swa_full:
            return self.n_ctx_seq
        wanted = window * (self.n_seq_max if self.unified else 1) + self.n_ubatch
        return ceil_div(min(self.n_ctx_seq, wanted), PAD) * PAD


def make_context(ctx_size: int, parallel: int, unified: bool, n_ubatch: int, swa_full: bool) -> Context:
    """`--ctx-size` is the whole of it: shared when unified, else divided among the sequences."""
    n_ctx = ceil_div(ctx_size, PAD) * PAD
    n_ctx_seq = n_ctx if unified else max(PAD, ceil_div(n_ctx // parallel, PAD) * PAD)
    return Context(n_ctx_seq, parallel, unified, n_ubatch, swa_full)


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes of one device, as the log lines split them."""

    k: int = 0
    v: int = 0
    window: int = 0
    """K and V of the sliding-window cache."""
    index: int = 0
    r: int = 0
    """Convolution tails, token shifts."""
    s: int = 0
    """Recurrent states and compressor rings."""

    @property
    def total(self) -> int:
        return self.k + self.v + self.window + self.index + self.r + self.s

    def __add__(self, other: "Buffers") -> "Buffers":
        return Buffers(
            *(getattr(self, name) + getattr(other, name) for name in ("k", "v", "window", "index", "r", "s"))
        )


def buffers(mixers: Iterable[Layer], model: Model, dtypes: Dtypes, context: Context) -> Buffers:
    """What the layers of one device reserve at start."""
    total = Buffers()
    for layer in mixers:
        total = total + _layer(layer, model, dtypes, context)
    return total


def _layer(layer: Layer, model: Model, dtypes: Dtypes, context: Context) -> Buffers:
    tensors = layer.stored(dtypes)
    r = sum(tensor.entry_bytes for tensor in tensors if tensor.role == "conv") * context.n_seq_max
    s = sum(tensor.entry_bytes for tensor in tensors if tensor.role == "state") * context.n_seq_max
    if isinstance(layer, WindowOnly):
        return Buffers(r=r, s=s) + _compressed(layer, tensors, context)
    cells = context.n_ctx_seq * context.streams
    index = sum(tensor.entry_bytes for tensor in tensors if tensor.role == "index")
    if isinstance(layer, GqaIndex):
        index += index * layer.v_dim // layer.index_dim  # its cache is an ordinary one with a V of head width
    grown = [tensor for tensor in tensors if tensor.role == "kv" and tensor.per == "token"]
    k = sum(tensor.entry_bytes for tensor in grown if not tensor.name.startswith("value"))
    v = sum(tensor.entry_bytes for tensor in grown) - k
    if isinstance(layer, SlidingWindow) and model.model_type in _WINDOWED:
        window = context.window_cells(layer.window) * context.streams
        return Buffers(window=(k + v) * window, r=r, s=s)
    return Buffers(k=k * cells, v=v * cells, index=index * cells, r=r, s=s)


def _compressed(layer: WindowOnly, tensors: tuple[Stored, ...], context: Context) -> Buffers:
    """DeepSeek V4: streams per sequence whatever --kv-unified says, compressed caches padded on their own."""
    own = Context(context.n_ctx_seq, context.n_seq_max, False, context.n_ubatch, context.swa_full)
    row = sum(tensor.entry_bytes for tensor in tensors if tensor.role == "kv" and tensor.window is not None)
    window = row * own.window_cells(layer.window) * own.n_seq_max
    if not isinstance(layer, (Csa, Hca)):
        return Buffers(window=window)
    cells = ceil_div(ceil_div(own.n_ctx_seq, layer.ratio), PAD) * PAD * own.n_seq_max
    k = sum(tensor.entry_bytes for tensor in tensors if tensor.role == "kv" and tensor.window is None)
    index = sum(tensor.entry_bytes for tensor in tensors if tensor.role == "index")
    return Buffers(k=k * cells, window=window, index=index * cells)
