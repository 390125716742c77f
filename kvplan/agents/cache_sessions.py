"""Contexts of conversations in an engine's prefix cache: what of a prompt is still there, and what it costs to run it.

A hit needs the key and value blocks of a whole prefix and, where the model keeps a state, a saved state that stands in
it. A conversation shares with its own last prompt only what the trace says; answers count as new text, and nothing is
shared between conversations.
"""

from abc import ABC, abstractmethod
from heapq import heappop, heappush
from typing import Protocol

from kvplan.agents.cache_store import Piece, Store

Span = tuple[int, int, int]
"""When it was cached first, first block, block after the last."""


class Cache(Protocol):
    """What a simulation asks of a cache. A session has one request in service at a time."""

    def start(self, session: int, prompt: int, answer: int, shared: int) -> int | None:
        """Tokens of the prompt that need no prefill, its memory taken; None where there is none to take."""

    def finish(self, session: int) -> None:
        """The answer is there: the context stays until others need the memory."""

    def end(self, session: int) -> None:
        """The conversation is over."""


class Session:
    """Blocks of one conversation that are not pinned: per list of key and value blocks, and the saved states."""

    __slots__ = ("kv", "run", "states")

    def __init__(self, lists: int) -> None:
        self.kv: list[list[Piece]] = [[] for _ in range(lists)]
        self.states: list[tuple[int, Piece]] = []
        self.run: Run | None = None


class Run:
    """What a request in service has pinned."""

    __slots__ = ("blocks", "computed", "full", "hit_blocks", "spans", "state_blocks", "table")

    def __init__(self, hit_blocks: int, spans: list[list[Span]]) -> None:
        self.spans = spans
        self.blocks = self.full = self.state_blocks = self.hit_blocks = hit_blocks
        """Blocks per list; those that are full; the length of the table of states, its empty places included."""
        self.computed = 0
        self.table: list[tuple[int, Piece | None]] = []
        """States that are held, by the block that each stands at the end of, and the piece of those that are saved."""


class SessionCache(ABC):
    """Key and value blocks of conversations over a Store; how states are kept is the engine's."""

    def __init__(
        self, store: Store, states: Store, *, block_tokens: int, lists: int, state_units: int, duplicates: bool
    ) -> None:
        self.store, self.states = store, states
        self.block_tokens, self.lists, self.state_units = block_tokens, lists, state_units
        self.duplicates = duplicates
        """Whether a block that is computed again stands twice until the older copy is evicted."""
        self._sessions: dict[int, Session] = {}
        self._born = 0

    @abstractmethod
    def start(self, session: int, prompt: int, answer: int, shared: int) -> int | None: ...

    @abstractmethod
    def finish(self, session: int) -> None: ...

    def end(self, session: int) -> None:
        found = self._sessions.pop(session, None)
        if found is not None:
            for pieces in found.kv:
                for piece in pieces:
                    self.store.supersede(piece)
            for _, state in found.states:
                self.states.supersede(state)

    def _open(self, name: int, shared: int) -> Session:
        """The session, without what its next prompt has left behind."""
        found = self._sessions.get(name)
        if found is None:
            found = self._sessions[name] = Session(self.lists)
        self._born += 1
        block = shared // self.block_tokens
        for which, pieces in enumerate(found.kv):
            for piece in pieces:
                piece.good = min(piece.good, block)
                if not piece.reachable:
                    self.store.supersede(piece)
            found.kv[which] = [piece for piece in pieces if piece.reachable]
        kept = []
        for position, state in found.states:
            if position <= shared and state.size == self.state_units:
                kept.append((position, state))
            else:
                self.states.supersede(state)
        found.states = kept
        return found

    def _covered(self, session: Session, limit: int) -> int:
        """Blocks from the first on that every list still holds."""
        for pieces in session.kv:
            limit = min(limit, sum(stop - start for _, start, stop in _cover(pieces, limit)))
        return limit

    def _state(self, session: Session, most_tokens: int) -> tuple[int, Piece | None]:
        """The deepest saved state within so many tokens; of several copies the oldest."""
        best, found = 0, None
        for position, state in session.states:
            if best <= position <= most_tokens and (found is None or position > best or state.born < found.born):
                best, found = position, state
        return best, found

    def _evictable(self, session: Session, blocks: int) -> int:
        """Units of the first `blocks` blocks that count as free until they are pinned."""
        if self.store.eviction != "session-pinned":
            return blocks * self.lists
        return sum(
            stop - start
            for pieces in session.kv
            for piece in pieces
            if piece.queue == 0
            for start, stop in piece.ranges
            if start < blocks
        )

    def _pin(self, session: Session, blocks: int) -> list[list[Span]]:
        """Take the first `blocks` blocks of every list out of the queues."""
        spans = []
        for pieces in session.kv:
            held = _cover(pieces, blocks)
            for piece, start, stop in held:
                self.store.cut(piece, start, stop)
            spans.append([(piece.born, start, stop) for piece, start, stop in held])
        return spans

    def _let_go(self, session: Session, run: Run) -> None:
        """A request's full blocks into the queue, the last first; what is not full is empty again."""
        for pieces, spans in zip(session.kv, run.spans, strict=True):
            pieces[:] = [piece for piece in pieces if piece.reachable]
            held = [*spans, (self._born, run.hit_blocks, run.full)]
            if not self.duplicates:
                for piece in pieces:
                    self.store.blank += self.store.cut(piece, 0, min(run.full, piece.good))
                pieces[:] = [piece for piece in pieces if piece.reachable]
            if not pieces:
                held = [(self._born, 0, run.full)]
            for piece in pieces:
                self.store.supersede(piece)
            for born, start, stop in reversed(held):
                if start < stop:
                    piece = Piece(start, stop, 1, born)
                    pieces.append(piece)
                    self.store.put(piece)
        self.store.blank += (run.blocks - run.full) * self.lists


def _cover(pieces: list[Piece], limit: int) -> list[tuple[Piece, int, int]]:
    """The blocks 0 to `limit`, as far as they go without a hole; of several copies the one that was cached first.

    From left to right over the starts of all runs, those that are open by age: quick however many copies there are.
    """
    runs = [
        (start, piece.born, order, min(stop, piece.good), piece)
        for order, piece in enumerate(pieces)
        for start, stop in piece.ranges
    ]
    runs.sort()
    found: list[tuple[Piece, int, int]] = []
    open_runs: list[tuple[int, int, int, Piece]] = []
    at = index = 0
    while at < limit:
        while index < len(runs) and runs[index][0] <= at:
            heappush(open_runs, runs[index][1:])
            index += 1
        while open_runs and open_runs[0][2] <= at:
            heappop(open_runs)
        if not open_runs:
            break
        _, _, stop, piece = open_runs[0]
        end = min(limit, stop, runs[index][0] if index < len(runs) else limit)
        if found and found[-1][0] is piece:
            found[-1] = (piece, found[-1][1], end)
        else:
            found.append((piece, at, end))
        at = end
    return found
