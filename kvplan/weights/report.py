"""The weights of a model on a layout: total, fullest rank, and the lines that add up to them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvplan.deployment import Layout
from kvplan.errors import SourceError
from kvplan.line import Line
from kvplan.model import Model
from kvplan.units import ceil_div
from kvplan.weights.formats import PLAIN
from kvplan.weights.lines import on_rank, whole
from kvplan.weights.parts import FIRST, MTP, Part, from_headers, from_inventory
from kvplan.weights.ranks import rank_bytes, stages
from kvplan.weights.rule import Rule
from kvplan.weights.schemes import scheme

How = Literal["exact", "derived", "published", "given"]

_ONE_IN = 20
"""Published parameters beyond the decoder's pass for its other towers when they are at most one in this many."""
_ROUND_TO = 10**6
"""A published count that is a multiple of this was rounded, so nothing can be read off its difference."""


@dataclass(frozen=True, slots=True)
class WeightReport:
    """What the weights occupy. `lines` add up to `total_bytes`, `rank_lines` to `rank_bytes`."""

    total_bytes: int
    """The whole checkpoint, multi-token prediction and vision included where they are known."""
    rank_bytes: int
    """On the fullest rank."""
    kind: How
    source: str
    params_total: int | None
    params_active: int | None
    """Used by one token: no input embedding unless it is also the head, no vision, no multi-token prediction."""
    lines: tuple[Line, ...]
    rank_lines: tuple[Line, ...]
    replicated_bytes: int = 0
    """Of `rank_bytes`, what every tensor-parallel rank holds in full."""
    missing: tuple[str, ...] = ()
    """Parts of the model that nothing here sizes."""
    assumptions: tuple[str, ...] = ()


def weigh(
    model: Model, layout: Layout, *, weights_bytes: int | None = None, quantization: str | None = None,
    with_mtp: bool = False, with_vision: bool = True, moe_shard_multiple: int = 1,
) -> WeightReport:  # fmt: skip
    """Total and per-rank weights: as given, from tensor headers, from the config, or as published, in this order.

    `moe_shard_multiple` is an engine's padding of each rank's cut through a routed expert (Marlin: 256).
    Raises SourceError, naming what the config lacks, where none of the four gives a size.
    """
    parts, how, source, assumptions = _parts(model, quantization, given=weights_bytes is not None)
    if not parts:
        return _undivided(model, layout, weights_bytes, quantization)
    served = [
        part for part in parts if (with_mtp or part.place != MTP) and (with_vision or part.role != "vision")
    ]  # fmt: skip
    tied = not any(part.role == "head" and part.place != MTP for part in parts)
    held = max(
        stages(served, len(model.blocks), layout.pp, tied=tied),
        key=lambda stage: sum(rank_bytes(part, layout, moe_shard_multiple) for part in stage),
    )
    rank_lines = on_rank(held, layout, moe_shard_multiple, how, source)
    report = WeightReport(
        total_bytes=sum(part.total_bytes for part in parts),
        rank_bytes=sum(line.bytes for line in rank_lines),
        kind=how,
        source=source,
        params_total=sum(part.total_params for part in parts),
        params_active=_active(model, parts, tied=tied),
        lines=whole(parts, how, source),
        rank_lines=rank_lines,
        replicated_bytes=sum(part.total_bytes for part in held if part.split == "none"),
        missing=_missing(model, parts),
        assumptions=(*assumptions, *_beside_published(model, parts, how, quantization)),
    )
    return report if weights_bytes is None else _scaled(report, weights_bytes)


def stage_parts(model: Model, layout: Layout, *, quantization: str | None = None) -> tuple[list[list[Part]], bool]:
    """The decoder's parts by pipeline stage, and whether the embedding is the head as well.

    Raises SourceError where only a total is known. Multi-token prediction and other modalities are left out.
    """
    parts, _, _, _ = _parts(model, quantization, given=False)
    if not parts:
        raise SourceError(f"{model.name}: time needs the weights' shapes ({model.weights_missing or 'none are known'})")
    served = [part for part in parts if part.place != MTP and part.role != "vision"]
    tied = not any(part.role == "head" for part in served)
    return stages(served, len(model.blocks), layout.pp, tied=tied), tied


def _parts(model: Model, quantization: str | None, *, given: bool) -> tuple[list[Part], How, str, tuple[str, ...]]:
    """The model's parts, how they are known, on whose word, and what was assumed. No parts: nothing divides it."""
    headers = f"tensor headers of {model.source.origin}"
    if model.tensors and quantization is None:
        return from_headers(model), "exact", headers, ()
    rule = Rule(model.dtype, PLAIN[model.dtype])
    if not given:
        rule = scheme(model.quantization, model.dtype, quantization)
    if model.tensors and not rule.requantised:
        return from_headers(model), "exact", headers, ()
    if model.weights is None:
        return [], "published", "", ()
    parts = from_inventory(model.weights, rule)
    words = rule.notes
    if model.tensors_missing and not given:
        words = (*words, f"{model.tensors_missing}, so the config sizes the weights")
    tower = None if given else _tower(model, parts)
    if tower:
        parts.append(tower)
        words = (*words, f"{', '.join(model.towers)}: {tower.arithmetic}, one copy on each rank of the first stage")
    stored = f"weights in {rule.plain.name}" if rule.name == "none" else f"weights as {rule.name}"
    return parts, "derived", f"config of {model.source.origin}, {stored}", words


