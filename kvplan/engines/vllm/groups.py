"""How vLLM divides the layers of a model into groups that share a block table (v1/core/kv_cache_planning.py).

Every block is as wide as the widest group, so the groups decide how many blocks a pool holds.
"""

from collections.abc import Sequence
from dataclasses import replace

from kvplan.engines.vllm.packed import bucket_bytes, layer_tuples, packed_groups
from kvplan.engines.vllm.rules import Rules
from kvplan.engines.vllm.specs import GROWING, Group, Kind, Spec, make_group, same_type
from kvplan.errors import ConfigError
from kvplan.units import ceil_div


def block_bytes(groups: Sequence[Group], rules: Rules) -> int:
    """Bytes of one block: the widest group. Before 0.27.1 mixed pages had a place each for every group."""
    if not rules.packs_densely and len(groups) > 1 and len({spec.page_bytes for g in groups for spec in g.specs}) > 1:
        return bucket_bytes(groups, whole_tuples=not rules.since(0, 23, 0))
    return max((group.page_bytes for group in groups), default=0)


def plan_groups(specs: Sequence[Spec], rules: Rules, *, packed: bool = False, width: int | None = None) -> list[Group]:
    """Groups of the whole model. `packed` is a block-outermost layout; `width` overrides the layers per group.

    Raises ConfigError where the release cannot plan such a mix.
    """
    if not specs:
        return []
    everything = tuple(range(len(specs)))
    if all(spec == specs[0] for spec in specs) or all(same_type(specs[0], spec) for spec in specs):
        return [Group(everything, tuple(specs), len(specs))]
    mixed = len({spec.page_bytes for spec in specs}) > 1
    if packed and mixed:
        return packed_groups(specs) if rules.packed_layouts else layer_tuples(specs, pad=not rules.packs_densely)
    try:
        return _striped(unified(specs, rules), rules, width)
    except ConfigError:
        promoted = _promoted(specs) if rules.promotes_windows else None
        if promoted is None:
            raise
        return [Group(everything, promoted, len(specs))]


def unified(specs: Sequence[Spec], rules: Rules) -> list[Spec]:
    """The same specs with one page size: blocks are scaled up, or pages padded, to the largest page."""
    largest = max(spec.page_bytes for spec in specs)
    if rules.mixed_pages == "refused" and any(spec.page_bytes != largest for spec in specs):
        raise ConfigError(f"layers with different page sizes: vLLM {rules.version} cannot plan them")
    return [_unify(spec, largest, rules) for spec in specs]


def _unify(spec: Spec, largest: int, rules: Rules) -> Spec:
    if spec.page_bytes == largest:
        return spec
    if spec.kind == "state" and rules.pads_states:
        return spec.padded_to(largest)
    ratio, left = divmod(largest, spec.page_bytes)
    if not left and spec.kind != "state":
        scaled = spec.with_block(spec.block_tokens * ratio)
        return scaled if spec.padded_bytes is None else scaled.padded_to(largest)
    if rules.mixed_pages == "padded" and spec.kind not in ("latent", "sliding_latent", "state"):
        return spec.padded_to(largest)
    raise ConfigError(
        f"a page of {spec.page_bytes:,} B neither divides the largest page of {largest:,} B nor may be padded to it: "
        f"vLLM {rules.version} cannot plan this mix of layers"
    )


def _promoted(specs: Sequence[Spec]) -> tuple[Spec, ...] | None:
    """Windows kept whole where a latent cache and a window of another page size meet; None where that does not make
    one type of them (_try_get_full_allocation_fallback_groups)."""
    kinds = {spec.kind for spec in specs}
    if not {"latent", "sliding"} <= kinds or kinds & {"sliding_latent", "chunked"}:
        return None
    whole = keep_whole(specs)
    return whole if all(same_type(whole[0], spec) for spec in whole) else None


def keep_whole(specs: Sequence[Spec]) -> tuple[Spec, ...]:
    """Windows and chunks allocated like full attention, in blocks of its size; unchanged where nothing is full."""
    growing = {spec.block_tokens for spec in specs if spec.kind in GROWING}
    block = growing.pop() if len(growing) == 1 else None
    if block is None and not growing:
        return tuple(specs)
    return tuple(_whole(spec, block or spec.block_tokens) for spec in specs)


def _whole(spec: Spec, block_tokens: int) -> Spec:
    kinds: dict[Kind, Kind] = {"sliding": "full", "chunked": "full", "sliding_latent": "latent"}
    if spec.kind not in kinds:
        return spec
    return replace(spec, kind=kinds[spec.kind], window=None, block_tokens=block_tokens)


def _buckets(specs: Sequence[Spec]) -> list[list[int]]:
    """Positions of equal specs, in the order in which each first appears."""
    found: dict[Spec, list[int]] = {}
    for position, spec in enumerate(specs):
        found.setdefault(spec, []).append(position)
    return list(found.values())


def _striped(specs: Sequence[Spec], rules: Rules, width: int | None) -> list[Group]:
    """Equal specs dealt out in turn to as many groups as they need; short groups are padded."""
    buckets = _buckets(specs)
    sizes = [len(bucket) for bucket in buckets]
    if width is None:
        width = max(sizes) if max(sizes) < min(sizes) * rules.width_ratio else min(sizes)
    groups = []
    for bucket in buckets:
        count = ceil_div(len(bucket), width)
        groups += [make_group(bucket[turn::count], specs, width) for turn in range(count)]
    return groups
