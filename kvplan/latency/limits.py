"""A speed limit on capacity: the largest batch that still answers in time, and the first token of one more session."""

from collections.abc import Callable
from dataclasses import replace

from kvplan.deployment import Deployment
from kvplan.document import Binds, Capacity
from kvplan.errors import UsageError
from kvplan.gpu import Gpu
from kvplan.interval import Interval
from kvplan.latency.clock import Clock
from kvplan.latency.make import make_clock
from kvplan.model import Model


def limited(model: Model, deployment: Deployment, gpu: Gpu | None, rows: tuple[Capacity, ...]) -> tuple[Capacity, ...]:
    """`rows` under --max-tpot-ms and --max-ttft-s: counted at the slow end of the times, `high` at their fast end.

    Raises UsageError where the times are bounds alone, which decide nothing.
    """
    clock = limit_clock(model, deployment, gpu)
    for limit, binds, seconds in (
        ((deployment.max_tpot_ms or 0) / 1e3, "tpot", clock.decode_step_s),
        (deployment.max_ttft_s or 0, "ttft", clock.first_token_s),
    ):
        if limit:
            rows = tuple(_under(row, limit, binds, seconds) for row in rows)  # type: ignore[arg-type]
    return rows


def limit_clock(model: Model, deployment: Deployment, gpu: Gpu | None) -> Clock:
    """The clock that a limit is held against. Raises UsageError where there is none."""
    flag = "--max-tpot-ms" if deployment.max_tpot_ms else "--max-ttft-s"
    if gpu is None:
        raise UsageError(f"{flag} needs --gpu: times are those of a GPU")
    clock = make_clock(model, deployment, gpu)
    if clock.basis == "bounds":
        why = clock.assumptions[0].source
        raise UsageError(f"{flag}: nothing here tells times of {gpu.name} in this layout, only bounds ({why})")
    return clock


def _under(row: Capacity, limit_s: float, binds: Binds, seconds: Callable[[int, int], Interval]) -> Capacity:
    sure = _most(row.high, lambda n: seconds(n, row.context_tokens).high <= limit_s)
    possible = _most(row.high, lambda n: seconds(n, row.context_tokens).low <= limit_s)
    if sure >= row.high:
        return row
    sequences = min(row.sequences, sure)
    return replace(
        row,
        sequences=sequences,
        packed=min(row.packed, sure),
        low=min(row.low, sure),
        high=min(row.high, possible),
        deployment_sequences=_as_many(row.deployment_sequences, row.sequences, sequences),
        node_sequences=_as_many(row.node_sequences, row.sequences, sequences),
        binds=binds if sequences < row.sequences else row.binds,
    )


def _most(most: int, holds: Callable[[int], bool]) -> int:
    """The largest count up to `most` that holds, where a larger one never holds when a smaller does not."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _as_many(whole: int, of_one: int, now: int) -> int:
    return whole // of_one * now if of_one else 0
