"""Calibrations as files, and what `kvplan bench` says where it cannot run."""

from pathlib import Path
from typing import Any

import pytest

from kvplan.calibration import beyond, compare, find_calibration, find_precision
from kvplan.errors import ProfileError
from kvplan_kernels.calibration import key

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


def test_the_bundled_files_of_one_card(kvplan_json: Any) -> None:
    """Held-out shapes are other shapes; collectives name ranks and link; every error is within its tolerance."""
    full, held, pair = (find_calibration(name) for name in ("h200", "h200-held-out", "h200-x2"))
    shapes = [{key(sample) for sample in part["samples"] if sample["kernel"] not in ("move", "matmul")}
              for part in (full, held)]  # fmt: skip
    assert not shapes[0] & shapes[1]
    assert sum(" kda_" in name or " mla_" in name for name in shapes[1]) >= 40
    assert {sample["ranks"] for sample in pair["samples"]} == {2}
    assert pair["device"]["link"].startswith("NV")
    for document in (full, held, pair):
        assert all(sample["error"] <= sample["tolerance"] for sample in document["samples"])
    for document in (full, held):
        assert (document["device"], document["versions"]) == (full["device"], full["versions"])


def test_the_bundled_precision_study(kvplan_json: Any) -> None:
    study = kvplan_json("calibrations", "precision")
    error = {(e["gate"], e["path"], e["state"], e["tokens"]): e["state_error"] for e in study["errors"]}
    assert {tokens for *_, tokens in error} == {1024 * 4**n for n in range(6)}
    half_step = 2**-9  # bf16 keeps 8 bits: rounding to nearest moves a value by at most 2^-9 of it
    for (_, path, state, _), value in error.items():
        assert value < 1e-4 if (path, state) == ("decode", "fp32") else value < 0.1
        assert value < half_step or path == "decode"
    with pytest.raises(ProfileError, match="no precision study"):
        find_precision("nothing")


def test_two_owners_meet_only_when_asked(tmp_path: Path) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text(GOOD)
    other.write_text(GOOD.replace('owner = "kvplan"', 'owner = "them"').replace("median_s = 0.5", "median_s = 0.6"))
    documents = find_calibration(str(one)), find_calibration(str(other))
    assert compare(*documents) == []
    [row] = compare(*documents, any_owner=True)
    assert (row["first_owner"], row["second_owner"], row["why"]) == ("kvplan", "them", "another kernel")
    assert beyond([row], 0.1) == [row] and beyond([row], 0.3) == []
