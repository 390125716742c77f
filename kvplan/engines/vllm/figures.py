"""vLLM's own figures for a pool, under the names of the plan document and of its start-up log."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

from kvplan.deployment import Deployment
from kvplan.engines.vllm.model import Specs
from kvplan.engines.vllm.settings import Settings
from kvplan.engines.vllm.specs import Group, Spec
from kvplan.errors import UsageError
from kvplan.units import ceil_div


@dataclass(frozen=True, slots=True)
class Planned:
    """A pool cut into blocks: the groups, and what limits a request."""

    settings: Settings
    specs: Specs
    groups: tuple[Group, ...]
    num_blocks: int
    block_bytes: int
    """Bytes of a block on the rank that holds most of it."""
    dcp: int

    def request_blocks(self, tokens: int) -> int:
        """Blocks that vLLM reckons for one request of so many tokens."""
        blocks = [group.blocks(tokens, self.settings.in_flight, self.dcp) for group in self.groups]
        pages = [group.page_bytes for group in self.groups]
        if self.settings.rules.packs_densely or len(set(pages)) == 1 or not self._mixed():
            return sum(blocks)
        used = sum(count * page for count, page in zip(blocks, pages, strict=True))
        return ceil_div(used, pages[0])

    def _mixed(self) -> bool:
        return len({spec.page_bytes for group in self.groups for spec in group.specs}) > 1

    def starts(self, max_model_len: int) -> bool:
        """Whether the engine starts: one request of the longest length has to fit."""
        spare = int(self.settings.rules.null_block_in_check)
        return self.request_blocks(max_model_len) <= self.num_blocks - spare

    def longest(self, most: int) -> int:
        """The longest max_model_len, up to `most`, with which the engine starts; 0 if none."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.starts(middle) else (low, middle - 1)
        return low

    def concurrency(self, max_model_len: int) -> float:
        blocks = self.request_blocks(max_model_len)
        return self.num_blocks / blocks if blocks else 0.0

    def tokens(self, max_model_len: int) -> int:
        """N of "GPU KV cache size: N tokens"."""
        if not self.groups:
            return 0
        if self.settings.rules.token_line == "concurrency":
            return int(self.concurrency(max_model_len) * max_model_len)
        smallest = min(group.spec.block_tokens for group in self.groups)
        return self.num_blocks // len(self.groups) * smallest * self.dcp


def figures(
    planned: Planned, deployment: Deployment, contexts: Sequence[int], max_model_len: int, most: int
) -> dict[str, Any]:
    """The `engine` part of the plan. `most` is the longest length that the model knows."""
    settings, rules, blocks = planned.settings, planned.settings.rules, planned.specs.blocks
    padding = layer_padding(planned.groups)
    states = [group for group in planned.groups if group.spec.kind == "state"]
    padded = sum(row["padding_layers"] for row in padding)
    spread = sum(row["layers"] for row in padding)
    scheduler, match = _grains(planned)
    return {
        "rules_version": rules.version,
        "rules": rules.describe(),
        "block_tokens": blocks.tokens,
        "page_bytes": max((spec.page_bytes for group in planned.groups for spec in group.specs), default=0),
        "group_layers": max((group.slots for group in planned.groups), default=0),
        "groups": len(planned.groups),
        "group_list": [_group_row(group) for group in planned.groups],
        "padding_layers": padded,
        "padding": padding,
        "layer_padding_fraction": padded / spread if spread else 0.0,
        "page_padding_fraction": _page_padding(planned.specs),
        "num_blocks": planned.num_blocks,
        "block_bytes": planned.block_bytes,
        "max_model_len": max_model_len,
        "blocks_per_sequence": [
            {"context_tokens": tokens, "blocks": planned.request_blocks(tokens)} for tokens in contexts
        ],
        "blocks_per_max_sequence": planned.request_blocks(max_model_len),
        "kv_cache_tokens": planned.tokens(max_model_len),
        "max_concurrency": planned.concurrency(max_model_len),
        "state_slots": None,
        "max_running_requests": None,
        "max_num_seqs": settings.max_num_seqs,
        "legal_max_num_seqs": planned.num_blocks if states else None,
        "longest_max_model_len": planned.longest(most),
        "min_request_blocks": planned.request_blocks(1),
        "min_request_bytes": planned.request_blocks(1) * planned.block_bytes,
        "mamba_cache_mode": settings.mode if states else None,
        "prefix_caching": settings.prefix_caching,
        "snapshot_blocks": len(states) if states else None,
        "snapshot_bytes": len(states) * planned.block_bytes if states else None,
        "scheduler_block_tokens": scheduler,
        "prefix_match_tokens": _match(deployment, planned, match) if settings.prefix_caching else None,
        "retention_interval_tokens": _retention(deployment, planned, scheduler),
        "retained_states": _retained(deployment, planned, scheduler, contexts),
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "waste_bytes": waste(planned, max(contexts)),
    }


