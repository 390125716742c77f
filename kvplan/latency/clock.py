"""The clock of one replica: seconds of a decode step and of a prefill, term by term."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain

from kvplan.deployment import Layout
from kvplan.document import Assumption
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError
from kvplan.flops import index_heads
from kvplan.interval import Interval, total
from kvplan.latency.collectives import Collective, collective_term
from kvplan.latency.meter import Basis, Meter, Term
from kvplan.latency.mixers import Rank, decode_terms, prefill_terms
from kvplan.latency.products import Product, Routing, product_term
from kvplan.layers.base import Layer
from kvplan.model import Model
from kvplan.units import ceil_div

_FEWEST, _MOST = 0.5, 2.0
"""Ends of the guess at the kernels that no table holds: norms, rope, activations, routing, residuals."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage on its fullest rank."""

    layers: Counter[Layer]
    products: Counter[Product]
    blocks: int
    expert_blocks: int


@dataclass(frozen=True, slots=True)
class Guesses:
    """What no kernel's time tells: each is a flag of `kvplan estimate`."""

    chunk_tokens: int
    """Tokens of a prefill that one step takes."""
    other_kernels: int
    """Kernels of a layer beside those that are measured."""
    gemm_efficiency: float
    """Share of the matrix roof that products of unmeasured formats reach."""


