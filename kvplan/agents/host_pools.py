"""Two pools beside each other, KV rows and state slots: a session can be resumed only where both still have it.

SGLang's HiCache keeps them apart and evicts each on its own, so what one of them holds without the other is dead.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from kvplan.errors import UsageError


@dataclass(frozen=True, slots=True)
class Split:
    """A host's memory as it is cut into rows and slots, and what of it can serve sessions."""

    kv_bytes: int
    state_bytes: int
    kv_sessions: int
    """Sessions whose tokens the rows hold."""
    state_sessions: int
    """Sessions whose states the slots hold."""
    stranded_bytes: int
    """What the larger pool holds beyond the smaller one's sessions."""

    @property
    def sessions(self) -> int:
        return min(self.kv_sessions, self.state_sessions)


def split_of(
    kv_tokens: int, state_slots: int, kv_bytes_per_token: int, slot_bytes: int, session_tokens: int, states: int
) -> Split:
    """Sessions of `session_tokens` with `states` saved states each. Raises UsageError for sizes below 1."""
    if min(kv_bytes_per_token, slot_bytes, session_tokens, states) < 1:
        raise UsageError("bytes per token and per slot, tokens and states of a session have to be at least 1")
    by_kv, by_state = kv_tokens // session_tokens, state_slots // states
    both = min(by_kv, by_state)
    rows = max(0, kv_tokens - both * session_tokens) * kv_bytes_per_token
    slots = max(0, state_slots - both * states) * slot_bytes
    stranded = rows if by_kv > by_state else slots if by_state > by_kv else 0
    return Split(kv_tokens * kv_bytes_per_token, state_slots * slot_bytes, by_kv, by_state, stranded)


def balanced(budget_bytes: int, kv_bytes_per_token: int, slot_bytes: int, session_tokens: int, states: int) -> Split:
    """The cut of `budget_bytes` in which neither pool strands the other: KV to states as k·L to states·S."""
    kv, state = kv_bytes_per_token * session_tokens, slot_bytes * states
    if min(kv, state) < 1:
        raise UsageError("bytes per token and per slot, tokens and states of a session have to be at least 1")
    whole, rest = divmod(budget_bytes, kv + state)
    tokens = whole * session_tokens + rest * kv // (kv + state) // kv_bytes_per_token
    slots = whole * states + rest * state // (kv + state) // slot_bytes
    return split_of(tokens, slots, kv_bytes_per_token, slot_bytes, session_tokens, states)


def replay_hits(
    kv_tokens: int, state_slots: int, fill: Sequence[int], again: Sequence[int], tokens: int, states: int
) -> int:
    """Prompts of `again` that still have their last state and all their rows once `fill` has gone through both pools.

    Every prompt has `tokens` rows and `states` states, least recently used goes first in each pool on its own, and a
    replayed prompt that misses is stored anew.
    """
    rows: OrderedDict[int, int] = OrderedDict()
    slots: OrderedDict[tuple[int, int], None] = OrderedDict()
    hits = 0
    for number, prompt in enumerate((*fill, *again)):
        deepest = (prompt, states - 1)
        hits += number >= len(fill) and prompt in rows and deepest in slots
        rows[prompt] = tokens
        rows.move_to_end(prompt)
        for index in range(states):
            slots[(prompt, index)] = None
            slots.move_to_end((prompt, index))
        while len(rows) * tokens > kv_tokens:
            rows.popitem(last=False)
        while len(slots) > state_slots:
            slots.popitem(last=False)
    return hits
