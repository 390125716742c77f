"""Open sessions over a prefix cache: a closed loop of requests, in which a session that ends makes room for the next.

N sessions are open at a time. Each sends its requests as the trace has them: a request is in service for as long as it
was in the trace, then the session waits for its tool or its user, and its place goes to another when it has no more
requests. How long a service takes does not depend on what is hit: past the knee misses make services longer, which
makes more misses, and that is not modelled.
"""

import gc
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from kvplan.agents.cache_sessions import Cache
from kvplan.agents.columns import Columns
from kvplan.errors import UsageError

MOST_REQUESTS = 60_000
"""Of one simulation: traces in which nothing takes time would never end."""


class Turn(NamedTuple):
    """One request: tokens of prompt and answer, what it shares with the prompt before, and seconds."""

    prompt: int
    answer: int
    shared: int
    service_s: float
    pause_s: float
    """Before the request, since the answer before it; 0 for the first."""


Conversation = list[Turn]


def conversations(columns: Columns, gap_cap_s: float, max_model_len: int) -> list[Conversation]:
    """The conversations of a trace, pauses capped, lengths cut at the engine's limit, whatever order they came in.

    Raises UsageError where the trace does not say what prompts share, or how long anything takes.
    """
    if not (columns.shared_tokens >= 0).any():
        raise UsageError("this trace does not say what prompts share with the prompt before; residency needs it")
    if not columns.timed:
        raise UsageError("this trace gives no times; residency needs how long requests and pauses last")
    prompt = np.minimum(columns.input_tokens, max(1, max_model_len - 1))
    answer = np.minimum(columns.output_tokens, max_model_len - prompt)
    shared = np.clip(columns.shared_tokens, 0, prompt)
    service = np.nan_to_num(columns.service_s, nan=0.0)
    pause = np.minimum(np.nan_to_num(columns.pause_s, nan=0.0), gap_cap_s)
    pause[columns.first] = 0.0
    found: list[Conversation] = [[] for _ in range(int(columns.stream.max()) + 1)]
    rows = zip(*(values.tolist() for values in (columns.stream, prompt, answer, shared, service, pause)), strict=True)
    for stream, *turn in rows:
        found[stream].append(Turn(*turn))
    return sorted(one for one in found if one)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What N open sessions found in the cache over the time that was simulated."""

    requests: int
    prompt_tokens: int
    hit_tokens: int
    waited: int
    """Requests that found no memory at first."""
    refused: int
    """Requests that would never have found any: they count as missed, and their sessions go on without."""
    cut: bool = False
    """Whether it ended at MOST_REQUESTS, before its time."""

    @property
    def hit(self) -> float:
        """Share of the prompts' tokens."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def simulate(sessions: list[Conversation], clients: int, cache: Cache, *, hours: float = 3.0, seed: int = 0) -> Outcome:
    """`clients` sessions from their first requests on, for so many hours. Equal seeds give equal outcomes."""
    collected = gc.isenabled()
    gc.disable()  # millions of small objects and no cycle among them: looking for some takes an eighth of the time
    try:
        return _Loop(sessions, clients, cache, seed).run(hours * 3600)
    finally:
        if collected:
            gc.enable()


class _Loop:
    def __init__(self, sessions: list[Conversation], clients: int, cache: Cache, seed: int) -> None:
        self.cache = cache
        self._order = _shuffled(sessions, seed)
        self._events: list[tuple[float, int, int, bool]] = []
        self._count = 0
        self._talks: list[Conversation] = []
        self._turn: list[int] = []
        self._names: list[int] = []
        self._waiting: deque[int] = deque()
        self._serving = self.waited = self.refused = 0
        self.requests = self.prompt_tokens = self.hit_tokens = 0
        for client in range(clients):
            self._talks.append(next(self._order))
            self._turn.append(0)
            self._names.append(client)
            self._push(0.0, client, False)
        self._named = clients

    def run(self, seconds: float) -> Outcome:
        cut = False
        while self._events:
            at, _, client, ends = heappop(self._events)
            if at > seconds or self.requests + self.refused >= MOST_REQUESTS:
                cut = at <= seconds
                break
            if ends:
                self._finish(at, client)
            elif self._waiting or not self._start(at, client):
                self._wait(at, client)
        return Outcome(self.requests, self.prompt_tokens, self.hit_tokens, self.waited, self.refused, cut)

    def _push(self, at: float, client: int, ends: bool) -> None:
        self._count += 1
        heappush(self._events, (at, self._count, client, ends))

    def _start(self, at: float, client: int) -> bool:
        turn = self._talks[client][self._turn[client]]
        hit = self.cache.start(self._names[client], turn.prompt, turn.answer, turn.shared)
        if hit is None:
            return False
        self.requests += 1
        self.prompt_tokens += turn.prompt
        self.hit_tokens += hit
        self._serving += 1
        self._push(at + turn.service_s, client, True)
        return True

    def _wait(self, at: float, client: int) -> None:
        """Until another finishes; a request that finds no memory in an idle engine never will."""
        if self._serving:
            self.waited += 1
            self._waiting.append(client)
            return
        self._give_up(at, client)

    def _give_up(self, at: float, client: int) -> None:
        turn = self._talks[client][self._turn[client]]
        self.refused += 1
        self.prompt_tokens += turn.prompt
        self._go_on(at + turn.service_s, client)

    def _finish(self, at: float, client: int) -> None:
        self._serving -= 1
        self.cache.finish(self._names[client])
        self._go_on(at, client)
        while self._waiting:
            if not self._start(at, self._waiting[0]):
                if self._serving:
                    break
                self._give_up(at, self._waiting.popleft())
                continue
            self._waiting.popleft()

    def _go_on(self, at: float, client: int) -> None:
        """The session's next request after its pause, or another session in its place."""
        self._turn[client] += 1
        if self._turn[client] < len(self._talks[client]):
            self._push(at + self._talks[client][self._turn[client]].pause_s, client, False)
            return
        self.cache.end(self._names[client])
        self._talks[client], self._turn[client], self._names[client] = next(self._order), 0, self._named
        self._named += 1
        self._push(at, client, False)


def _shuffled(sessions: list[Conversation], seed: int) -> Iterator[Conversation]:
    """Every session once in random order, then all of them again."""
    drawn = random.Random(seed)
    while True:
        order = list(range(len(sessions)))
        drawn.shuffle(order)
        yield from (sessions[index] for index in order)
