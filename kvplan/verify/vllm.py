"""vLLM's figures: one pool in whole blocks, so that an integer block count settles all of them."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kvplan.logs.figures import Facts, Printed
from kvplan.units import format_gib
from kvplan.verify.case import Case
from kvplan.verify.report import Row, compare, unmodelled
from kvplan.verify.search import least

MANY_BLOCKS = 1 << 42
"""Bytes of a pool that no GPU has."""
_FEW = 256
"""Block counts that are tried one by one."""
_SAMPLE = 1 << 20
"""The largest --num-gpu-blocks-override; tokens per block show there to more places than any log prints."""
_LITTLE = Fraction(1, 20)


def figures_at(case: Case, blocks: int) -> dict[str, Any]:
    """The plan's engine part with so many blocks."""
    if blocks <= _SAMPLE:
        return case.figures(1 << 30, num_gpu_blocks_override=max(1, blocks))
    size = case.figures(1 << 30, num_gpu_blocks_override=1)["block_bytes"]
    return case.figures(blocks * size, num_gpu_blocks_override=None)


def block_ranges(case: Case, block_bytes: int) -> list[tuple[int, int, str]]:
    """(least, most, source) of each reading of the log's memory figures, the likeliest first.

    Every rank has its own pool and the engine takes the fewest blocks. Ranks of one stage have equal blocks, so the
    least pool decides; stages can differ, and which of them binds is not printed.
    """
    facts = case.facts
    if counted := facts.smallest("num_blocks"):
        return [(int(counted.value), int(counted.value), "the log states the block count")]
    if forced := case.flags.get("num_gpu_blocks_override"):
        return [(int(forced), int(forced), f"--num-gpu-blocks-override {forced}")]
    if given := case.flags.get("kv_cache_memory"):
        return [(int(given) // block_bytes, int(given) // block_bytes, f"--kv-cache-memory-bytes {int(given):,}")]
    if stated := facts.smallest("pool_bytes"):
        count = int(stated.value) // block_bytes
        return [(count, count, f"the log states the pool, {int(stated.value):,} B")]
    pools = {pool.text: pool for pool in sorted(facts.latest("pool"), key=lambda pool: pool.value)}
    if not pools:
        source = "the log states no memory; the block count is inferred from the tokens"
        return [(1, MANY_BLOCKS // block_bytes, source)]
    chosen = list(pools.values())[: None if int(case.flags.get("pp") or 1) > 1 else 1]
    return [
        (
            pool.low_bytes // block_bytes,
            pool.high_bytes // block_bytes,
            f"{pool.text} {pool.unit} is {pool.low_bytes:,} to {pool.high_bytes:,} B",
        )
        for pool in chosen
    ]


def said(facts: Facts, what: str) -> Printed | None:
    """A figure of the engine core, which prints one for each worker in some releases: the least counts."""
    if len(facts.latest("pool")) > 1:
        return min(facts.all(what), key=lambda figure: figure.value, default=None)
    return facts.smallest(what)


def settle(case: Case, lowest: int, highest: int) -> int:
    """The block count in the range that gives the printed tokens and concurrency, or comes nearest from above."""
    tokens = said(case.facts, "kv_cache_tokens")
    concurrency = said(case.facts, "max_concurrency")
    if lowest >= highest:
        return lowest
    if tokens is None and concurrency is None:
        return _by_longest(case, lowest, highest)
    low, high = lowest, highest
    for printed in (tokens, concurrency):
        if printed is None:
            continue
        low, high = _narrowed(case, low, high, printed)
    return low


def _by_longest(case: Case, lowest: int, highest: int) -> int:
    """The block count that gives the longest length that the engine names when a start fails, else the middle."""
    longest, middle = case.facts.last("longest_model_len"), (lowest + highest) // 2
    if longest is None or highest - lowest > _FEW:
        return middle
    counts = range(lowest, highest + 1)
    return next((one for one in counts if longest.holds(figures_at(case, one)["longest_max_model_len"])), middle)


def _narrowed(case: Case, low: int, high: int, printed: Printed) -> tuple[int, int]:
    """Both ends of the block counts that print like this. Where none does, the first that exceeds it, twice."""
    per_block = Fraction(figures_at(case, _SAMPLE)[printed.what]) / _SAMPLE
    if per_block <= 0:
        return low, high
    near = int(printed.value / per_block)
    slack = int(printed.half / per_block) + 2 * len(figures_at(case, 1)["group_list"]) + 2
    low, high = max(low, min(near - slack, high)), min(high, max(near + slack, low))

    first = least(low, high, lambda count: _figure(case, count, printed) >= printed.value - printed.half)
    if not printed.holds(_figure(case, first, printed)):
        return first, first
    after = least(first, high, lambda count: not printed.holds(_figure(case, count, printed)))
    return first, after - 1 if after > first and not printed.holds(_figure(case, after, printed)) else after


def _figure(case: Case, count: int, printed: Printed) -> Fraction:
    return Fraction(figures_at(case, count)[printed.what])


def rows(case: Case) -> tuple[list[Row], list[str], int]:
    """(figures, arithmetic, blocks) for the rules that `case` asks for."""
    ranges = block_ranges(case, figures_at(case, 1)["block_bytes"])
    readings = [_read_as(case, low, most, source) for low, most, source in ranges]
    return min(readings, key=lambda reading: sum(row.verdict == "differs" for row in reading[0]))


def _read_as(case: Case, low: int, most: int, source: str) -> tuple[list[Row], list[str], int]:
    blocks = settle(case, low, most)
    now = figures_at(case, blocks)
    found = [*_pool_rows(case, now, low, most, blocks, source), *_geometry_rows(case, now)]
    return found, arithmetic(case, now, low, most, source), blocks


def _pool_rows(case: Case, now: dict[str, Any], low: int, most: int, blocks: int, source: str) -> Iterator[Row]:
    facts = case.facts
    note = f"{blocks:,} blocks" + ("" if low == most else f" ({low:,} to {most:,} possible)")
    if most - low > MANY_BLOCKS // now["block_bytes"] // 2:
        note = f"{blocks:,} blocks, inferred"
    if counted := facts.smallest("num_blocks"):
        yield compare(counted, blocks, source)
    if tokens := said(facts, "kv_cache_tokens"):
        row = compare(tokens, now["kv_cache_tokens"], note)
        yield _within(case, row, tokens, low, most) if row.verdict == "differs" and low < most else row
    if concurrency := said(facts, "max_concurrency"):
        per = now["blocks_per_max_sequence"]
        yield compare(
            concurrency,
            Fraction(blocks, per) if now["kv_cache_tokens"] and per else 0,
            f"{blocks:,} blocks / {per:,} per {case.max_model_len:,}-token request",
        )
    if needed := facts.last("least_pool"):
        size = now["blocks_per_max_sequence"] * now["block_bytes"]
        yield compare(needed, Fraction(size, 1 << 30), f"{now['blocks_per_max_sequence']:,} blocks")
    if longest := facts.last("longest_model_len"):
        yield compare(longest, now["longest_max_model_len"], f"with {blocks:,} blocks")
    if state := facts.last("state_blocks"):
        yield compare(state, blocks, "every block can hold a state")


def _within(case: Case, row: Row, tokens: Printed, low: int, most: int) -> Row:
    """A figure that the rounding of the pool allows, and that no whole number of blocks gives."""
    least_tokens, most_tokens = (_figure(case, count, tokens) for count in (low, most))
    if not least_tokens <= tokens.value <= most_tokens:
        return row
    return replace(row, verdict="within", note=f"{row.note}; no whole number of blocks gives it")


def _geometry_rows(case: Case, now: dict[str, Any]) -> Iterator[Row]:
    facts = case.facts
    if size := facts.last("block_tokens"):
        yield compare(size, now["block_tokens"], "the attention page covers one state")
    if padding := facts.last("page_padding"):
        fraction = now["page_padding_fraction"]
        if fraction is None:
            yield unmodelled(padding, "no state page is planned beside attention")
        else:
            yield compare(padding, Fraction(fraction) * 100, "a state page is padded to the attention page")
    counts = [figure for figure in facts.all("padding_layers") if figure.who == facts.all("padding_layers")[0].who]
    shares = [figure for figure in facts.all("layer_padding") if figure.who == facts.all("layer_padding")[0].who]
    for count, share in {(one.text, two.text): (one, two) for one, two in zip(counts, shares, strict=False)}.values():
        yield from _padding_rows(now["padding"], count, share)


def _padding_rows(planned: list[dict[str, Any]], count: Printed, share: Printed) -> Iterator[Row]:
    """ "Add 3 padding layers, may waste at most 4.35%" names no kind; the row that fits it is meant."""
    fits = [
        row for row in planned if count.value == row["padding_layers"] and share.holds(Fraction(row["fraction"]) * 100)
    ]
    near = fits or [row for row in planned if count.value == row["padding_layers"]] or planned
    row: dict[str, Any] = near[0] if near else {"padding_layers": 0, "fraction": 0.0, "kind": "no", "layers": 0}
    note = f"{row['layers']} {row['kind']} layers"
    yield compare(count, row["padding_layers"], note)
    yield compare(share, Fraction(row["fraction"]) * 100, note)


def arithmetic(case: Case, now: dict[str, Any], low: int, most: int, source: str) -> list[str]:
    """The steps from the pool to the printed tokens, for a reader with a pencil."""
    blocks, per, length = now["num_blocks"], now["blocks_per_max_sequence"], case.max_model_len
    groups = ", ".join(
        f"{row['layers']} {row['kind']} layers × {row['block_tokens']:,} tokens" for row in _distinct(now["group_list"])
    )
    steps = [
        f"groups       {now['groups']}: {groups}; each block has {now['group_layers']} layer slots",
        f"block        {now['page_bytes']:,} B page × {now['group_layers']} = {now['block_bytes']:,} B "
        f"({format_gib(now['block_bytes'])})"
        if now["page_bytes"] * now["group_layers"] == now["block_bytes"]
        else f"block        {now['block_bytes']:,} B ({format_gib(now['block_bytes'])})",
        f"pool         {source}: {_counted(low, most, blocks)}"
        if most < MANY_BLOCKS // now["block_bytes"]
        else f"pool         {source}: {blocks:,} blocks, {format_gib(blocks * now['block_bytes'])}",
        f"per request  {per:,} blocks for {length:,} tokens",
        f"concurrency  {blocks:,} / {per:,} = {blocks / per:.2f}x" if per else "concurrency  no request fits",
    ]
    if now["rules"]["token_line"] == "concurrency":
        steps.append(f"tokens       {blocks:,} / {per:,} × {length:,} = {now['kv_cache_tokens']:,}")
    else:
        smallest = min(row["block_tokens"] for row in now["group_list"])
        dcp = int(case.flags.get("dcp") or 1)
        times = f" × {dcp} (dcp)" if dcp > 1 else ""
        steps.append(f"tokens       {blocks:,} // {now['groups']} × {smallest:,}{times} = {now['kv_cache_tokens']:,}")
    return steps


def _counted(low: int, most: int, blocks: int) -> str:
    return f"{blocks:,} blocks" if low == most else f"{low:,} to {most:,} blocks; {blocks:,} taken"


def _distinct(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups of one kind together, with the layers of all of them."""
    together: dict[tuple[str, int], dict[str, Any]] = {}
    for row in groups:
        key = (row["kind"], row["block_tokens"])
        if key in together:
            together[key]["layers"] += row["layers"]
        else:
            together[key] = dict(row)
    return list(together.values())


def misleading(case: Case, now: dict[str, Any]) -> list[str]:
    """What a reader would take from these figures and should not."""
    found = []
    several = now["groups"] > 1
    if case.facts.all("kv_cache_tokens") and several:
        if now["rules"]["token_line"] == "concurrency":
            found.append(
                "the printed tokens are max_concurrency × max_model_len: another --max-model-len prints another number "
                "from the same memory, and pool / tokens is no size of a token"
            )
        else:
            found.append(
                f"the printed tokens are blocks // {now['groups']} groups × one block: requests hold about "
                f"max_concurrency × max_model_len tokens, {int(now['max_concurrency'] * now['max_model_len']):,} here"
            )
    for fraction, what in (
        (now["page_padding_fraction"] or 0, "state pages are padded to the attention page"),
        (now["layer_padding_fraction"], "groups have empty layer slots"),
    ):
        if fraction > _LITTLE:
            found.append(f"{what}: {fraction:.1%} of what they take holds nothing")
    return found
