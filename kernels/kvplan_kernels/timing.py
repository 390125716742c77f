"""Time prepared calls on the device: CUDA graph replays between events."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

GRAPH_SECONDS, MOST_NODES = 1e-3, 2000  # a graph this long hides the events' own cost; more nodes only cost host time


@dataclass(frozen=True)
class Timing:
    """Seconds a call, over the replays of one graph."""

    median_s: float
    p10_s: float
    p90_s: float
    replays: int


class Alone:
    """What `measure` asks of the processes that measure together; here there is one. `collectives.Ranks` is several."""

    def align(self) -> None:
        """Start the next replay together."""

    def slowest(self, times: Sequence[float]) -> list[float]:
        """Per entry, the largest of all processes."""
        return list(times)

    def agree(self, value: Any) -> Any:
        """The first process's value, for all."""
        return value


def quantile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between the sorted values."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(times: Sequence[float]) -> Timing:
    return Timing(quantile(times, 0.5), quantile(times, 0.1), quantile(times, 0.9), len(times))


def replayable(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """A CUDA graph of the calls, in order; they run once before it is captured."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    return _capture(calls, 1).replay  # type: ignore[no-any-return]


def captures(call: Callable[[], object]) -> bool:
    """Whether a CUDA graph takes this call; a library may refuse."""
    call()
    torch.cuda.synchronize()
    try:
        _capture([call], 1).replay()
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _capture(calls: Sequence[Callable[[], object]], rounds: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's own thread goes on querying events
        for _ in range(rounds):
            for call in calls:
                call()
    return graph


def _replay(run: Callable[[], object], ranks: Alone | None = None) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    if ranks:
        ranks.align()
    start.record()
    run()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1e-3


def warm_up(seconds: float = 0.5) -> None:
    """Bring the clocks up, so that the first kernel measured, which is a roof, is not measured cold."""
    data, until = torch.zeros(1 << 28, device="cuda"), time.monotonic() + seconds
    while time.monotonic() < until:
        data.mul_(1.0)
        torch.cuda.synchronize()


def measure(
    calls: Sequence[Callable[[], object]],
    seconds: float = 0.2,
    least: int = 7,
    most: int = 40,
    ranks: Alone | None = None,
) -> Timing:
    """Median over `least` to `most` replays, as many as `seconds` hold; each replay runs all calls back to back.

    The gaps between graph nodes are inside the figure, as they are in a serving step. Several ranks replay together,
    and a replay's time is that of the slowest.
    """
    ranks = ranks or Alone()
    for call in (calls[0], calls[-1], calls[0]):
        call()
    torch.cuda.synchronize()
    graph = _capture(calls, 1)
    _replay(graph.replay)
    once = ranks.slowest([min(_replay(graph.replay, ranks) for _ in range(2))])[0]
    rounds = max(1, min(math.ceil(GRAPH_SECONDS / once), MOST_NODES // len(calls)))
    if rounds > 1:
        graph = _capture(calls, rounds)
        _replay(graph.replay)
    replays = max(least, min(most, int(seconds / (once * rounds))))
    times = ranks.slowest([_replay(graph.replay, ranks) for _ in range(replays)])
    return summary([t / (rounds * len(calls)) for t in times])


def measure_eager(
    calls: Sequence[Callable[[], object]],
    seconds: float = 0.2,
    least: int = 7,
    most: int = 40,
    ranks: Alone | None = None,
) -> Timing:
    """The same with events around each eager call, for work that a graph changes: a captured copy is slower."""
    ranks = ranks or Alone()
    for call in calls:
        call()
    once = ranks.slowest([_replay(calls[0], ranks)])[0]
    replays = max(least, min(most, int(seconds / once)))
    return summary(ranks.slowest([_replay(calls[n % len(calls)], ranks) for n in range(replays)]))
