"""Measured tables: exact at samples, linear between, widening outside, never less time for more work."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.calibration import find_calibration
from kvplan.errors import ProfileError
from kvplan.interval import Interval
from kvplan.latency.check import errors, held_out
from kvplan.latency.fit import fit_law
from kvplan.latency.grid import GROWTH, REPEAT, Grid, Point
from kvplan.latency.kernels import KERNELS, Work
from kvplan.latency.tables import Tables

H200 = Tables(find_calibration("h200")["samples"])


def sample(**given: Any) -> dict[str, Any]:
    return {"owner": "kvplan", "p10_s": 0.0, "p90_s": 0.0, "bytes": 0, "flops": 0, **given}


def decode_samples(heads: tuple[int, ...], batches: tuple[int, ...]) -> list[dict[str, Any]]:
    """2 microseconds and 4 TB/s, to the digit."""
    kernel = KERNELS["kda_decode"]
    shapes = [{"heads": h, "batch": n, "state": "fp32", "layout": "vk"} for h in heads for n in batches]
    return [sample(kernel="kda_decode", median_s=2e-6 + kernel.work(s).bytes / 4e12, **s) for s in shapes]


def width(seconds: Interval) -> float:
    return (seconds.high - seconds.low) / seconds.value


def test_a_law_is_found_again() -> None:
    points = [(Work(b, f, s), 2e-6 + b / 4e12 + f / 7e14 + s * 1e-8)
              for b in (1e6, 1e8, 1e9) for f in (1e9, 1e12) for s in (10.0, 1000.0)]  # fmt: skip
    law = fit_law(points)
    assert law.t0 == pytest.approx(2e-6, rel=1e-6)
    assert 1 / law.per_byte == pytest.approx(4e12, rel=1e-6)
    assert 1 / law.per_flop == pytest.approx(7e14, rel=1e-6)
    assert law.per_step == pytest.approx(1e-8, rel=1e-6)


def test_one_sample_is_a_rate_and_not_a_constant() -> None:
    law = fit_law([(Work(1e9), 0.25e-3)])
    assert law.t0 == 0
    assert law.seconds(Work(2e9)) == pytest.approx(0.5e-3)


def test_no_term_of_a_law_is_negative() -> None:
    law = fit_law([(Work(1e6, 1e6), 3e-6), (Work(1e8, 1e5), 2e-6), (Work(1e9, 2e6), 9e-6)])
    assert min(law.t0, law.per_byte, law.per_flop, law.per_step) >= 0


def test_between_and_beyond_samples_of_a_plain_law() -> None:
    """72 heads at batch 48 were not measured, nor batch 4,096; both follow the law that made the samples."""
    tables = Tables(decode_samples((12, 96), (1, 16, 256)))
    for heads, batch, how in ((72, 48, "measured"), (12, 4096, "fitted"), (2, 1, "fitted")):
        found = tables.seconds("kda_decode", heads=heads, batch=batch, state="fp32")
        want = 2e-6 + batch * heads * (131_072 + 1_282) / 4e12
        assert found.seconds.value == pytest.approx(want, rel=1e-6)
        assert found.seconds.how == how
        assert f"{how} (heads 12-96, batch 1-256)" in found.source


def test_a_sample_is_given_back_as_it_was_measured() -> None:
    for one in find_calibration("h200")["samples"]:
        if one["kernel"] == "kda_decode" and one["layout"] == "vk" and one["heads"] == 96:
            found = H200.seconds("kda_decode", heads=96, batch=one["batch"], state=one["state"]).seconds
            assert found.value == pytest.approx(one["median_s"], rel=0.02)
            assert found.low <= one["p10_s"] <= one["p90_s"] <= found.high


def test_a_corner_that_nobody_measured_is_filled_and_said() -> None:
    samples = [one for one in decode_samples((12, 24, 96), (1, 16, 256)) if (one["heads"], one["batch"]) != (24, 16)]
    found = Tables(samples).seconds("kda_decode", heads=24, batch=16, state="fp32").seconds
    assert found.value == pytest.approx(2e-6 + 16 * 24 * 132_354 / 4e12, rel=0.02)
    assert found.how == "fitted"


def test_the_engines_own_kernel_comes_first_and_ours_without_it() -> None:
    ours = decode_samples((12, 96), (1, 16))
    theirs = [one | {"owner": "vllm", "median_s": 3 * one["median_s"]} for one in ours]
    at = {"heads": 12, "batch": 1, "state": "fp32"}
    assert "vllm" in Tables([*ours, *theirs], "vllm").seconds("kda_decode", **at).source
    assert "vllm" not in Tables([*ours, *theirs], "sglang").seconds("kda_decode", **at).source
    assert "vllm" not in Tables([*ours, *theirs[:2]], "vllm").seconds("kda_decode", **at).source


def test_another_format_is_no_answer() -> None:
    tables = Tables(decode_samples((12, 96), (1, 16)))
    assert not tables.has("kda_decode", state="bf16")
    with pytest.raises(ProfileError, match="kda_decode` samples"):
        tables.seconds("kda_decode", heads=12, batch=1, state="bf16")


def test_the_matrix_roof_is_the_largest_product() -> None:
    assert Tables(decode_samples((12,), (1,))).flops_per_s() is None
    roof = H200.flops_per_s()
    assert roof is not None
    assert roof.value == pytest.approx(790e12, rel=0.02)


def test_a_grid_of_one_noisy_axis_never_falls() -> None:
    points = [Point((float(x),), Work(float(x)), seconds, seconds, seconds)
              for x, seconds in ((1, 1.0), (2, 3.0), (4, 2.0), (8, 9.0))]  # fmt: skip
    grid = Grid(points, lambda at: Work(at[0]))
    times = [grid.at((x / 8,)).seconds for x in range(1, 129)]
    assert times == sorted(times)


def test_the_interval_grows_with_the_distance_from_what_was_measured() -> None:
    tables = Tables(decode_samples((12, 96), (1, 16, 256)))
    widths = [width(tables.seconds("kda_decode", heads=96, batch=n, state="fp32").seconds)
              for n in (256, 512, 2048, 65536)]  # fmt: skip
    assert widths == sorted(widths)
    assert widths[0] == pytest.approx(2 * REPEAT)
    assert widths[2] - widths[1] == pytest.approx(2 * GROWTH * 1.386, rel=0.01)


@pytest.mark.parametrize(
    "kernel", ["kda_decode", "short_conv", "kda_prefill", "mla_decode", "mla_prefill", "mla_prefix"]
)
def test_work_is_what_the_kernels_files_count(kernel: str) -> None:
    """`bytes` and `flops` of each sample come from the kernel's own traffic function."""
    found = [one for one in find_calibration("h200")["samples"] if one["kernel"] == kernel]
    assert found
    for one in found:
        if not one.get("snapshot_every"):
            work = KERNELS[kernel].work(dict(KERNELS[kernel].defaults) | one)
            assert (work.bytes, work.flops) == (one["bytes"], one["flops"])


