"""The contract between an attention kind and everything after it."""

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import ClassVar, Literal, Self

from kvplan.dtypes import BITS, BLOCK_ELEMENTS, BLOCKS, Dtypes
from kvplan.errors import PlacementError, UsageError
from kvplan.units import ceil_div

Role = Literal["kv", "index", "state", "conv"]


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor that a layer keeps between steps. `shape` is the shape of one entry."""

    name: str
    role: Role
    per: Literal["token", "sequence"]
    shape: tuple[int, ...]
    bits: int
    window: int | None = None
    """Tokens kept; None = all."""
    tokens_per_entry: int = 1
    """Compression along the sequence: one entry for this many tokens, the incomplete last one not stored."""

    @property
    def entry_bytes(self) -> int:
        """Bytes of one entry; sub-byte elements are packed and rounded up once per entry."""
        return ceil_div(prod(self.shape) * self.bits, 8)

    @property
    def grows(self) -> bool:
        """True when the tensor never stops growing with the sequence."""
        return self.per == "token" and self.window is None

    def entries(self, tokens: int, dcp: int = 1) -> int:
        """Entries held after `tokens` tokens; `dcp` ranks share out what grows, the fullest rank counts."""
        if self.per == "sequence":
            return 1
        if self.window is not None:
            return min(tokens, self.window) // self.tokens_per_entry
        return ceil_div(tokens, dcp) // self.tokens_per_entry

    def bytes(self, tokens: int, dcp: int = 1) -> int:
        """Bytes held after `tokens` tokens."""
        return self.entries(tokens, dcp) * self.entry_bytes

    def slope(self, tokens: int, dcp: int = 1) -> Fraction:
        """Bytes that one more token adds at this length, averaged over one compression period."""
        if self.per == "sequence" or (self.window is not None and tokens >= self.window):
            return Fraction(0)
        return Fraction(self.entry_bytes, self.tokens_per_entry * (dcp if self.grows else 1))


@dataclass(frozen=True)
class Layer:
    """One sequence-mixing layer. Subclasses are frozen dataclasses whose fields are the config's dimensions."""

    kind: ClassVar[str]
    state_dtype_fixed: ClassVar[str | None] = None
    """What engines keep a recurrence in whatever the model's own dtype is; None = they follow the model."""
    latent: ClassVar[bool] = False
    """One latent row per token instead of keys and values."""
    sparse: ClassVar[bool] = False
    """A sparse index chooses which rows are read."""
    packed: ClassVar[bool] = False
    """Records of several sizes that paged engines lay side by side in one block (DeepSeek V4)."""
    chunked: ClassVar[bool] = False
    """The window is a chunk that starts anew, rather than one that slides."""
    states_at_chunks: ClassVar[bool] = False
    """Kernels hand out the state at every chunk end of a prefill (vLLM's SupportsMambaPrefixCaching)."""

    def stored(self, dtypes: Dtypes) -> tuple[Stored, ...]:
        """What one sequence keeps in this layer between steps."""
        raise NotImplementedError

    def read_bytes(self, dtypes: Dtypes, tokens: int) -> int:
        """Bytes that one decode step reads at this length; sparse kinds read less than they store."""
        return sum(tensor.bytes(tokens) for tensor in self.stored(dtypes))

    def on_rank(self, tp: int) -> Self:
        """The share of this layer that one of `tp` tensor-parallel ranks holds.

        Raises PlacementError, naming the dimension, where the layer cannot be split that way.
        """
        raise NotImplementedError

    def copies(self, tp: int) -> int:
        """How many of `tp` ranks hold the same growing cache; decode context parallelism shares it out."""
        return tp

    def checkpoint_kernel(self) -> str | None:
        """The prefill kernel that can save the state inside a prefill, where this layer's shape admits one."""
        return None

    def replay_record(self, drafts: int, history: int) -> tuple[Stored, ...]:
        """What replaces one state per draft token where an engine replays inputs from a single saved state.

        `history` is the ring length of kinds that keep one. Empty where no engine does that.
        """
        return ()


