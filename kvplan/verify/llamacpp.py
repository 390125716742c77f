"""llama.cpp's figures: buffers that its flags fix, to the byte."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kvplan.logs.figures import Printed
from kvplan.units import MIB
from kvplan.verify.case import Case
from kvplan.verify.report import Row, compare, unmodelled

_CACHES = (("k_bytes", "v_bytes", "growing cache"), ("swa_bytes", None, "window cache"), ("index_bytes", None, "index"))
_STATES = (("state_buffer", ("r_bytes", "s_bytes")), ("conv_state", ("r_bytes",)), ("ssm_state", ("s_bytes",)))


def rows(case: Case) -> tuple[list[Row], list[str], int | None]:
    """(figures, arithmetic, no pool: nothing is sized by memory)."""
    now = case.evaluate(kv_cache_memory=1 << 50, tp=1)
    figures = now.allocation.figures if now.allocation else {}
    return [*_cache_rows(case, figures), *_state_rows(case, figures)], _arithmetic(figures), None


def _cache_rows(case: Case, figures: dict[str, Any]) -> Iterator[Row]:
    planned = [cache for cache in _CACHES if figures.get(cache[0])]
    keys, values = case.facts.all("k_buffer"), case.facts.all("v_buffer")
    for place, buffer in enumerate(case.facts.all("kv_buffer")):
        if place >= len(planned):
            yield unmodelled(buffer, "a further cache, of a draft or of another context")
            continue
        key, value, what = planned[place]
        whole = figures[key] + (figures[value] if value else 0)
        row = compare(buffer, Fraction(whole, MIB), f"{what}: {whole:,} B")
        if row.verdict == "differs" and key == "swa_bytes" and case.flags.get("ubatch_size") is None:
            row = replace(
                row, verdict="not-modelled", note=f"{row.note} with 512 tokens a batch; give its command after --"
            )
        yield row
        if value and place < len(keys) and place < len(values):
            yield compare(keys[place], Fraction(figures[key], MIB), f"K: {figures[key]:,} B")
            yield compare(values[place], Fraction(figures[value], MIB), f"V: {figures[value]:,} B")


def _state_rows(case: Case, figures: dict[str, Any]) -> Iterator[Row]:
    slots = case.facts.last("state_slots")
    for what, names in _STATES:
        for printed in _unlike(case.facts.all(what)):
            size = sum(figures.get(name) or 0 for name in names)
            note = f"{size:,} B" + (f" in {_slots(int(slots.value))}" if slots else "")
            yield compare(printed, Fraction(size, MIB), note)


def _unlike(figures: list[Printed]) -> list[Printed]:
    return list({figure.text: figure for figure in figures}.values())


def _arithmetic(figures: dict[str, Any]) -> list[str]:
    cells, slots = figures.get("kv_cache_tokens") or 0, figures.get("n_seq_max") or 1
    shared = "shared by" if figures.get("kv_unified") else "divided among"
    steps = [f"cells        {cells:,} in all, {shared if slots > 1 else 'for'} {_slots(slots)}"]
    for name, what in (("k_bytes", "K"), ("v_bytes", "V"), ("index_bytes", "index")):
        if figures.get(name):
            steps.append(f"{what:<12} {cells:,} cells × {Fraction(figures[name], cells)} B = {figures[name]:,} B")
    for name, what in (("r_bytes", "R (tails)"), ("s_bytes", "S (states)")):
        if figures.get(name):
            steps.append(f"{what:<12} {_slots(slots)} × {figures[name] // slots:,} B = {figures[name]:,} B")
    return steps


def _slots(count: int) -> str:
    return f"{count} slot{'s' if count > 1 else ''}"
