"""Calibrations as files, and what `kvplan bench` says where it cannot run."""

import json
from pathlib import Path
from typing import Any

import pytest

from here_kit import here
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


def document_of(*words: str) -> Any:
    return json.loads(here(*words, "--json").stdout)


def test_the_bundled_h200() -> None:
    listed = document_of("calibrations", "list")["calibrations"]
    h200 = next(row for row in listed if row["name"] == "h200")
    assert h200["device"] == "NVIDIA H200"
    assert h200["samples"] > 100
    shown = document_of("calibrations", "show", "h200")
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
        (("median_s = 0.5", "median_s = nan"), r"samples\[0\].median_s: nan is no number"),
        (("median_s = 0.5", "median_s = inf"), r"samples\[0\].median_s: inf"),
        (("median_s = 0.5", "median_s = true"), r"samples\[0\].median_s: True"),
        (("p10_s = 0.4", 'p10_s = "x"'), r"samples\[0\].p10_s: 'x' is no number"),
        (("p10_s = 0.4\n", ""), "p10_s is missing"),
        (("p90_s = 0.6\n", ""), "p10_s and p90_s come together"),
        (("p90_s = 0.6", "p90_s = -1"), r"samples\[0\].p90_s: -1"),
        (("bytes = 8\n", ""), "bytes is missing"),
        (("bytes = 8", "bytes = 1e300"), r"samples\[0\].bytes: 1e\+300"),
        (("bytes = 8", "bytes = 8\nrows = 'x'"), r"samples\[0\].rows: 'x' is no number"),
        (("bytes = 8", "bytes = 8\ntokens = [1]"), r"samples\[0\].tokens: \[1\]"),
        (("bytes = 8", "bytes = 8\ntokens = -5"), r"samples\[0\].tokens: -5"),
        (("bytes = 8", "bytes = 8\nformat = 7"), r"samples\[0\].format: 7 is no word"),
        (('owner = "kvplan"', "owner = 5"), r"samples\[0\].owner: 5 is no word"),
        (('kernel = "move"', 'kernel = ["move"]'), r"samples\[0\].kernel: \['move'\] is no word"),
        (('how = "read"\n', ""), "how is missing"),
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


def test_the_bundled_files_of_one_card() -> None:
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


def test_the_bundled_precision_study() -> None:
    study = document_of("calibrations", "precision")
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


@pytest.mark.parametrize("words", [("h200", "h200-held-out"), ("h200", "h200-peers", "--any-owner")])
def test_a_comparison_fits_eighty_columns(words: tuple[str, ...]) -> None:
    done = here("calibrations", "compare", *words)
    assert done.returncode == 0
    assert "matmul size=8192" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_help_of_a_group_has_whole_sentences() -> None:
    """What typer alone would cut at a line's end."""
    for group, end in (("calibrations", "is refused by name."), ("claims", "that you were not short of.")):
        said = " ".join(here(group, "--help").stdout.split())
        assert said.endswith(end) and "..." not in said.partition("Commands:")[2]


@pytest.mark.parametrize("words", [("show",), ("check",), ("compare", "h200")])
def test_a_calibration_without_samples_says_so_or_shows_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / "none.toml"
    path.write_text(GOOD[: GOOD.index("[[samples]]")].replace("A GPU", "NVIDIA H200"))
    done = here("calibrations", *words, str(path))
    assert done.returncode == (2 if words == ("check",) else 0)
    assert "bug" not in done.stderr and done.stderr.count("\n") <= 1


@pytest.mark.parametrize(("device", "code"), [("NVIDIA H200", 0), ("NVIDIA H100 80GB HBM3", 0), ("A GPU", 2)])
def test_one_sample_is_enough_for_a_wide_answer(tmp_path: Path, device: str, code: int) -> None:
    """What is not in it goes by the datasheet; a card without a profile is refused by name."""
    path = tmp_path / "one.toml"
    path.write_text(GOOD.replace("A GPU", device).replace('how = "read"', 'how = "read"\nmegabytes = 4'))
    words = ("estimate", "kimi-linear", "--gpu", "H200", "--context", "8K", "--json")
    done = here(*words, "--calibration", str(path))
    assert done.returncode == code, done.stderr
    if code:
        assert "device.name: no GPU profile named" in done.stderr
        return
    wide = json.loads(done.stdout)["latency"]["decode"][-1]["tpot_ms"]
    own = json.loads(here(*words, "--calibration", "h200").stdout)["latency"]["decode"][-1]["tpot_ms"]
    assert wide["low"] < own["value"] < wide["high"]
    assert wide["high"] / wide["low"] > own["high"] / own["low"]
