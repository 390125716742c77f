"""Prefix caches against vLLM's own block manager, closed forms and hand-made cases."""

import json
import random
from collections.abc import Callable
from itertools import permutations
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.agents.cache_content import replay_content
from kvplan.agents.cache_sessions import Cache
from kvplan.agents.cache_slots import SlotCache
from kvplan.agents.cache_store import Eviction, Store
from kvplan.agents.cache_vllm import VllmCache
from kvplan.agents.cache_whole import WholeCache
from kvplan.agents.request import Request
from kvplan.agents.traces import open_trace
from kvplan.engines.base import Reuse

CASES = json.loads((Path(__file__).resolve().parents[1] / "golden" / "vllm_residency.json").read_text())
"""Replayed through vLLM 0.33's KVCacheManager by scripts/vllm_residency_cases.py. 3,100 more cases of other seeds, with
66,000 requests, agreed in every hit and every refusal when they were compared."""
MANY = 1 << 40


def vllm(case: dict[str, Any], eviction: Eviction = "lru") -> VllmCache:
    return VllmCache(
        Store(case["num_blocks"] - 1, eviction), block_tokens=case["block_tokens"], lists=case["lists"],
        state_groups=case["state_groups"], states_first=case["states_first"], interval=case["interval"],
        chunk_tokens=case["chunk"],
    )  # fmt: skip


def play(cache: Cache, events: list[list[int]]) -> list[int | None]:
    """Hits in the order of the requests; a session that was refused has nothing to finish."""
    hits, serving = [], set()
    for event in events:
        if len(event) == 1:
            if event[0] in serving:
                serving.remove(event[0])
                cache.finish(event[0])
            continue
        hits.append(cache.start(*event))
        if hits[-1] is not None:
            serving.add(event[0])
    return hits


@pytest.mark.parametrize("row", CASES, ids=[str(index) for index in range(len(CASES))])
def test_hits_and_refusals_are_those_of_vllms_own_manager(row: dict[str, Any]) -> None:
    cache = vllm(row["case"])
    assert play(cache, row["case"]["events"]) == row["answer"]["hits"]
    assert cache.store.free == row["answer"]["free"]


def test_the_golden_cases_meet_what_matters() -> None:
    hits = [hit for row in CASES for hit in row["answer"]["hits"]]
    kinds = {(row["case"]["state_groups"], row["case"]["interval"]) for row in CASES}
    assert len(CASES) >= 10 and sum(1 for hit in hits if hit) > 200 and hits.count(None) > 50
    assert {states for states, _ in kinds} == {0, 1, 3} and {None, 0} < {interval for _, interval in kinds}


@pytest.mark.parametrize(("capacity", "found"), [(40, True), (39, False)])
def test_cyclic_access_finds_everything_or_nothing(capacity: int, found: bool) -> None:
    """Four sessions of 10 in turn: least recently used evicts the very next one when one unit is missing."""
    cache = WholeCache(capacity, lambda tokens: tokens)
    for turn in range(5):
        for session in range(4):
            assert cache.start(session, 10, 0, 10) == (10 if found and turn else 0)


def lru_hit(shares: list[float], places: int) -> float:
    """King (1971): sum over the ordered contents of a cache under independent references."""
    total = 0.0
    for held in permutations(range(len(shares)), places):
        chance, left = 1.0, 1.0
        for item in held:
            chance *= shares[item] / left
            left -= shares[item]
        total += chance * sum(shares[item] for item in held)
    return total


@pytest.mark.parametrize("places", [1, 2, 4])
def test_independent_references_hit_as_often_as_the_closed_form_says(places: int) -> None:
    shares, count = [0.4, 0.25, 0.15, 0.1, 0.06, 0.04], 40_000
    cache, drawn = WholeCache(places, lambda _: 1), random.Random(1)
    hits = sum(bool(cache.start(one, 1, 0, 1)) for one in drawn.choices(range(len(shares)), shares, k=count))
    exact = lru_hit(shares, places)
    assert hits / count == pytest.approx(exact, abs=4 * sqrt(exact * (1 - exact) / count))