AXES = {
    "kda_decode": ({"state": "fp32"}, {"heads": (1, 200), "batch": (1, 2000)}),
    "mla_decode": ({"cache": "bf16"}, {"heads": (1, 200), "batch": (1, 2000), "context": (64, 4_000_000)}),
    "kda_prefill": ({}, {"heads": (1, 200), "sequences": (1, 60), "tokens": (64, 500_000)}),
    "mla_prefill": ({}, {"heads": (1, 200), "tokens": (64, 300_000)}),
}


@settings(max_examples=80, deadline=None)
@given(data=st.data(), kernel=st.sampled_from(sorted(AXES)))
def test_more_along_any_axis_never_takes_less_time(data: st.DataObject, kernel: str) -> None:
    fixed, axes = AXES[kernel]
    shape = {name: data.draw(st.integers(*ends), label=name) for name, ends in axes.items()}
    axis = data.draw(st.sampled_from(sorted(axes)))
    more = shape | {axis: data.draw(st.integers(shape[axis], axes[axis][1] * 2), label="more")}
    first = H200.seconds(kernel, **fixed, **shape).seconds
    second = H200.seconds(kernel, **fixed, **more).seconds
    assert second.value >= first.value * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(batch=st.integers(1, 512), factor=st.floats(1, 1000), heads=st.sampled_from([2, 12, 96]))
def test_outside_of_the_range_the_interval_is_never_narrower(batch: int, factor: float, heads: int) -> None:
    inside = H200.seconds("kda_decode", heads=heads, batch=batch, state="bf16").seconds
    outside = H200.seconds("kda_decode", heads=96 * factor, batch=batch, state="bf16").seconds
    edge = H200.seconds("kda_decode", heads=96, batch=batch, state="bf16").seconds
    assert width(outside) >= width(edge) - 1e-9
    assert inside.low > 0


def test_held_out_shapes_meet_the_goals() -> None:
    """At least 40 shapes over KDA and MLA: median error at most 5 %, 90th percentile at most 12 %."""
    what, guesses = held_out("h200", None)
    assert what == "samples of h200-held-out"
    together = errors(guesses)[-1]
    assert together.kernel == "KDA and MLA"
    assert together.samples >= 40
    assert together.median <= 0.05
    assert together.p90 <= 0.12
    assert together.covered >= 0.8


@pytest.mark.parametrize(
    ("kernel", "shape", "microseconds"),
    [
        ("kda_decode", {"heads": 96, "batch": 256, "state": "fp32"}, 780.0),
        ("kda_decode", {"heads": 96, "batch": 8, "state": "fp32"}, 27.1),
        ("mla_decode", {"heads": 12, "batch": 128, "context": 16384, "cache": "bf16"}, 556.0),
        ("mla_decode", {"heads": 12, "batch": 1, "context": 262144, "cache": "bf16"}, 107.7),
        ("mla_prefill", {"heads": 12, "tokens": 16384}, 1821.0),
        ("mla_prefill", {"heads": 16, "tokens": 4096}, 186.4),
    ],
)
def test_times_that_others_measured_on_the_same_card(kernel: str, shape: dict[str, Any], microseconds: float) -> None:
    """The best other kernel of each shape, measured apart from the calibration: ours takes 0.8 to 1.12 of it."""
    assert 0.8 < H200.seconds(kernel, **shape).seconds.value * 1e6 / microseconds < 1.12
