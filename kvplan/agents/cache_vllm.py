"""vLLM's KV cache over time, step by step, as its own block manager fills and empties it.

v1/core/kv_cache_manager.py, single_type_kv_cache_manager.py and block_pool.py of 0.33.0; prefill steps as
Scheduler._mamba_block_aligned_split cuts them. All of a request's steps are taken when it starts, and it holds what the
last one left until its time is over. Not modelled: checkpoints inside a prefill step, prefixes that match below a block
(--prefix-match-unit, DCP), drafts, windows.
"""

from collections.abc import Iterator

from kvplan.agents.cache_sessions import Run, Session, SessionCache
from kvplan.agents.cache_store import Piece, Store
from kvplan.units import ceil_div


class VllmCache(SessionCache):
    """`lists` groups of growing caches and `state_groups` of states share one pool of blocks."""

    def __init__(
        self, store: Store, *, block_tokens: int, lists: int = 1, state_groups: int = 0, states_first: bool = True,
        interval: int | None = 0, chunk_tokens: int = 8192, duplicates: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            store, store, block_tokens=block_tokens, lists=lists, state_units=state_groups, duplicates=duplicates
        )
        self.states_first, self.interval, self.chunk_tokens = states_first, interval, chunk_tokens

    def start(self, session: int, prompt: int, answer: int, shared: int) -> int | None:
        opened = self._open(session, shared)
        block = self.block_tokens
        covered = self._covered(opened, min(shared, prompt - 1) // block)
        hit, state = self._state(opened, covered * block) if self.state_units else (covered * block, None)
        marks = {(prompt - 1) // block, covered if hit < covered * block else 0}
        run: Run | None = None
        for stop in self._stops(prompt, answer, hit, covered * block if hit < covered * block else 0):
            run = self._step(opened, run, stop, hit, state, marks)
            if run is None:
                return None
        opened.run = run
        return hit

    def finish(self, session: int) -> None:
        opened = self._sessions[session]
        assert opened.run is not None, "a session finishes what it started"
        self._release(opened, opened.run)
        opened.run = None

    def _stops(self, prompt: int, answer: int, hit: int, junction: int) -> Iterator[int]:
        """Where each step ends; of the steps that decode, those that take or free a block."""
        block, at, end = self.block_tokens, hit, prompt + answer
        while at < prompt:
            stop = self._prefill_stop(prompt, at, junction)
            at = self._merged(prompt, at, junction, stop) if hit < at and at != junction else stop
            yield at
        if not answer:
            return
        if self.state_units or self._needs(prompt, end) > self.store.free:
            if prompt % block == 0 and end > prompt + 1:
                yield prompt + 1
            for bound in range((prompt // block + 1) * block, end, block):
                yield bound
                if bound + 1 < end:
                    yield bound + 1
        yield end

    def _merged(self, prompt: int, start: int, junction: int, stop: int) -> int:
        """Steps that save no state are taken as one where the pool has room for all: they reuse each other's states."""
        if not self.state_units:
            last = start + (prompt - 1 - start) // self.chunk_tokens * self.chunk_tokens
        elif self.interval == 0:
            last = junction if junction > start else (prompt - 1) // self.block_tokens * self.block_tokens
        else:
            return stop
        return last if last > stop and self._needs(start, last) <= self.store.free else stop

    def _needs(self, start: int, stop: int) -> int:
        """Blocks that the tokens between take, whatever is freed on the way."""
        return (ceil_div(stop, self.block_tokens) - ceil_div(start, self.block_tokens)) * self.lists + self.state_units

    def _prefill_stop(self, prompt: int, start: int, junction: int) -> int:
        block = self.block_tokens
        end = min(start + self.chunk_tokens, prompt)
        if not self.state_units:
            return end
        if end < prompt and (end // block * block > start or block <= self.chunk_tokens):
            end = end // block * block
        stops = ((start // block + 1) * block if start % block else 0, (prompt - 1) // block * block, junction)
        return min((stop for stop in stops if start < stop < end), default=end)

    def _step(
        self, session: Session, run: Run | None, stop: int, hit: int, state: Piece | None, marks: set[int]
    ) -> Run | None:
        """Compute up to `stop`. None where the pool has too few blocks: what the request held is let go."""
        block, store = self.block_tokens, self.store
        pinned = 0
        if run is None:
            hit_blocks = hit // block
            pinned = self._evictable(session, hit_blocks)
            pinned += self.state_units if state is not None and store.evictable(state) else 0
            run = Run(hit_blocks, [])
            run.computed = hit
        else:
            self._pass_states(run)
        wanted = ceil_div(stop, block)
        fresh = bool(self.state_units) and wanted > run.state_blocks
        need = (wanted - run.blocks) * self.lists + fresh * self.state_units
        if need + pinned > store.free:
            self._refuse(session, run)
            return None
        if not run.spans:
            run.spans = self._pin(session, run.hit_blocks)
            if state is not None:
                store.cut(state, 0, self.state_units)
                run.table.append((run.hit_blocks - 1, state))
        store.take(need)
        run.blocks = max(run.blocks, wanted)
        if fresh:
            run.state_blocks = wanted
            run.table.append((wanted - 1, None))
        self._save(session, run, stop // block, marks)
        run.computed = stop
        return run

    def _save(self, session: Session, run: Run, full: int, marks: set[int]) -> None:
        """Blocks that have become full can be hit; of the states, those that retention keeps."""
        for place, (index, saved) in enumerate(run.table):
            if saved is None and run.full <= index < full and self._kept(index + 1, marks):
                state = Piece(0, self.state_units, 1, self._born)
                for position, older in session.states:
                    if position < (index + 1) * self.block_tokens:
                        self.store.supersede(older)
                session.states.append(((index + 1) * self.block_tokens, state))
                run.table[place] = (index, state)
        run.full = max(run.full, full)

    def _kept(self, blocks: int, marks: set[int]) -> bool:
        """reachable_block_mask: every state when dense, else those of replay boundaries and of each interval."""
        if self.interval is None or blocks in marks:
            return True
        return bool(self.interval) and blocks * self.block_tokens % self.interval == 0

    def _pass_states(self, run: Run) -> None:
        """States before the one that the next step starts from."""
        first = (run.computed - 1) // self.block_tokens
        if not run.table or run.table[0][0] >= first:
            return
        for index, saved in reversed(run.table):
            if index < first:
                self._free_state(saved)
        run.table = [entry for entry in run.table if entry[0] >= first]

    def _free_state(self, saved: Piece | None) -> None:
        if saved is None:
            self.store.blank += self.state_units
            return
        saved.renew()
        self.store.put(saved)

    def _refuse(self, session: Session, run: Run) -> None:
        if run.spans:
            self._release(session, run)

    def _release(self, session: Session, run: Run) -> None:
        if not self.states_first:
            self._let_go(session, run)
        for _, saved in reversed(run.table):
            self._free_state(saved)
        if self.states_first:
            self._let_go(session, run)
