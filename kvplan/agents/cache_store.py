"""Memory that a prefix cache hands out: empty units first, then what was let go longest ago.

Contents are kept as runs of equal blocks, so that a step costs the same whether a block holds 16 tokens or 16,384.
"""

from collections import OrderedDict
from typing import Literal

from kvplan.units import ceil_div

Eviction = Literal["lru", "superseded-first", "session-pinned"]
EVICTIONS: tuple[Eviction, ...] = ("lru", "superseded-first", "session-pinned")
_STALE, _CURRENT = 0, 1


class Piece:
    """Blocks that were let go together: they leave from the last index down, as engines free a sequence's tail first.

    `good` is the index from which on they are no longer what the session's context holds.
    """

    __slots__ = ("born", "good", "queue", "ranges", "size", "units")

    def __init__(self, start: int, stop: int, units: int, born: int) -> None:
        self.ranges = [[start, stop]]
        self.good = stop
        self.size, self.units, self.born = stop - start, units, born
        self.queue = _CURRENT

    @property
    def reachable(self) -> bool:
        return bool(self.ranges) and self.ranges[0][0] < self.good

    def drop(self, count: int) -> None:
        """The last `count` blocks are gone."""
        self.size -= count
        while count:
            last = self.ranges[-1]
            step = min(count, last[1] - last[0])
            last[1] -= step
            count -= step
            if last[0] == last[1]:
                self.ranges.pop()

    def cut(self, start: int, stop: int) -> int:
        """Take out what lies between two indices; how many blocks that were."""
        kept, before = [], self.size
        for low, high in self.ranges:
            kept += [[low, min(high, start)], [max(low, stop), high]]
        self.ranges = [part for part in kept if part[0] < part[1]]
        self.size = sum(high - low for low, high in self.ranges)
        return before - self.size

    def renew(self) -> None:
        """A saved state that was pinned whole is whole again."""
        self.ranges, self.size, self.queue = [[0, self.good]], self.good, _CURRENT


class Store:
    """`capacity` units. What is pinned lies in neither queue; `session-pinned` never evicts what is current."""

    def __init__(self, capacity: int, eviction: Eviction) -> None:
        self.blank = capacity
        self.eviction = eviction
        self.queued = [0, 0]
        self._queues: tuple[OrderedDict[Piece, None], ...] = (OrderedDict(), OrderedDict())

    @property
    def free(self) -> int:
        """Units that can be had at once."""
        return self.blank + self.queued[_STALE] + (self.queued[_CURRENT] if self.eviction != "session-pinned" else 0)

    def evictable(self, piece: Piece) -> bool:
        return piece.queue == _STALE or self.eviction != "session-pinned"

    def take(self, units: int) -> None:
        """Hand out `units`, at most `free`: empty ones, then superseded ones, then the oldest."""
        for which, queue in enumerate(self._queues):
            if self.blank >= units:
                break
            while self.blank < units and queue:
                piece = next(iter(queue))
                count = min(piece.size, ceil_div(units - self.blank, piece.units))
                piece.drop(count)
                if not piece.size:
                    del queue[piece]
                self.queued[which] -= count * piece.units
                self.blank += count * piece.units
        self.blank -= units

    def put(self, piece: Piece) -> None:
        """Let go of blocks that can still be hit; they are the newest of their queue."""
        self._queues[piece.queue][piece] = None
        self.queued[piece.queue] += piece.size * piece.units

    def cut(self, piece: Piece, start: int, stop: int) -> int:
        """Take blocks out of a queue, to pin them; how many units that were."""
        units = piece.cut(start, stop) * piece.units
        self.queued[piece.queue] -= units
        if not piece.ranges:
            self._queues[piece.queue].pop(piece, None)
        return units

    def supersede(self, piece: Piece) -> None:
        """Nothing will ask for these blocks again, as far as the session goes; plain LRU does not know."""
        if self.eviction == "lru" or piece not in self._queues[_CURRENT]:
            return
        units = piece.size * piece.units
        del self._queues[_CURRENT][piece]
        self.queued[_CURRENT] -= units
        piece.queue = _STALE
        self._queues[_STALE][piece] = None
        self.queued[_STALE] += units