def _tower(model: Model, parts: Sequence[Part]) -> Part | None:
    """Other modalities as what the publisher counts beyond the decoder; None where that cannot be told."""
    published = model.published.params_total
    if not model.towers or any(part.role == "vision" for part in parts) or not published or not published % _ROUND_TO:
        return None
    counted = sum(part.total_params for part in parts)
    beyond = published - counted
    if not 0 < beyond <= published // _ONE_IN:
        return None
    plain = PLAIN[model.dtype]
    words = f"{published:,} published parameters less {counted:,} of the decoder, in {plain.name}"
    return Part(
        FIRST, "vision", "none", f"{plain.name} (assumed)", (beyond,), plain.bytes((beyond,)), beyond, arithmetic=words
    )


def _active(model: Model, parts: Sequence[Part], *, tied: bool) -> int:
    total = 0
    for part in parts:
        if part.place == MTP or part.role == "vision" or (part.role == "embedding" and not tied):
            continue
        if part.role == "expert" and model.num_experts:
            total += part.total_params * model.experts_per_token // model.num_experts
        else:
            total += part.total_params
    return total


def _missing(model: Model, parts: Sequence[Part]) -> tuple[str, ...]:
    lacking = []
    if model.towers and not any(part.role == "vision" for part in parts):
        lacking.append(f"{', '.join(model.towers)}: not sized; add it with --weights SIZE")
    if model.mtp and not any(part.place == MTP for part in parts):
        lacking.append("num_nextn_predict_layers: the multi-token-prediction blocks are not sized")
    if model.tensors and model.weights is not None:
        listed = sum(part.total_params for part in parts)
        described = sum(weight.params for block in model.weights.blocks for weight in block)
        if listed * 10 < described * 9:
            lacking.append(f"the headers hold {listed:,} parameters of the config's {described:,}: incomplete")
    return tuple(lacking)


def _beside_published(model: Model, parts: Sequence[Part], how: How, quantization: str | None) -> tuple[str, ...]:
    """A sentence where the derived total is not the one that the publisher states."""
    stated, total = model.published.checkpoint_bytes, sum(part.total_bytes for part in parts)
    if how != "derived" or quantization or not stated or abs(total - stated) * 100 <= stated:
        return ()
    return (f"the publisher states {stated:,} B and the config gives {total:,} B ({model.published.source})",)


def _scaled(report: WeightReport, given: int) -> WeightReport:
    """A given size, shared out over the ranks as the config's modules would be."""
    rank = ceil_div(given * report.rank_bytes, report.total_bytes)
    whole_line, rank_line = _plain_lines(given, rank, "given", "--weights", "in proportion to the config's modules")
    return replace(
        report, total_bytes=given, rank_bytes=rank, kind="given", source="--weights", missing=(),
        lines=(whole_line,), rank_lines=(rank_line,), replicated_bytes=0,
        assumptions=(f"--weights {given} B lies on the ranks in proportion to the config's modules",),
    )  # fmt: skip


def _undivided(model: Model, layout: Layout, given: int | None, quantization: str | None) -> WeightReport:
    """A size without parts: given, published, or published parameters times a format; shared out evenly."""
    published = model.published
    how: How = "published" if given is None else "given"
    source = published.source or model.source.origin
    words: tuple[str, ...] = ()
    rule = scheme(model.quantization, model.dtype, quantization) if given is None else None
    if given is not None:
        total, source = given, "--weights"
    elif published.checkpoint_bytes and rule is not None and not rule.requantised:
        total = published.checkpoint_bytes
    elif published.params_total and rule is not None:
        format_ = rule.linear or rule.experts or rule.plain
        total = format_.bytes((1, published.params_total))
        words = (f"every one of {published.params_total:,} published parameters in {format_.name}",)
    else:
        why = model.weights_missing or "the config gives no weights"
        raise SourceError(f"{model.name}: the weights cannot be sized ({why}); give --weights SIZE")
    ranks = layout.tp * layout.pp
    rank = ceil_div(total, ranks)
    even = f"shared evenly by tp × pp = {ranks} ranks, nothing replicated"
    whole_line, rank_line = _plain_lines(total, rank, how, source, even)
    return WeightReport(
        total, rank, how, source, published.params_total, published.params_active, (whole_line,), (rank_line,),
        assumptions=(*words, even),
    )  # fmt: skip


def _plain_lines(total: int, rank: int, how: How, source: str, share: str) -> tuple[Line, Line]:
    whole_line = Line("model", "weights", "weights", "other", total, f"{total:,} B {how}", source, how)
    return whole_line, Line("model", "weights", "weights", "other", rank, f"{total:,} B {share}", source, how)
