"""TensorRT-LLM's figures: one paged pool of whole blocks."""

from typing import Any

from kvplan.logs.figures import Printed
from kvplan.verify.case import Case
from kvplan.verify.report import Row, compare
from kvplan.verify.search import pool_for


def rows(case: Case) -> tuple[list[Row], list[str], int | None]:
    """(figures, arithmetic, pool bytes)."""
    facts = case.facts
    pool, size = facts.smallest("pool"), facts.last("block_tokens")
    flags: dict[str, Any] = {"tokens_per_block": int(size.value)} if size else {}

    def at(pool_bytes: int) -> dict[str, Any]:
        return case.figures(pool_bytes, **flags)

    tokens, blocks = facts.smallest("kv_cache_tokens"), facts.smallest("num_blocks")
    wanted = tokens or blocks
    low, high = (pool.low_bytes, pool.high_bytes) if pool else (1, 1 << 50)
    chosen = pool_for(wanted, low, high, at)
    figures = at(chosen)
    source = f"{pool.text} {pool.unit}" if pool else "no pool is printed; the bytes are inferred"
    found = [_row(figure, figures, source) for figure in (tokens, blocks) if figure]
    if pool and not found:
        found = [compare(pool, pool.value, "taken as it is")]
    return found, _arithmetic(figures, chosen), chosen


def _row(figure: Printed, figures: dict[str, Any], source: str) -> Row:
    return compare(figure, figures.get(figure.what) or 0, source)


def _arithmetic(figures: dict[str, Any], pool: int) -> list[str]:
    blocks, tokens = figures.get("num_blocks") or 0, figures.get("block_tokens") or 1
    page = figures.get("page_bytes") or 0
    return [
        f"block        {tokens:,} tokens, {page:,} B",
        f"pool         {pool:,} B: {blocks:,} blocks, {figures.get('kv_cache_tokens') or 0:,} tokens",
    ]
