"""Sequence mixers of one rank as kernels: the state's read and write, the cache's read, a prefill's attention.

A layer is timed through its contract (what it stores and reads). Kinds whose own kernel was measured are registered by
class; every other kind borrows the nearest kernel, wider, and says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError
from kvplan.flops import attention_flops
from kvplan.latency.kernels import Work
from kvplan.latency.meter import Meter, Term, made, slowest
from kvplan.latency.tables import Reading
from kvplan.layers.base import Layer, Stored
from kvplan.layers.borrowed import Shared
from kvplan.layers.delta import Kda
from kvplan.layers.dsa import Dsa
from kvplan.layers.mla import Mla
from kvplan.layers.windowed import ChunkedLocal, SlidingWindow
from kvplan.units import ceil_div

_STATE = 128 * 128
"""Elements of the state of one KDA head, in whose kernels every recurrence is measured."""
_CONV = 3 * 128
"""Channels of one KDA head in the short-convolution kernel."""
OWN_STATE: frozenset[type[Layer]] = frozenset({Kda})
"""Kinds that the KDA kernels were measured for."""
_SCAN = (0.25, "stands in for this kind's own recurrence")
_CHUNKED = (0.40, "stands in for this kind's own chunked prefill")
_READ = (0.30, "the read roof stands in for this kind's own attention kernel")
_GATHERED = (0.40, "stands in for a gather of chosen rows")
_PREFIX = (0.25, "stands in for attention on a cached prefix")
_PREFILL = (0.40, "stands in for this kind's own causal attention")


@dataclass(frozen=True, slots=True)
class Rank:
    """What the layers of one rank share: query heads after tensor parallelism, formats, the ranks of a context."""

    query_heads: int
    dtypes: Dtypes
    dcp: int = 1
    index_heads: int = 0
    """Of a sparse indexer, which every rank runs whole."""


def decode_terms(meter: Meter, layer: Layer, count: int, rank: Rank, sequences: int, tokens: int) -> list[Term]:
    """One decode step of `sequences` sequences of `tokens` tokens through `count` such layers."""
    stored = layer.stored(rank.dtypes)
    terms = _state(meter, layer, count, stored, sequences) + _conv(meter, layer, count, stored, sequences)
    if tokens and layer.read_bytes(rank.dtypes, tokens) > _fixed(stored):
        read = _READS.get(type(layer), _any_read)
        terms += read(meter, layer, count, rank, sequences, ceil_div(tokens, rank.dcp))
    return terms


def prefill_terms(meter: Meter, layer: Layer, count: int, rank: Rank, tokens: int, start: int) -> list[Term]:
    """`tokens` tokens of one sequence, after `start` that are cached, through `count` such layers."""
    stored = layer.stored(rank.dtypes)
    terms = _chunked(meter, layer, count, stored, tokens)
    if layer.read_bytes(rank.dtypes, start + tokens) > _fixed(stored):
        terms += _PREFILLS.get(type(layer), _any_prefill)(meter, layer, count, rank, tokens, start)
    return terms


def _fixed(stored: tuple[Stored, ...]) -> int:
    return sum(tensor.entry_bytes for tensor in stored if tensor.role in ("state", "conv"))


def _elements(stored: tuple[Stored, ...], role: str) -> int:
    return sum(prod(tensor.shape) for tensor in stored if tensor.role == role)


def _state(meter: Meter, layer: Layer, count: int, stored: tuple[Stored, ...], sequences: int) -> list[Term]:
    """Every recurrent state read and written back."""
    elements = _elements(stored, "state")
    if not elements:
        return []
    bits = max(tensor.bits for tensor in stored if tensor.role == "state")
    state = "fp32" if bits == 32 else "bf16"
    stand_in = None if type(layer) in OWN_STATE else _SCAN
    heads = elements / _STATE
    return [meter.term(f"{layer.kind} state", count, "kda_decode", stand_in, heads=heads, batch=sequences, state=state)]


def _conv(meter: Meter, layer: Layer, count: int, stored: tuple[Stored, ...], sequences: int) -> list[Term]:
    width = sum(tensor.shape[-1] for tensor in stored if tensor.role == "conv")
    if not width:
        return []
    stand_in = None if type(layer) in OWN_STATE else _SCAN
    return [meter.term(f"{layer.kind} conv", count, "short_conv", stand_in, heads=width / _CONV, batch=sequences)]


def _mla_read(meter: Meter, layer: Mla, count: int, rank: Rank, sequences: int, tokens: int) -> list[Term]:
    """The absorbed kernel, each context rank with the query heads of all of them."""
    name, heads = f"{layer.kind} cache", rank.query_heads * rank.dcp
    row = sum(tensor.entry_bytes for tensor in layer.stored(rank.dtypes) if tensor.role == "kv")
    cache = {1152: "bf16", 576: "fp8", 656: "fp8"}.get(row)
    if cache is None:
        return _any_read(meter, layer, count, rank, sequences, tokens)
    stand_in = None if row in (1152, 576) else (0.25, "stands in for the records of fp8_ds_mla")
    return [meter.term(name, count, "mla_decode", stand_in, heads=heads, batch=sequences, context=tokens, cache=cache)]


def _dsa_read(meter: Meter, layer: Dsa, count: int, rank: Rank, sequences: int, tokens: int) -> list[Term]:
    """The rows that the index chooses, and every key of the index."""
    kept = min(tokens, layer.index_topk)
    rows = [
        Term(term.name, term.calls, term.bytes, term.flops, term.seconds.widened(_GATHERED[0]), term.source)
        for term in _mla_read(meter, layer, count, rank, sequences, kept)
    ]
    keys = sum(tensor.bytes(tokens) for tensor in layer.stored(rank.dtypes) if tensor.role == "index")
    return rows + ([_roof(meter, f"{layer.kind} index", count, sequences * keys)] if keys else [])


def _any_read(meter: Meter, layer: Layer, count: int, rank: Rank, sequences: int, tokens: int) -> list[Term]:
    """What the contract says is read, at the rate of a plain read."""
    each = layer.read_bytes(rank.dtypes, tokens) - _fixed(layer.stored(rank.dtypes))
    return [_roof(meter, f"{layer.kind} cache", count, sequences * each)]


def _roof(meter: Meter, name: str, count: int, size: int) -> Term:
    return meter.term(name, count, "move", _READ, how="read", megabytes=size / 1e6)


def _chunked(meter: Meter, layer: Layer, count: int, stored: tuple[Stored, ...], tokens: int) -> list[Term]:
    """A recurrence over a prompt, in chunks, and its convolutions."""
    terms = []
    if elements := _elements(stored, "state"):
        stand_in = None if type(layer) in OWN_STATE else _CHUNKED
        terms.append(
            meter.term(
                f"{layer.kind} chunks",
                count,
                "kda_prefill",
                stand_in,
                heads=elements / _STATE,
                sequences=1,
                tokens=tokens,
            )
        )
    if width := sum(tensor.shape[-1] for tensor in stored if tensor.role == "conv"):
        terms.append(
            meter.term(f"{layer.kind} conv", count, "move", _SCAN, how="inplace", megabytes=tokens * width * 2 / 1e6)
        )
    return terms


def _mla_prefill(meter: Meter, layer: Mla, count: int, rank: Rank, tokens: int, start: int) -> list[Term]:
    """Keys and values rebuilt from the latent row, 192 and 128 wide; those of the cached prefix as well."""
    name, heads = layer.kind, rank.query_heads
    terms = [meter.term(f"{name} attention", count, "mla_prefill", heads=heads, tokens=tokens)]
    if not start:
        return terms
    if meter.tables.has("mla_prefix"):
        terms.append(meter.term(f"{name} attention", count, "mla_prefix", heads=heads, tokens=tokens, prefix=start))
    else:
        pairs = 2.0 * tokens * start
        terms.append(meter.term(f"{name} attention", count, "mla_prefill", _PREFIX, heads=heads, tokens=pairs**0.5))
    return [*terms, _rebuilt(meter, layer, count, heads, start)]


def _rebuilt(meter: Meter, layer: Mla, count: int, heads: int, start: int) -> Term:
    """The product that gives a cached prefix its keys (128 without position) and values (128), written once."""
    elements = layer.kv_lora_rank * heads * 256
    moved = 2.0 * start * (layer.kv_lora_rank + heads * 256)
    reading = meter.call("move", _READ, how="inplace", megabytes=moved / 2e6)
    computed = meter.flops_per_s().inverse(2.0 * start * elements)
    both = slowest(
        reading, meter.carried(Reading(computed, 0.0, 1.0, "the matrix roof"), Work(0, 2.0 * start * elements))
    )
    return made(f"{layer.kind} prefix rebuilt", count, both, moved, 2.0 * start * elements)


def _any_prefill(meter: Meter, layer: Layer, count: int, rank: Rank, tokens: int, start: int) -> list[Term]:
    """FLOPs as flops.py counts them, at the rate of the causal attention that was measured."""
    flops = _summed_flops(layer, rank, tokens, start)
    pairs = flops / (rank.query_heads * 320)
    reading = meter.call("mla_prefill", _PREFILL, heads=rank.query_heads, tokens=pairs**0.5)
    moved = layer.read_bytes(rank.dtypes, start + tokens) - _fixed(layer.stored(rank.dtypes))
    return [made(f"{layer.kind} attention", count, reading, moved, flops)]


def _shared_prefill(meter: Meter, layer: Shared, count: int, rank: Rank, tokens: int, start: int) -> list[Term]:
    """As the layer whose cache is read."""
    return _PREFILLS.get(type(layer.source), _any_prefill)(meter, layer.source, count, rank, tokens, start)


def _local_prefill(meter: Meter, layer: ChunkedLocal, count: int, rank: Rank, tokens: int, start: int) -> list[Term]:
    """A chunk attends at most as much as a window of its size."""
    window = SlidingWindow(layer.kv_heads, layer.k_dim, layer.v_dim, layer.window)
    return _any_prefill(meter, window, count, rank, tokens, start)


def _summed_flops(layer: Layer, rank: Rank, tokens: int, start: int) -> float:
    """FLOPs of every new token over what it attends; by parts, as they turn where a window or a top-k is full."""
    steps = 32
    edges = [start + tokens * step / steps for step in range(steps + 1)]
    counted = [attention_flops(layer, rank.query_heads, int(edge), rank.index_heads) for edge in edges]
    if None in counted:
        raise ConfigError(f"the prefill time of {layer.kind} layers is not modelled")
    values = [float(value or 0) for value in counted]
    return max(1.0, tokens / steps * (sum(values) - (values[0] + values[-1]) / 2))


_READS: dict[type[Layer], Callable[[Meter, Any, int, Rank, int, int], list[Term]]] = {Mla: _mla_read, Dsa: _dsa_read}
_PREFILLS: dict[type[Layer], Callable[[Meter, Any, int, Rank, int, int], list[Term]]] = {
    Mla: _mla_prefill,
    Shared: _shared_prefill,
    ChunkedLocal: _local_prefill,
}
