"""Calibrations as files, and what `kvplan bench` says where it cannot run."""

from pathlib import Path
from typing import Any

import pytest

from kvplan.calibration import compare, find_calibration
from kvplan.errors import ProfileError

GOOD = """
schema = "kvplan.calibration/1"
[device]
name = "A GPU"
[versions]
torch = "2.11"
[source]
date = "2026-11-29"
[[samples]]
owner = "kvplan"
kernel = "move"
how = "read"
median_s = 0.5
p10_s = 0.4
p90_s = 0.6
bytes = 8
flops = 0
roof = "read"
"""


def test_the_bundled_h200(kvplan_json: Any) -> None:
    listed = kvplan_json("calibrations", "list")["calibrations"]
    h200 = next(row for row in listed if row["name"] == "h200")
    assert h200["device"] == "NVIDIA H200"
    assert h200["samples"] > 100
    shown = kvplan_json("calibrations", "show", "h200")
    assert all(sample["error"] <= sample["tolerance"] for sample in shown["samples"])


def test_two_calibrations_meet_in_the_shapes_both_measured(tmp_path: Path) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text(GOOD)
    other.write_text(
        GOOD.replace("median_s = 0.5", "median_s = 1.0") + GOOD[GOOD.index("[[samples]]") :].replace("read", "x")
    )
    rows = compare(find_calibration(str(one)), find_calibration(str(other)))
    assert [row["ratio"] for row in rows] == [2.0]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (("kvplan.calibration/1", "kvplan.calibration/9"), "schema"),
        (("[device]", "[gadget]"), "device"),
        (("median_s = 0.5", "median_s = 0"), "samples"),
        (("median_s = 0.5", 'median_s = "fast"'), "samples"),
        (("[[samples]]", "[samples]"), "samples"),
        (("[device]", "[device"), "TOML"),
    ],
)
def test_a_damaged_calibration_is_named(tmp_path: Path, change: tuple[str, str], word: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(GOOD.replace(*change))
    with pytest.raises(ProfileError, match=word):
        find_calibration(str(path))


def test_without_a_gpu_bench_says_what_helps(kvplan: Any) -> None:
    done = kvplan("bench")
    if done.returncode == 0:
        pytest.skip("this machine has a GPU")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "GPU" in done.stderr
