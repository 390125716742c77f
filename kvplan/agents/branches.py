"""Snapshots on a trace whose prompts share prefixes with any earlier one: chats with common openings.

Blocks with equal numbers have equal prefixes, so that one number stands for everything before it too.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kvplan.agents.request import Request
from kvplan.errors import UsageError


@dataclass(frozen=True, slots=True)
class BlockOutcome:
    """Hits at infinite capacity."""

    token_hit: float
    snapshots: int
    """Made at prompt ends and branch points; periodic ones are not counted."""


def replay_blocks(
    requests: Iterable[Request],
    block_tokens: int,
    *,
    everywhere: bool = False,
    prompt_end: bool = False,
    branches: bool = False,
    every_blocks: int | None = None,
) -> BlockOutcome:
    """Prompts in the order of the trace, each against the snapshots of all before it.

    `prompt_end`: after the last whole block of a prompt. `branches`: where a prompt left what was known and no snapshot
    stood (Marconi, arXiv 2411.19379). `every_blocks`: at each multiple. Raises UsageError where prompts have no blocks.
    """
    seen: set[int] = set()
    kept: set[int] = set()
    hits = total = 0
    for request in requests:
        blocks, whole = request.blocks, request.input_tokens // block_tokens
        known = next((index for index, block in enumerate(blocks) if block not in seen), len(blocks))
        deep = known if everywhere else _deepest(blocks[:known], kept, every_blocks)
        hits += min(deep * block_tokens, request.input_tokens)
        total += request.input_tokens
        if branches and deep < known < whole:
            kept.add(blocks[known - 1])
        seen.update(blocks)
        if prompt_end and 0 < whole <= len(blocks):
            kept.add(blocks[whole - 1])
    if not seen:
        raise UsageError("the prompts of this trace have no block hashes; branch points need them")
    return BlockOutcome(hits / total, len(kept))


def _deepest(known: tuple[int, ...], kept: set[int], every_blocks: int | None) -> int:
    """Blocks before the deepest snapshot in a prefix."""
    for depth in range(len(known), 0, -1):
        if known[depth - 1] in kept or (every_blocks and depth % every_blocks == 0):
            return depth
    return 0
