"""Times of whole steps and prefills that others published, and steps by hand, beside what the clock says."""

from functools import cache

import pytest

from kvplan.deployment import make_deployment
from kvplan.gpu import find_gpu
from kvplan.latency import Clock, Term, make_clock
from kvplan.latency.check import PublicPoint, public_points
from kvplan.sources import resolve


@cache
def clock(model: str, gpu: str) -> Clock:
    return make_clock(resolve(model), make_deployment(gpu=gpu), find_gpu(gpu.partition(":")[0]))


def named(terms: list[Term]) -> dict[str, Term]:
    return {term.name: term for term in terms}


@cache
def published() -> list[PublicPoint]:
    return public_points("h200")


def test_published_times_to_first_token_lie_in_the_intervals() -> None:
    """Kimi K3 on 8 x B300 with SGLang: 0.51-0.54 s at 8,193 tokens, 0.86-0.91 s at 16,385; a 30B model on one H20."""
    points = [point for point in published() if not point.sequences]
    assert [point.low_s for point in points] == [0.51, 0.86, 0.078, 15.2]
    assert [point.basis for point in points] == ["bounds", "bounds", "scaled", "scaled"]
    assert all(point.holds for point in points)


def test_published_times_of_a_step_lie_in_the_intervals_or_say_why_not() -> None:
    """vLLM on H100 (ML.ENERGY) and SGLang on eight H200 (InferenceX): the middle within a fifth of most."""
    points = [point for point in published() if point.sequences]
    assert len(points) == 20 and {point.basis for point in points} == {"scaled", "measured"}
    missed = [(point.model, point.sequences) for point in points if not point.holds]
    assert missed == [("llama-3.1-8b", 128)]
    assert all(point.note for point in points if not point.holds)
    off = sorted(abs(point.predicted_s.value / point.low_s - 1) for point in points)
    assert off[len(off) // 2] < 0.15
    assert all(point.predicted_s.high / point.predicted_s.low < 4 for point in points)


@pytest.mark.parametrize(
    ("hidden", "inter", "experts", "milliseconds"),
    [
        (4096, 1536, 128, {1: 0.096, 8: 0.575, 32: 1.105, 128: 1.169, 1024: 1.377}),
        (6144, 2048, 256, {1: 0.169, 8: 1.094, 32: 4.276, 128: 4.506, 1024: 5.100}),
    ],
)
def test_routed_experts_take_what_an_engine_s_own_call_takes(
    hidden: int, inter: int, experts: int, milliseconds: dict[int, float]
) -> None:
    """vLLM 0.24's fused experts in bf16, 8 of them a token, as others timed them; shapes that the tables lack."""
    meter = clock("kimi-linear", "h200:1").meter
    for tokens, ms in milliseconds.items():
        touched = min(experts, 8 * tokens)
        shape = {"experts": touched, "rows": 3 * inter, "columns": hidden, "tokens_each": 8 * tokens / touched}
        seconds = meter.call("moe", (0.1, ""), format="bf16", **shape).seconds
        assert seconds.value * 1e3 == pytest.approx(ms, rel=0.12)
        assert seconds.low * 1e3 < ms < seconds.high * 1e3


def test_a_step_of_kimi_linear_is_what_its_bytes_take() -> None:
    """32 sequences at 128K on one H200, by hand: 60.1 GB of experts at 4.2 TB/s, 33.8 GB of latents at 4.3, 2.7 GB of
    states at 4, 3.3 GB of other weights, and 400 starts of 2 us: 14.3 + 7.9 + 0.7 + 1.2 + 0.8 = 24.9 ms."""
    terms = named(clock("kimi-linear", "h200:1").decode_terms(32, 131_072))
    assert terms["routed experts"].bytes == pytest.approx(60.1e9, rel=0.01)
    assert terms["routed experts"].seconds.value == pytest.approx(60.1e9 / 4.2e12, rel=0.1)
    step = clock("kimi-linear", "h200:1").decode_step_s(32, 131_072)
    assert step.value == pytest.approx(24.9e-3, rel=0.1)
    assert step.high / step.low < 2


@pytest.mark.parametrize(
    ("model", "gpu", "sequences", "tokens"),
    [("llama-3.1-8b", "h200:1", 64, 8192), ("kimi-linear", "h200:1", 32, 131_072), ("kimi-linear", "h100:2", 8, 8192)],
)
def test_no_fast_end_outruns_the_datasheet(model: str, gpu: str, sequences: int, tokens: int) -> None:
    """Weights, states and caches are read from memory in each step; the L2 holds none of them until the next."""
    one = clock(model, gpu)
    for term in one.decode_terms(sequences, tokens):
        if "other" not in term.name and "over" not in term.name and "conv" not in term.name:
            least = term.bytes / find_gpu(gpu.partition(":")[0]).bandwidth_bytes_per_s
            skew = 0.11 if "experts" in term.name else 0.0
            assert term.seconds.low >= least * (1 - skew) * 0.999, term.name
