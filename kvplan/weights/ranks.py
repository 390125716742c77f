"""Which rank holds how much of each part: tensor, expert and pipeline parallelism as engines do them."""

from kvplan.deployment import Layout
from kvplan.errors import PlacementError
from kvplan.units import ceil_div
from kvplan.weights.parts import FIRST, LAST, MTP, Part


def stage_sizes(layers: int, pp: int) -> list[int]:
    """Blocks per pipeline stage. What does not divide goes to the stages before the last, from behind (vLLM)."""
    if pp > layers:
        raise PlacementError(f"--pp {pp} is more than num_hidden_layers {layers}; use at most one stage a layer")
    sizes = [layers // pp] * pp
    for back in range(2, layers % pp + 2):
        sizes[-back] += 1
    return sizes


def stages(parts: list[Part], layers: int, pp: int, *, tied: bool) -> list[list[Part]]:
    """Parts by pipeline stage. A tied embedding is also the head, so the last stage holds it too."""
    stage_of_block = [stage for stage, size in enumerate(stage_sizes(layers, pp)) for _ in range(size)]
    held: list[list[Part]] = [[] for _ in range(pp)]
    for part in parts:
        if isinstance(part.place, int):
            held[stage_of_block[part.place]].append(part)
            continue
        held[0 if part.place == FIRST else -1].append(part)
        if part.place not in (FIRST, LAST, MTP):
            raise PlacementError(f"internal place {part.place!r} is unknown")
        if pp > 1 and tied and part.role == "embedding":
            held[-1].append(part)
    return held


def rank_bytes(part: Part, layout: Layout, moe_shard_multiple: int = 1) -> int:
    """Bytes of a part on the fullest rank of its stage."""
    if part.split == "none":
        return part.total_bytes
    if part.split == "ep":
        return _expert_bytes(part, layout, moe_shard_multiple)
    if part.heads and layout.tp > part.heads:
        return ceil_div(part.total_bytes, part.heads)
    return ceil_div(part.total_bytes, layout.tp)


def _expert_bytes(part: Part, layout: Layout, multiple: int) -> int:
    """Whole experts by ep, then a cut through each one by what tensor parallelism is left."""
    experts = ceil_div(part.count, layout.ep)
    cuts = ceil_div(layout.expert_shares, layout.ep)
    if cuts == 1:
        return experts * part.bytes
    if not part.inner or multiple == 1:
        return ceil_div(experts * part.bytes, cuts)
    width = ceil_div(ceil_div(part.inner, cuts), multiple) * multiple
    return ceil_div(experts * part.bytes * width, part.inner)