_SESSIONS = st.lists(st.integers(0, 6), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(_SESSIONS, st.integers(1, 40), st.integers(0, 20))
def test_more_memory_never_finds_fewer_sessions(order: list[int], capacity: int, more: int) -> None:
    small, large = (WholeCache(size, lambda _: 5) for size in (capacity, capacity + more))
    for session in order:
        assert small.start(session, 100, 0, 100) <= large.start(session, 100, 0, 100)  # type: ignore[operator]


_TURNS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 200), st.floats(0, 1), st.integers(0, 40)), max_size=25)


def asked(drawn: list[tuple[int, int, float, int]]) -> list[list[int]]:
    """Requests that finish at once, each sharing a part of its session's last prompt."""
    events, prompts = [], dict.fromkeys(range(4), 0)
    for session, more, part, answer in drawn:
        shared = int(prompts[session] * part) if part < 0.9 else prompts[session]
        prompts[session] = shared + more
        events += [[session, shared + more, answer, shared], [session]]
    return events


def roomy(interval: int | None, states: int = 2) -> VllmCache:
    return VllmCache(Store(MANY, "lru"), block_tokens=16, state_groups=states, interval=interval, chunk_tokens=16)


@settings(max_examples=60, deadline=None)
@given(_TURNS)
def test_more_snapshots_never_find_less_where_nothing_is_evicted(drawn: list[tuple[int, int, float, int]]) -> None:
    events = asked(drawn)
    sparse, some, every = (play(roomy(interval), events) for interval in (0, 64, None))
    without = play(roomy(0, states=0), events)
    assert all(a <= b <= c == d for a, b, c, d in zip(sparse, some, every, without, strict=True))  # type: ignore[operator]


@settings(max_examples=40, deadline=None)
@given(_TURNS, st.integers(40, 120), st.sampled_from(["lru", "superseded-first", "session-pinned"]))
def test_units_are_never_lost(drawn: list[tuple[int, int, float, int]], capacity: int, eviction: Eviction) -> None:
    """With nothing in service, every unit is empty or in a queue, and no hit is longer than what is shared."""
    cache = VllmCache(Store(capacity, eviction), block_tokens=16, lists=2, state_groups=3, chunk_tokens=32)
    events = asked(drawn)
    hits = play(cache, events)
    assert cache.store.blank + sum(cache.store.queued) == capacity
    for hit, event in zip(hits, [event for event in events if len(event) > 1], strict=True):
        assert hit is None or (hit <= event[3] and hit % 16 == 0)


def test_a_state_without_its_blocks_is_no_hit() -> None:
    """Ten blocks of 10; the state of a prompt of 31 stands at 30, and blocks leave from the last on."""
    cache = VllmCache(Store(10, "lru"), block_tokens=10, state_groups=1, states_first=False, chunk_tokens=100)
    assert cache.start(0, 31, 0, 0) == 0
    cache.finish(0)
    assert cache.start(1, 65, 0, 0) == 0
    cache.finish(1)
    assert cache.start(0, 32, 0, 31) == 0


def test_pinned_sessions_stay_and_newcomers_are_refused() -> None:
    for cache in (WholeCache(20, lambda tokens: tokens, "session-pinned"),
                  VllmCache(Store(20, "session-pinned"), block_tokens=1, chunk_tokens=100)):  # fmt: skip
        assert cache.start(0, 12, 0, 0) == 0
        cache.finish(0)
        assert cache.start(1, 12, 0, 0) is None
        assert cache.start(0, 14, 0, 12) == 12
        cache.finish(0)
        cache.end(0)
        assert cache.start(1, 12, 0, 0) == 0


