"""SGLang's radix cache over time: key and value pages in one pool, saved states in slots of another.

srt/mem_cache/mamba_radix_cache.py of 0.5.23, simplified: one state is saved for each prompt, at the last multiple of
--mamba-track-interval; a request takes all its slots from start to finish; equal pages are never kept twice.
"""

from kvplan.agents.cache_sessions import Run, SessionCache
from kvplan.agents.cache_store import Piece, Store
from kvplan.units import ceil_div


class SlotCache(SessionCache):
    """`slots` is the pool of states, None where the model keeps none."""

    def __init__(
        self, store: Store, slots: Store | None, *, page_tokens: int, track_tokens: int, slots_per_request: int
    ) -> None:
        units = 1 if slots is not None else 0
        super().__init__(store, slots or store, block_tokens=page_tokens, lists=1, state_units=units, duplicates=False)
        self.slots, self.track_tokens, self.slots_per_request = slots, track_tokens, slots_per_request

    def start(self, session: int, prompt: int, answer: int, shared: int) -> int | None:
        opened = self._open(session, shared)
        page = self.block_tokens
        covered = self._covered(opened, min(shared, prompt - 1) // page)
        hit, state = self._state(opened, covered * page) if self.slots is not None else (covered * page, None)
        reused = hit // page
        need = ceil_div(prompt + answer, page) - reused
        if need + self._evictable(opened, reused) > self.store.free:
            return None
        if self.slots is not None:
            if state is not None:
                self.slots.cut(state, 0, 1)
            if self.slots.free < self.slots_per_request:
                if state is not None:
                    self._keep(state)
                return None
            self.slots.take(self.slots_per_request)
            if state is not None:
                self._keep(state)
        run = Run(reused, self._pin(opened, reused))
        self.store.take(need)
        run.blocks, run.full = reused + need, (prompt + answer) // page
        run.computed = prompt
        opened.run = run
        return hit

    def finish(self, session: int) -> None:
        opened = self._sessions[session]
        run = opened.run
        assert run is not None, "a session finishes what it started"
        self._let_go(opened, run)
        if self.slots is not None:
            self.slots.blank += self.slots_per_request
            place = (run.computed - 1) // self.track_tokens * self.track_tokens
            if place and all(position != place for position, state in opened.states if state.size):
                for _, older in opened.states:
                    self.slots.supersede(older)
                self.slots.take(1)
                state = Piece(0, 1, 1, self._born)
                opened.states.append((place, state))
                self.slots.put(state)
        opened.run = None

    def _keep(self, state: Piece) -> None:
        assert self.slots is not None
        state.renew()
        self.slots.put(state)
