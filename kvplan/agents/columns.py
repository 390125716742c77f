"""A trace as columns of numbers, one entry a request; sub-agents only where they are asked for."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvplan.agents.request import MAIN, Request
from kvplan.agents.traces import Trace
from kvplan.errors import SourceError
from kvplan.sources.strict import shown

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

GAP_CAP_S = 300.0
"""A pause counts for at most so long: past it memory goes to other sessions (AgentX plays with this cap)."""
_INTS = ("stream", "input", "output", "shared", "preamble", "trigger", "previous")
_TRIGGERS = {None: -1, "user": 0, "tool": 1, "mixed": 2}


@dataclass(frozen=True, slots=True)
class Columns:
    """Requests in the order of the trace; NaN and −1 where it does not say.

    `stream` numbers the conversations. `pause_s` is before the request, `after_s` before the next one of the same
    conversation (NaN after the last).
    """

    stream: Ints
    input_tokens: Ints
    output_tokens: Ints
    shared_tokens: Ints
    preamble_tokens: Ints
    trigger: Ints
    service_s: Floats
    pause_s: Floats
    after_s: Floats
    previous: Ints
    """Index of the request before in the same conversation; −1 for the first."""
    sessions: int

    @property
    def context_tokens(self) -> Ints:
        return self.input_tokens + self.output_tokens

    @property
    def first(self) -> NDArray[np.bool_]:
        """True for the first request of each conversation."""
        return self.previous < 0

    @property
    def timed(self) -> bool:
        """Whether the trace says how long anything took."""
        return bool(np.isfinite(self.service_s).any() or np.isfinite(self.after_s).any())

    def held_ms(self, gap_cap_s: float = GAP_CAP_S) -> Ints:
        """Milliseconds that each context stands: its own service and the pause after it, capped; unknown counts 0."""
        pause = np.minimum(np.nan_to_num(self.after_s, nan=0.0), gap_cap_s)
        return np.rint((np.nan_to_num(self.service_s, nan=0.0) + pause) * 1000).astype(np.int64)


def columns_of(trace: Trace, *, subagents: bool = False) -> Columns:
    """The requests of a trace file. Raises SourceError where none is left without sub-agents."""
    found = read_columns(trace, subagents=subagents)
    if not len(found.stream):
        raise SourceError(f"{shown(trace.path)}: only sub-agents in this trace; give --subagents")
    return found


def read_columns(requests: Iterable[Request], *, subagents: bool = False) -> Columns:
    """One pass. A pause that is not given is what lies between an answer and the next request on the clock."""
    numbers = {name: array("q") for name in _INTS}
    times = {name: array("d") for name in ("service", "pause", "after")}
    streams: dict[tuple[str, str], int] = {}
    last: dict[int, tuple[int, float | None]] = {}
    sessions: set[str] = set()
    for request in requests:
        if request.agent != MAIN and not subagents:
            continue
        sessions.add(request.session)
        stream = streams.setdefault(request.stream, len(streams))
        index, ended = last.get(stream, (-1, None))
        pause = request.pause_s
        if pause is None and ended is not None and request.at_s is not None:
            pause = max(0.0, request.at_s - ended)
        if index >= 0 and pause is not None:
            times["after"][index] = pause
        ends = None if request.at_s is None else request.at_s + (request.service_s or 0.0)
        last[stream] = (len(numbers["stream"]), ends)
        for name, value in (
            ("stream", stream), ("input", request.input_tokens), ("output", request.output_tokens),
            ("shared", request.shared_tokens), ("preamble", request.preamble_tokens),
            ("trigger", _TRIGGERS[request.trigger]), ("previous", index),
        ):  # fmt: skip
            numbers[name].append(-1 if value is None else value)
        for name, moment in (("service", request.service_s), ("pause", pause), ("after", None)):
            times[name].append(np.nan if moment is None else moment)
    ints = {name: np.array(column, dtype=np.int64) for name, column in numbers.items()}
    floats = {name: np.array(column, dtype=np.float64) for name, column in times.items()}
    return Columns(
        stream=ints["stream"], input_tokens=ints["input"], output_tokens=ints["output"],
        shared_tokens=ints["shared"], preamble_tokens=ints["preamble"], trigger=ints["trigger"],
        service_s=floats["service"], pause_s=floats["pause"], after_s=floats["after"],
        previous=ints["previous"], sessions=len(sessions),
    )  # fmt: skip
