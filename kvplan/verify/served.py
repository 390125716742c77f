"""Weights as the log's engine loaded them, beside those of the model that was read."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from kvplan.capacity import Evaluation
from kvplan.deployment import Layout
from kvplan.engines._drafts import draft_weight_bytes
from kvplan.errors import KvplanError
from kvplan.logs.figures import Facts
from kvplan.logs.vllm import RESOLVED
from kvplan.model import Model
from kvplan.sources.spellings import ends_alike
from kvplan.units import GIB
from kvplan.verify.case import Case
from kvplan.verify.report import Row, estimate, unmodelled

_TOLERANCE = 100
"""Weights are within where they are off by no more than one part in this many."""


def weight_rows(case: Case) -> list[Row]:
    """Weights of a rank against the checkpoint as published; only where that is what was served."""
    printed = case.facts.smallest("weights")
    if printed is None or case.facts.engine == "llamacpp":
        return []
    alike = served_alike(case.facts, case.model, case.named)
    if alike is False:
        return [unmodelled(printed, f"served in another format than {case.model.name} was read in")]
    try:
        now = case.evaluate(kv_cache_memory=printed.bytes or 1)
    except KvplanError as error:
        return [unmodelled(printed, str(error))]
    if now.weights is None:
        return [unmodelled(printed, "nothing sizes the weights")]
    size = now.weights.rank_bytes
    low, high = size - size // _TOLERANCE, size + size // _TOLERANCE
    row = estimate(printed, _gib(size), _gib(low), _gib(high), f"{now.weights.kind} weights")
    if alike is None and row.verdict == "differs":
        return [
            unmodelled(printed, f"the log does not say how its weights are stored; {size / GIB:.2f} GiB a rank as read")
        ]
    return [row]


def served_alike(facts: Facts, model: Model, named: str | None) -> bool | None:
    """Whether the log's checkpoint stores weights as the model that was read does; None where nothing says so.

    `named` is the name that the log or the user gave it.
    """
    asked: Any = facts.values.get("quantization")
    plain = asked in (None, "None")
    same_name = named is not None and ends_alike(named, model)
    if RESOLVED in facts.told:
        if plain or not model.quantization:
            return plain and not model.quantization
        return True if same_name else None
    if not plain and not model.quantization:
        return None
    return True if same_name else None


def as_printed(case: Case, now: Evaluation) -> Evaluation | None:
    """The same deployment with the weights that the log prints, a separate draft's taken out; None without them."""
    printed = case.facts.smallest("weights")
    if printed is None or now.weights is None or now.fleet is None:
        return None
    drafted = draft_weight_bytes(now.deployment, Layout(tp=now.fleet.layout.tp)) or 0
    loaded = replace(now.weights, rank_bytes=max(1, printed.bytes - drafted))
    return case.evaluate(weights=loaded, kv_cache_memory=None, num_gpu_blocks_override=None)


def _gib(size: int) -> Fraction:
    return Fraction(size, GIB)