def _group_row(group: Group) -> dict[str, Any]:
    spec = group.spec
    return {"kind": spec.kind, "layers": len(group.layers), "block_tokens": spec.block_tokens, "window": spec.window}


def layer_padding(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Per kind of layer, the empty places of its groups, as the log counts them ("Add 3 padding layers … 4.35%")."""
    layers: Counter[Spec] = Counter()
    places: Counter[Spec] = Counter()
    for group in groups:
        layers[group.spec] += len(group.layers)
        places[group.spec] += group.slots
    return [
        {
            "kind": spec.kind,
            "layers": count,
            "padding_layers": places[spec] - count,
            "fraction": (places[spec] - count) / count,
        }
        for spec, count in layers.items()
        if places[spec] > count
    ]


def _page_padding(specs: Specs) -> float | None:
    """How much larger than the state its page is; None without states beside attention."""
    blocks = specs.blocks
    if blocks.state_bytes is None or not any(spec.kind != "state" for spec in specs.specs):
        return None
    return (blocks.padded_bytes or blocks.state_bytes) / blocks.state_bytes - 1


def _grains(planned: Planned) -> tuple[int, int]:
    """Tokens that scheduling is a multiple of, and tokens at which prefixes can match."""
    sizes = [group.spec.block_tokens * (planned.dcp if group.spec.dcp_sharded else 1) for group in planned.groups] or [
        1
    ]
    together = lcm(*sizes)
    moving = any(group.spec.kind == "state" for group in planned.groups) and planned.settings.mode != "align"
    return together, together if moving or len(sizes) == 1 else gcd(*sizes)


def _match(deployment: Deployment, planned: Planned, default: int) -> int:
    """--prefix-match-unit, which has to divide every group's block."""
    unit = deployment.prefix_match_unit
    if unit is None:
        return default
    sizes = {group.spec.block_tokens * (planned.dcp if group.spec.dcp_sharded else 1) for group in planned.groups}
    if any(size % unit for size in sizes) or (len(planned.groups) == 1 and unit not in sizes):
        raise UsageError(f"--prefix-match-unit {unit:,} does not divide the blocks of {min(sizes):,} tokens")
    return unit


def _retention(deployment: Deployment, planned: Planned, scheduler: int) -> int | None:
    """Tokens between kept states: 0 keeps resume points alone, None every block boundary."""
    asked = deployment.prefix_cache_retention_interval
    if asked is None:
        return planned.settings.rules.retention_interval
    if asked % scheduler:
        raise UsageError(
            f"--prefix-cache-retention-interval {asked:,} is not a multiple of the scheduler's {scheduler:,} tokens"
        )
    return asked


def _retained(
    deployment: Deployment, planned: Planned, scheduler: int, contexts: Sequence[int]
) -> list[dict[str, int]] | None:
    """Saved states that one finished sequence leaves in the pool, and their bytes; None where none are saved."""
    states = [group for group in planned.groups if group.spec.kind == "state"]
    if not states or not planned.settings.prefix_caching or planned.settings.mode == "none":
        return None
    interval, block = _retention(deployment, planned, scheduler), states[0].spec.block_tokens
    one = len(states) * planned.block_bytes
    rows = []
    for tokens in contexts:
        boundaries = tokens // block
        kept = boundaries if interval is None else min(boundaries, 1 + (tokens // interval if interval else 0))
        rows.append({"context_tokens": tokens, "states": kept, "bytes": kept * one})
    return rows


def waste(planned: Planned, tokens: int) -> dict[str, int]:
    """Bytes of one sequence's blocks on the fullest rank that hold nothing of it, by cause.

    Layer padding: places of a block that a group leaves empty. Page padding: pages raised to the common size.
    Block rounding: the unused end of the last block, and what a window holds beyond its tokens. State copies: state
    blocks beyond the first of each group.
    """
    causes = dict.fromkeys(("layer_padding", "page_padding", "block_rounding", "state_copies"), 0)
    for group in planned.groups:
        blocks = group.blocks(tokens, planned.settings.in_flight, planned.dcp)
        real = sum(spec.real_bytes for spec in group.specs)
        causes["layer_padding"] += blocks * (planned.block_bytes - group.page_bytes)
        causes["page_padding"] += blocks * (group.page_bytes - real)
        if group.spec.kind == "state":
            causes["state_copies"] += (blocks - 1) * real
        else:
            causes["block_rounding"] += blocks * real - sum(_live(spec, tokens, planned.dcp) for spec in group.specs)
    return causes


def _live(spec: Spec, tokens: int, dcp: int) -> int:
    """Bytes of a sequence's own tokens in one layer."""
    held = spec.window or 0 if spec.kind == "encoder" else tokens
    if spec.kind in ("full", "latent") and spec.dcp_sharded:
        held = ceil_div(held, dcp)
    if spec.window is not None:
        held = min(held, spec.window)
    return held // spec.tokens_per_row * spec.row_bytes
