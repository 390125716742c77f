"""Any bytes at all: a KvplanError or an answer, within the time and the memory that its size allows."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz_kit import MODELS, TARGETS, bundled_config, config, header, seeds
from kvplan.errors import KvplanError

QUICK = settings(
    max_examples=60, deadline=3000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([0, 1, -1, 10**9, "bfloat16", "fp8", []]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def survives(target: Callable[[bytes], None], data: bytes) -> None:
    try:
        target(data)
    except KvplanError as error:
        assert str(error).strip()


@st.composite
def damaged(draw: st.DrawFn, target: str) -> bytes:
    """A well-formed input with a few slices cut out, doubled or overwritten."""
    data = draw(st.sampled_from(seeds(target)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        stop = draw(st.integers(start, min(len(data), start + 40)))
        data = data[:start] + draw(st.one_of(st.binary(max_size=12), st.just(data[start:stop] * 2))) + data[stop:]
    return data


@pytest.mark.parametrize("target", TARGETS)
@QUICK
@given(st.data())
def test_damaged_inputs(target: str, data: st.DataObject) -> None:
    survives(TARGETS[target], data.draw(damaged(target)))


@pytest.mark.parametrize("target", TARGETS)
@QUICK
@given(st.binary(max_size=400))
def test_any_bytes(target: str, data: bytes) -> None:
    survives(TARGETS[target], data)


def slots(node: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON document, as its container and key."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
    return [(node, key) for key in keys] + [slot for key in keys for slot in slots(node[key])]


@settings(QUICK, max_examples=200)
@given(st.sampled_from(MODELS), st.data())
def test_any_value_in_any_field_of_a_real_config(name: str, data: st.DataObject) -> None:
    document = json.loads(json.dumps(bundled_config(name)))
    container, key = data.draw(st.sampled_from(slots(document)))
    container[key] = data.draw(JSON_VALUES)
    survives(config, json.dumps(document).encode())


@QUICK
@given(damaged("header"))
def test_a_header_never_takes_more_than_its_own_size(data: bytes) -> None:
    """Twice the input and a megabyte that Python itself may take: a claim of 2**63 bytes is not believed."""
    tracemalloc.start()
    survives(header, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * len(data) + 1_000_000
