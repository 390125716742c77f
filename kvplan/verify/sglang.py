"""SGLang's figures: what its pools take for the slots and tokens that it prints, and how many follow from memory."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from kvplan.capacity import Evaluation
from kvplan.logs.figures import Facts, Printed
from kvplan.units import GIB
from kvplan.verify.case import Case
from kvplan.verify.report import Row, compare, unmodelled
from kvplan.verify.search import least, pool_for

_ROOM = 1 << 50
"""A pool in which stated slots and tokens always fit."""


def rows(case: Case) -> tuple[list[Row], list[str], int | None]:
    """(figures, arithmetic, pool bytes where memory lines give them)."""
    fixed = _fixed(case)
    now = case.evaluate(kv_cache_memory=_ROOM, **fixed)
    figures = now.allocation.figures if now.allocation else {}
    pool, sized = _from_memory(case)
    found = [*_state_rows(case.facts, now, figures), *_kv_rows(case.facts, now, figures), *_limit_rows(case, figures)]
    if pool is not None and sized is not None:
        found += _memory_rows(case.facts, sized)
    return found, _arithmetic(case.facts, figures, pool), pool


def _fixed(case: Case) -> dict[str, Any]:
    """Slots and tokens as printed."""
    slots, tokens = case.facts.last("state_slots"), case.facts.last("pool_tokens") or case.facts.last("kv_cache_tokens")
    fixed: dict[str, Any] = {}
    if slots:
        fixed["max_mamba_cache_size"] = int(slots.value)
    if tokens:
        fixed["max_total_tokens"] = int(tokens.value)
    return fixed


def _state_rows(facts: Facts, now: Evaluation, figures: dict[str, Any]) -> Iterator[Row]:
    slots = facts.last("state_slots")
    slot = figures.get("state_slot_bytes")
    printed = [figure for name in ("conv_state", "ssm_state") if (figure := facts.last(name))]
    if not slots or not printed:
        return
    if not slot:
        yield from (unmodelled(figure, "the model keeps no state as kvplan reads it") for figure in printed)
        return
    rows_held = int(slots.value) + 1
    parts = _parts(now)
    for figure in printed:
        size = parts.get(figure.what)
        if size is None or sum(parts.values()) != slot:
            yield unmodelled(figure, f"one slot is {slot:,} B in all; how it splits is not known")
        else:
            yield compare(figure, Fraction(rows_held * size, GIB), f"{rows_held:,} rows × {size:,} B; row 0 is a sink")
    for figure in (facts.last("draft_ssm_state"), facts.last("draft_conv_state")):
        if figure and figure.value:
            yield from _draft_row(figure, parts, figures)


def _draft_row(figure: Printed, parts: dict[str, int], figures: dict[str, Any]) -> Iterator[Row]:
    """States of the tokens under verification; the convolution's are kept as windows, not as whole states."""
    held = figures.get("draft_states")
    if figure.what == "draft_conv_state" or not held:
        yield unmodelled(figure, "intermediate states are part of the plan only as a whole")
    else:
        size = parts.get("ssm_state", 0)
        yield compare(figure, Fraction(held * size, GIB), f"{held:,} states × {size:,} B")


def _parts(now: Evaluation) -> dict[str, int]:
    """Bytes of one slot on the fullest rank."""
    if now.share is None:
        return {}
    prints = [holding.footprint(1) for holding in now.share.holdings()]
    fullest = max(prints, key=lambda one: one.state + one.conv)
    return {"conv_state": fullest.conv, "ssm_state": fullest.state}


def _kv_rows(facts: Facts, now: Evaluation, figures: dict[str, Any]) -> Iterator[Row]:
    tokens = facts.last("pool_tokens")
    held = figures.get("kv_cache_bytes")
    if not tokens or not held:
        return
    per_token = held // max(1, figures["num_blocks"] * _page(figures))
    whole = Fraction(int(tokens.value) * per_token, GIB)
    note = f"{int(tokens.value):,} tokens × {per_token:,} B"
    if figures.get("swa_cache_tokens"):
        yield from _window_rows(facts, figures, per_token)
        yield from (unmodelled(one, "windows have a pool of their own") for one in _all_pools(facts))
        return
    if pool := facts.last("kv_pool"):
        yield compare(pool, whole, note)
    for figure in (facts.last("k_pool"), facts.last("v_pool")):
        if figure:
            yield compare(figure, whole / 2, f"half of {note}")