def split_heads(heads: int, tp: int, field: str) -> int:
    """Heads of one rank where every head has one owner."""
    if heads % tp:
        raise PlacementError(f"--tp {tp} does not divide {field} {heads}; use a tp that divides it")
    return heads // tp


def split_kv_heads(heads: int, tp: int, field: str = "num_key_value_heads") -> int:
    """KV heads of one rank: split while tp divides them, one replicated head each beyond that."""
    if tp <= heads:
        return split_heads(heads, tp, field)
    if tp % heads:
        raise PlacementError(f"--tp {tp} is not a multiple of {field} {heads}, so heads cannot be replicated evenly")
    return 1


def kv_tensors(
    name: str, shape: tuple[int, ...], dtypes: Dtypes, window: int | None = None, tokens_per_entry: int = 1
) -> tuple[Stored, ...]:
    """A key or value tensor in the KV dtype. NVFP4 adds one fp8 scale per 16 elements of a head."""
    kv = (dtypes.value or dtypes.kv) if name == "value" else dtypes.kv
    if kv == "nvfp4":
        scales = (*shape[:-1], ceil_div(shape[-1], 16))
        return (
            Stored(name, "kv", "token", shape, 4, window, tokens_per_entry),
            Stored(f"{name}_scale", "kv", "token", scales, 8, window, tokens_per_entry),
        )
    if kv in BLOCKS:
        bits, scale_bits = BLOCKS[kv]
        blocks = (ceil_div(prod(shape), BLOCK_ELEMENTS),)
        return (
            Stored(name, "kv", "token", shape, bits, window, tokens_per_entry),
            Stored(f"{name}_scale", "kv", "token", blocks, scale_bits, window, tokens_per_entry),
        )
    if kv not in BITS:
        raise UsageError(f"--kv-cache-dtype {kv} is a record for MLA and not for the `{name}` of ordinary attention")
    return (Stored(name, "kv", "token", shape, BITS[kv], window, tokens_per_entry),)


def index_key(dim: int, dtype: str, tokens_per_entry: int = 1) -> tuple[Stored, ...]:
    """The key that a sparse indexer keeps per entry; fp8 and fp4 carry scales (one fp32; one byte per 32)."""
    if dtype in BLOCKS:
        bits, scale_bits = BLOCKS[dtype]
        blocks = (ceil_div(dim, BLOCK_ELEMENTS),)
        return (
            Stored("index_key", "index", "token", (dim,), bits, tokens_per_entry=tokens_per_entry),
            Stored("index_scale", "index", "token", blocks, scale_bits, tokens_per_entry=tokens_per_entry),
        )
    bits = BITS[dtype]
    key = Stored("index_key", "index", "token", (dim,), bits, tokens_per_entry=tokens_per_entry)
    if dtype == "fp8":
        return key, Stored("index_scale", "index", "token", (1,), 32, tokens_per_entry=tokens_per_entry)
    if dtype == "fp4":
        scales = (ceil_div(dim, 32),)
        return key, Stored("index_scale", "index", "token", scales, 8, tokens_per_entry=tokens_per_entry)
    return (key,)


def conv_tail(width: int, kernel: int, dtypes: Dtypes) -> tuple[Stored, ...]:
    """The last `kernel - 1` inputs of a causal short convolution over `width` channels."""
    if dtypes.conv is None or kernel <= 1:
        return ()
    return (Stored("conv", "conv", "sequence", (kernel - 1, width), BITS[dtypes.conv]),)


def recurrent(shape: tuple[int, ...], dtypes: Dtypes) -> Stored:
    """The fixed matrix of a recurrence, in the state dtype."""
    return Stored("recurrent", "state", "sequence", shape, BITS[dtypes.state])
