"""A cache of whole sessions: all of a context is there or none of it, wherever a prompt parts from the one before.

What an engine's blocks are measured against, and what the Che approximation describes. Requests in service are not
protected: a session counts as used when its request starts.
"""

from collections import OrderedDict
from collections.abc import Callable

from kvplan.agents.cache_store import Eviction


class WholeCache:
    """`capacity` units; `units_of` says what a context of so many tokens takes."""

    def __init__(self, capacity: int, units_of: Callable[[int], int], eviction: Eviction = "lru") -> None:
        self.left, self.capacity = capacity, capacity
        self.units_of, self.eviction = units_of, eviction
        self._open: OrderedDict[int, int] = OrderedDict()
        self._ended: OrderedDict[int, int] = OrderedDict()

    def start(self, session: int, prompt: int, answer: int, shared: int) -> int | None:
        """All that the prompt shares where the session is still there; None where pinned sessions leave no room."""
        before = self._open.pop(session, None)
        self.left += before or 0
        units = self.units_of(prompt + answer)
        if self.eviction == "session-pinned" and units > self.left + sum(self._ended.values()):
            if before is not None:
                self._open[session] = before
                self.left -= before
            return None
        for queue in (self._ended, self._open):
            while self.left < units <= self.capacity and queue:
                self.left += queue.popitem(last=False)[1]
        if units <= self.left:
            self._open[session] = units
            self.left -= units
        return shared if before is not None else 0

    def finish(self, session: int) -> None:
        """Nothing changes: the whole context was counted from the start."""

    def end(self, session: int) -> None:
        if self.eviction != "lru" and session in self._open:
            self._ended[session] = self._open.pop(session)