def _window_rows(facts: Facts, figures: dict[str, Any], per_token: int) -> Iterator[Row]:
    """Both pools of a model with windows, for the tokens that the log prints, and the windows' share of them."""
    both, windows, full = facts.last("both_pools"), facts.last("swa_pool_tokens"), facts.last("pool_tokens")
    inside = figures.get("swa_cache_bytes")
    if both is None or windows is None or full is None or not inside:
        return
    per_window = inside // figures["swa_cache_tokens"]
    size = int(full.value) * per_token + int(windows.value) * per_window
    yield compare(
        both,
        Fraction(size, GIB),
        f"{int(full.value):,} tokens × {per_token:,} B and {int(windows.value):,} × {per_window:,} B",
    )
    yield compare(windows, figures["swa_cache_tokens"], "--swa-full-tokens-ratio of the full tokens")


def _all_pools(facts: Facts) -> list[Printed]:
    return [figure for name in ("kv_pool", "k_pool", "v_pool") if (figure := facts.last(name))]


def _page(figures: dict[str, Any]) -> int:
    blocks = figures["num_blocks"]
    return int(figures["kv_cache_tokens"]) // blocks if blocks else 1


def _limit_rows(case: Case, figures: dict[str, Any]) -> Iterator[Row]:
    facts = case.facts
    if each := facts.last("slots_per_request"):
        if figures.get("slots_per_request") is None:
            yield unmodelled(each, "the model keeps no state as kvplan reads it")
        else:
            yield compare(each, figures["slots_per_request"], str(figures.get("mamba_radix_cache_strategy") or ""))
    if running := facts.last("max_running_requests"):
        slots, per, asked = figures.get("state_slots"), figures.get("slots_per_request"), case.flags.get(running.what)
        note = f"{slots:,} slots // {per}" if slots and per else "from the tokens of the pool"
        if asked is not None and int(asked) == figures[running.what]:
            note = f"--max-running-requests {asked}"
        yield compare(running, figures[running.what], note)


def _from_memory(case: Case) -> tuple[int | None, dict[str, Any] | None]:
    """The pool from the memory lines: free after loading, less the share of what was free before that stays out.

    Rounding leaves a range; inside it the pool that gives the printed slots and tokens is taken, if there is one.
    Nothing where the pool was sized after CUDA graphs, from what was free then.
    """
    facts = case.facts
    before, loaded = facts.smallest("memory_before"), facts.smallest("memory_loaded")
    fraction = case.flags.get("mem_fraction_static")
    if not before or not loaded or fraction is None or facts.all("late_pool_tokens"):
        return None, None
    outside = 1 - Fraction(str(fraction))
    low = int(loaded.low_bytes - before.high_bytes * outside)
    high = int(loaded.high_bytes - before.low_bytes * outside)
    if high <= 0:
        return None, None

    slots, tokens = facts.last("state_slots"), facts.last("kv_cache_tokens") or facts.last("pool_tokens")
    if slots:
        low = pool_for(slots, low, high, case.figures)
        more = int(slots.value) + 1
        high = max(low, least(low, high, lambda size: (case.figures(size).get("state_slots") or 0) >= more) - 1)
    pool = pool_for(tokens, max(1, low), max(1, high), case.figures, "kv_cache_tokens")
    return pool, case.figures(pool)


def _memory_rows(facts: Facts, sized: dict[str, Any]) -> Iterator[Row]:
    note = "from the memory lines and --mem-fraction-static"
    if (slots := facts.last("state_slots")) and sized.get("state_slots") is not None:
        yield compare(slots, sized["state_slots"], note)
    if tokens := facts.last("kv_cache_tokens") or facts.last("pool_tokens"):
        yield compare(tokens, sized["kv_cache_tokens"], note)


def _arithmetic(facts: Facts, figures: dict[str, Any], pool: int | None) -> list[str]:
    steps = []
    if pool is not None:
        steps.append(f"pool         free after loading − (1 − fraction) × free before = {pool:,} B")
    if figures.get("state_slots"):
        steps += [
            f"states       {figures['state_slots']:,} slots + 1 sink row, {figures['state_slot_bytes']:,} B each",
            f"requests     {figures['state_slots']:,} slots // {figures['slots_per_request']} per request "
            f"({figures['mamba_radix_cache_strategy']}) = {figures['state_slots'] // figures['slots_per_request']:,}",
        ]
    if tokens := facts.last("pool_tokens"):
        per_token = (figures.get("kv_cache_bytes") or 0) // max(1, figures["num_blocks"] * _page(figures))
        steps.append(f"kv           {int(tokens.value):,} tokens × {per_token:,} B per token and rank")
    return steps