@pytest.mark.parametrize(("eviction", "whole", "blocks"), [("lru", 0, 2), ("superseded-first", 8, 8)])
def test_ended_sessions_leave_before_open_ones(eviction: Eviction, whole: int, blocks: int) -> None:
    """Two sessions of 8 in 20 units, the younger one over, and a third of 10: six have to go."""
    caches: list[tuple[Cache, int]] = [
        (WholeCache(20, lambda tokens: tokens, eviction), whole),
        (VllmCache(Store(20, eviction), block_tokens=1, chunk_tokens=100), blocks),
    ]
    for cache, found in caches:
        for session, units in ((0, 8), (1, 8), (2, 10)):
            if session == 2:
                cache.end(1)
            cache.start(session, units, 0, 0)
            cache.finish(session)
        assert cache.start(0, 9, 0, 8) == found


def test_slots_and_pages_by_hand() -> None:
    """Three slots a request of five: two do not run at once; a state stands at the last multiple of 4."""
    cache = SlotCache(Store(100, "lru"), Store(5, "lru"), page_tokens=1, track_tokens=4, slots_per_request=3)
    assert cache.start(0, 10, 2, 0) == 0
    assert cache.start(1, 10, 2, 0) is None
    cache.finish(0)
    assert cache.start(0, 20, 0, 9) == 8
    cache.finish(0)
    assert cache.start(0, 20, 0, 7) == 0
    cache.finish(0)
    no_states = SlotCache(Store(100, "lru"), None, page_tokens=4, track_tokens=1, slots_per_request=1)
    assert no_states.start(0, 10, 2, 0) == 0
    no_states.finish(0)
    assert no_states.start(0, 20, 0, 11) == 8


def test_slots_are_evicted_before_pages_are_missing() -> None:
    cache = SlotCache(Store(1000, "lru"), Store(3, "lru"), page_tokens=1, track_tokens=1, slots_per_request=1)
    for session in range(4):
        assert cache.start(session, 10, 0, 0) == 0
        cache.finish(session)
    assert cache.start(3, 11, 0, 10) == 9
    assert cache.start(0, 11, 0, 10) == 0


def test_contents_by_hand() -> None:
    """Two prompts share two blocks of 10. A state stands at each prompt's end, and where the second parted."""
    trace = [Request(str(n), 41, 0, blocks=(1, 2, 10 + n, 20 + n, 30 + n)) for n in range(3)]
    reuse = Reuse("blocks", 100, 10, state_units=1)
    assert replay_content(trace, 10, reuse, 100).hit == pytest.approx(20 / 123)
    assert replay_content(trace, 10, Reuse("blocks", 100, 10), 100).hit == pytest.approx(40 / 123)
    assert replay_content(trace, 10, Reuse("blocks", 100, 5), 200).hit == pytest.approx(40 / 123)
    assert replay_content(trace, 10, Reuse("blocks", 100, 20), 100).hit == pytest.approx(40 / 123)
    assert replay_content(trace, 10, Reuse("pages", 100, 10, slots=1), 100).hit == 0
    assert replay_content(trace, 10, reuse, 4).refused == 3


def test_published_mooncake_hits_without_limits(public_trace: Callable[[str], Path]) -> None:
    """0.374 for every block, 0.359 for prompt ends and branch points (Marconi), measured by others on this trace; they
    count a prompt's last block too, which an engine computes anew."""
    trace = list(open_trace(public_trace("mooncake_conversation_trace.jsonl")))
    assert replay_content(trace, 512, Reuse("blocks", 2134, 1536, state_units=3), 2134).hit < 0.1
    assert replay_content(trace, 512, Reuse("blocks", 0, 512), None).hit == pytest.approx(0.374, abs=1e-3)
    with_states = replay_content(trace, 512, Reuse("blocks", 0, 512, state_units=3), None)
    assert with_states.hit == pytest.approx(0.359, abs=2e-3) and with_states.requests == 12_031
