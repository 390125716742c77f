"""Ledger lines of weights: one per role and format, with the arithmetic that gives the bytes."""

from collections import Counter
from collections.abc import Iterable
from typing import cast

from kvplan.deployment import Layout
from kvplan.line import Kind, Line
from kvplan.units import ceil_div
from kvplan.weights.parts import MTP, Part
from kvplan.weights.ranks import rank_bytes

OWNERS = {
    "expert": "routed experts", "shared_expert": "shared experts", "attention": "attention", "mlp": "feed-forward",
    "router": "routers", "norm": "norms", "embedding": "embedding", "head": "output head", "vision": "vision",
    "mtp": "multi-token prediction", "other": "other",
}  # fmt: skip
_SHOWN_TERMS = 4


def role_of(part: Part) -> str:
    """The role that a part counts in; everything in a multi-token-prediction block counts as that."""
    return "mtp" if part.place == MTP else part.role


def whole(parts: Iterable[Part], kind: str, source: str) -> tuple[Line, ...]:
    """Lines for the whole model; they add up to the checkpoint."""
    groups: dict[tuple[str, str, str], list[Part]] = {}
    for part in parts:
        groups.setdefault((role_of(part), part.format, part.arithmetic), []).append(part)
    return tuple(
        _line(role, format_, sum(part.total_bytes for part in group), _formula(group, words), kind, source)
        for (role, format_, words), group in groups.items()
    )


def on_rank(parts: Iterable[Part], layout: Layout, moe_shard_multiple: int, kind: str, source: str) -> tuple[Line, ...]:
    """Lines for one rank that holds its share of `parts`."""
    groups: dict[tuple[str, str, str], list[Part]] = {}
    for part in parts:
        groups.setdefault((role_of(part), part.format, _share(part, layout, moe_shard_multiple)), []).append(part)
    lines = []
    for (role, format_, share), group in groups.items():
        held = sum(rank_bytes(part, layout, moe_shard_multiple) for part in group)
        total = sum(part.total_bytes for part in group)
        lines.append(_line(role, format_, held, f"{total:,} B{share}", kind, source))
    return tuple(lines)


def _line(role: str, format_: str, size: int, formula: str, kind: str, source: str) -> Line:
    assumed = "assumed" if format_.endswith("(assumed)") else kind
    return Line(OWNERS.get(role, role), format_, "weights", role, size, formula, source, cast(Kind, assumed))


def _formula(group: list[Part], words: str) -> str:
    """`164,864 × (3072 × 3584) + … at 4 bit + 8 bit per 32`, the largest terms first."""
    terms: Counter[tuple[int, ...]] = Counter()
    weight: Counter[tuple[int, ...]] = Counter()
    for part in group:
        terms[part.shape] += part.count
        weight[part.shape] += part.total_bytes
    largest = [shape for shape, _ in weight.most_common(_SHOWN_TERMS)]
    shown = [f"{terms[shape]:,} × ({' × '.join(map(str, shape))})" for shape in largest]
    if len(terms) > len(largest):
        rest = sum(weight.values()) - sum(weight[shape] for shape in largest)
        shown.append(f"{len(terms) - len(largest)} smaller shapes ({rest:,} B)")
    return f"{' + '.join(shown)}, {words}"


def _share(part: Part, layout: Layout, multiple: int) -> str:
    if part.split == "none":
        return ", one copy a rank"
    if part.split == "ep":
        whole_experts = f" / ep {layout.ep}" if layout.ep > 1 else ""
        cuts = ceil_div(layout.expert_shares, layout.ep)
        padded = f", each cut padded to a multiple of {multiple}" if multiple > 1 and cuts > 1 else ""
        return f"{whole_experts}{f' / tp {cuts}' if cuts > 1 else ''}{padded}"
    if part.heads and layout.tp > part.heads:
        return f" / {part.heads} KV heads, replicated beyond"
    return f" / tp {layout.tp}" if layout.tp > 1 else ""