class Clock:
    """Seconds of one replica. `assumptions` are what they rest on beyond the calibration."""

    def __init__(
        self, model: Model, layout: Layout, dtypes: Dtypes, meter: Meter, stages: list[Stage], guesses: Guesses,
        assumptions: list[Assumption],
    ) -> None:  # fmt: skip
        self.model, self.layout, self.dtypes = model, layout, dtypes
        self.meter, self.assumptions = meter, assumptions
        self._stages, self._guesses = stages, guesses
        self._hidden = _hidden_size(model)
        heads = max(1, model.num_attention_heads // layout.tp)
        self._rank = Rank(heads, dtypes, layout.dcp, index_heads(model))
        shared_by = max(1, layout.expert_shares // layout.tp)
        self._routing = Routing(model.num_experts, model.experts_per_token, shared_by) if model.num_experts else None
        self._steps: dict[tuple[int, int], Interval] = {}
        self._chunks: dict[tuple[int, int], Interval] = {}
        self._linear: dict[tuple[int, int], list[Term]] = {}

    @property
    def basis(self) -> Basis:
        return self.meter.basis

    def decode_step_s(self, sequences: int, context_tokens: int) -> Interval:
        """Seconds in which each of `sequences` sequences of `context_tokens` tokens gets its next one."""
        key = (sequences, context_tokens)
        if key not in self._steps:
            self._steps[key] = total(term.seconds for term in self.decode_terms(*key))
        return self._steps[key]

    def prefill_s(self, new_tokens: int, start_tokens: int = 0) -> Interval:
        """Seconds for `new_tokens` of one sequence after `start_tokens` that are cached, in the engine's chunks."""
        chunks = [self._chunk_s(size, at) for size, at in self._cut(new_tokens, start_tokens)]
        whole = total(chunks)
        if self.layout.pp == 1 or not chunks:
            return whole
        stages = self.layout.pp
        flowing = (1 + (stages - 1) / len(chunks)) / stages
        return Interval(whole.value * flowing, whole.low * flowing, whole.high, whole.how)

    def first_token_s(self, sequences: int, context_tokens: int) -> Interval:
        """Seconds to the first token of a cold session while `sequences` - 1 others of its length decode.

        At best the prefill runs alone; else each of its chunks carries the others' next tokens, at worst as a whole
        step of theirs.
        """
        alone = self.prefill_s(context_tokens, 0)
        if sequences < 2:
            return alone
        chunks = ceil_div(context_tokens, self._guesses.chunk_tokens)
        step, beside = self.decode_step_s(sequences - 1, context_tokens), self._mixing_s(sequences - 1, context_tokens)
        value, high = alone.value + chunks * beside.value, alone.high + chunks * step.high
        return Interval(value, alone.low, max(value, high), alone.how)

    def _mixing_s(self, sequences: int, context_tokens: int) -> Interval:
        """The part of a decode step that depends on the sequences' own states and caches."""
        batch = ceil_div(sequences, self.layout.pp)
        return total(
            term.seconds
            for stage in self._stages
            for term in self._mixing(stage, lambda layer, count: decode_terms(
                self.meter, layer, count, self._rank, batch, context_tokens))
        )  # fmt: skip

    def decode_terms(self, sequences: int, context_tokens: int) -> list[Term]:
        """A decode step by term, summed over the pipeline's stages, each with its part of the sequences."""
        if sequences < 1:
            return []
        batch = ceil_div(sequences, self.layout.pp)
        found = chain.from_iterable(
            chain(
                self._passing(number, batch, batch),
                self._mixing(stage, lambda layer, count: decode_terms(
                    self.meter, layer, count, self._rank, batch, context_tokens)),
                self._context_sharing(stage, batch),
            )
            for number, stage in enumerate(self._stages)
        )  # fmt: skip
        return _joined(found)

    def prefill_terms(self, new_tokens: int, start_tokens: int = 0) -> list[Term]:
        """A prefill by term, over all its chunks and stages."""
        chunks = self._cut(new_tokens, start_tokens)
        return _joined(chain.from_iterable(self._chunk_terms(size, at) for size, at in chunks))

    def _cut(self, new_tokens: int, start_tokens: int) -> list[tuple[int, int]]:
        """(size, start) of every chunk."""
        stops = range(0, new_tokens, self._guesses.chunk_tokens)
        return [(min(self._guesses.chunk_tokens, new_tokens - stop), start_tokens + stop) for stop in stops]

    def _chunk_s(self, tokens: int, start: int) -> Interval:
        if (tokens, start) not in self._chunks:
            self._chunks[tokens, start] = total(term.seconds for term in self._chunk_terms(tokens, start))
        return self._chunks[tokens, start]

    def _chunk_terms(self, tokens: int, start: int) -> list[Term]:
        return [
            term
            for number, stage in enumerate(self._stages)
            for term in chain(
                self._passing(number, tokens, 1),
                self._mixing(stage, lambda layer, count: prefill_terms(
                    self.meter, layer, count, self._rank, tokens, start)),
            )
        ]  # fmt: skip

    def _mixing(self, stage: Stage, timed: Callable[[Layer, int], list[Term]]) -> Iterable[Term]:
        for layer, count in stage.layers.items():
            yield from timed(layer, count)

    def _passing(self, number: int, tokens: int, sampled: int) -> list[Term]:
        """What does not depend on the length of a context: weights, small kernels, sums over ranks."""
        if (number, tokens) not in self._linear:
            stage = self._stages[number]
            products = [
                product_term(
                    self.meter, product, calls, sampled if product.role in ("head", "embedding") else tokens,
                    self._routing, self._guesses.gemm_efficiency,
                )
                for product, calls in stage.products.items()
            ]  # fmt: skip
            self._linear[number, tokens] = [*products, self._small(stage, tokens), *self._telling(stage, tokens)]
        return self._linear[number, tokens]

    def _small(self, stage: Stage, tokens: int) -> Term:
        """Kernels that no table holds, each as one in-place pass over the hidden states of the step."""
        calls = self._guesses.other_kernels * stage.blocks
        term = self.meter.term("other kernels", calls, "move", how="inplace", megabytes=tokens * self._hidden * 2 / 1e6)
        seconds = term.seconds
        guessed = Interval(seconds.value, seconds.low * _FEWEST, seconds.high * _MOST, "assumed")
        return replace(term, seconds=guessed, source=f"{self._guesses.other_kernels} a layer: assumed; {term.source}")

    def _telling(self, stage: Stage, tokens: int) -> list[Term]:
        """Sums after attention and feed-forward over tp; tokens to experts and back where they lie on more ranks."""
        layout, row = self.layout, self._hidden * 2
        told = []
        if layout.tp > 1:
            told.append(Collective("sums over tp", "all_reduce", layout.tp, 2 * stage.blocks, tokens * row))
        if layout.expert_shares > layout.tp and stage.expert_blocks and self._routing:
            sent = tokens * row * min(self._routing.per_token, layout.expert_shares)
            told.append(
                Collective("tokens to experts", "all_to_all", layout.expert_shares, 2 * stage.expert_blocks, sent)
            )
        return [collective_term(self.meter, one) for one in told]

    def _context_sharing(self, stage: Stage, sequences: int) -> list[Term]:
        """Under decode context parallelism: queries to every rank of a context, partial outputs back (fp32)."""
        dcp = self.layout.dcp
        growing = sum(
            count for layer, count in stage.layers.items() if any(t.grows for t in layer.stored(self._rank.dtypes))
        )
        if dcp == 1 or not growing:
            return []
        rows = sequences * self._rank.query_heads * dcp
        return [
            collective_term(self.meter, Collective("queries over dcp", "all_gather", dcp, growing, rows * 576 * 2)),
            collective_term(self.meter, Collective("outputs over dcp", "all_to_all", dcp, growing, rows * 513 * 4)),
        ]


def _hidden_size(model: Model) -> int:
    outer = model.weights.outer if model.weights else ()
    for weight in outer:
        if weight.role == "embedding":
            return weight.shape[-1]
    raise ConfigError(f"{model.name}: time needs the embedding's width ({model.weights_missing or 'it has none'})")


def _joined(terms: Iterable[Term]) -> list[Term]:
    """Terms of one name as one."""
    found: dict[str, Term] = {}
    for term in terms:
        before = found.get(term.name)
        found[term.name] = term if before is None else replace(
            before, calls=before.calls + term.calls, bytes=before.bytes + term.bytes,
            flops=before.flops + term.flops, seconds=before.seconds + term.seconds,
        )  # fmt: skip
    return list(found.values())
