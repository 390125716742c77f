"""Published claims: every verdict and every intermediate that was published beside it, and files that are wrong."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from here_kit import here
from kvplan.claims import find_claim, judge, list_claims
from kvplan.claims.judge import Computed, _compare
from kvplan.claims.schema import Printed, parse_claim
from kvplan.claims.screen import show_check, show_claim, show_list
from kvplan.errors import ConfigError, ProfileError
from kvplan.flops import step_flops
from kvplan.profiles import profiles_root
from kvplan.sources import resolve

EXACT, OTHER, NOT = "reproduced exactly", "reproduced on another basis", "not reproduced"
MEASURE, OUT, RANGE = "needs measurement", "out of scope", "reproduced in range"
BF16 = "bf16 state, no convolution tail"
STORED = "fp32 state and convolution tail, as engines store them by default"

VERDICTS = {
    "state-bf16": OTHER, "all-mla-128k": EXACT, "k3-128k": OTHER, "all-mla-1m": EXACT, "k3-1m": OTHER,
    "k3-1m-other": OTHER, "snapshots-50": OTHER, "state-54mb": OTHER, "mla-27kb": OTHER, "up-to-75": NOT,
    "crossover": EXACT, "dcp-12m": OTHER, "dcp-8x": OTHER, "decode-6.3x": NOT, "decode-4k": RANGE,
    "mla-90": NOT, "v4-10": OTHER, "v4-98": OTHER, "v4-flops": OTHER, "csa-hca": EXACT, "experts": OTHER,
    "linear-8x": OTHER, "eight-blackwell": OTHER, "ratio": OUT, "async-rare": MEASURE, "fp8-fp4": EXACT,
    "benchmarks": OUT, "perplexity": OUT, "scaling-2.5x": OUT, "compute-1.16x": OUT, "rl-divergence": OUT,
    "recall-multihop": OUT, "moonmoe-dispatch": OUT, "memory-prices": OUT,
}  # fmt: skip

BYTES = {
    ("state-bf16", STORED, "state"): 449_372_160,
    ("state-bf16", BF16, "state"): 217_055_232,
    ("all-mla-128k", None, "total"): 13_713_408_000,
    ("all-mla-1m", None, "total"): 107_136_000_000,
    ("k3-128k", BF16, "total"): 3_755_999_232,
    ("k3-1m", BF16, "total"): 27_865_055_232,
    ("k3-1m-other", f"2^20 tokens, {BF16}", "total"): 29_208_084_480,
    ("snapshots-50", BF16, "size"): 10_852_761_600,
    ("snapshots-50", BF16, "total"): 38_717_816_832,
    ("snapshots-50", STORED, "size"): 50 * 449_372_160,
    ("state-54mb", "one TP8 rank, the fp32 matrices alone", "state"): 54_263_808,
    ("state-54mb", "one TP8 rank, fp32 matrices and convolution tail", "state"): 56_171_520,
    ("mla-27kb", "one TP8 rank, KB read as KiB", "rate"): 27_648,
    ("crossover", f"K3, {STORED}", "break_even"): 5_654,
    ("crossover", f"K3, {BF16}", "break_even"): 2_731,
    ("crossover", f"K3, {STORED}", "rank_break_even"): 707,
    ("csa-hca", None, "state"): 18_710_528,
    ("csa-hca", "V4 Flash, as configured", "state"): 12_206_080,
    ("fp8-fp4", None, "expert"): 17_547_264,
    ("fp8-fp4", None, "activation_per_token"): 114_688,
}
"""As printed in the claims' own arithmetic and in engines' documents."""

SHARES = {
    ("snapshots-50", STORED, "saving"): ("53", "%"),
    ("snapshots-50", "as engines store it, with fp8 KV on both sides", "saving"): ("31", "%"),
    ("up-to-75", "Kimi Linear: 1 - 7/27, the limit of long contexts", "limit"): ("74.1", "%"),
    ("up-to-75", "Kimi K3: 1 - 24/93, the limit of long contexts", "limit"): ("74.2", "%"),
    ("decode-6.3x", "one H200, vLLM, the largest batch that fits each", "reads_bound"): ("3.86", "x"),
    ("mla-90", "K3, against MHA of its 96 heads of 128", "saving"): ("97.7", "%"),
    ("mla-90", "K3, against GQA with 8 groups of 128", "saving"): ("71.9", "%"),
    ("v4-10", "fp8 records, FP4 index keys in V4", "pro"): ("10.5", "%"),
    ("v4-10", "fp8 records, FP4 index keys in V4", "flash"): ("7.3", "%"),
    ("v4-10", "fp8 records and index keys", "pro"): ("11.5", "%"),
    ("v4-10", "fp8 records and index keys", "flash"): ("8.0", "%"),
    ("experts", "against the nominal 48B and 3B", "total"): ("57.9", "x"),
    ("experts", "against the nominal 48B and 3B", "active"): ("34.7", "x"),
    ("experts", "against the nominal 48B and 3B", "share"): ("1.79", "%"),
}
"""Rounded, as printed."""


def run(home: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own, with the user's profiles under `home`, which are read once a process."""
    command = [sys.executable, "-m", "kvplan", "claims", *args]
    environment = os.environ | {"KVPLAN_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


@pytest.fixture(scope="module")
def checked() -> Any:
    done = here("claims", "check", "--json")
    assert done.returncode == 0, done.stderr or done.stdout[:500]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def figures(checked: Any) -> dict[tuple[str, str | None, str], float]:
    """Every computed figure by claim, basis (None: the first) and name."""
    found: dict[tuple[str, str | None, str], float] = {}
    for claim in checked["claims"]:
        for number, basis in enumerate(claim["bases"]):
            for name, figure in basis["figures"].items():
                found[claim["name"], basis["name"], name] = figure["value"]
                if number == 0:
                    found[claim["name"], None, name] = figure["value"]
    return found


def altered(home: Path, name: str, old: str, new: str) -> Path:
    """The bundled claim with one passage changed, as the user's own profile of that name."""
    text = (profiles_root() / "claims" / f"{name}.toml").read_text(encoding="utf-8")
    assert old in text
    (home / "claims").mkdir()
    (home / "claims" / f"{name}.toml").write_text(text.replace(old, new), encoding="utf-8")
    return home


def test_every_claim_has_the_verdict_of_the_page(checked: Any) -> None:
    assert {claim["name"]: claim["verdict"] for claim in checked["claims"]} == VERDICTS
    assert checked["schema"] == "kvplan.claims/1"
    assert checked["holds"] is True
    assert sum(checked["verdicts"].values()) == len(VERDICTS)


def test_every_claim_says_where_it_stood_or_that_this_is_not_recorded(checked: Any) -> None:
    for claim in checked["claims"]:
        source = claim["source"]
        assert source["url"] or source["note"], claim["name"]
        assert claim["detail"], claim["name"]


@pytest.mark.parametrize(("where", "expected"), BYTES.items(), ids=lambda one: one[0] if isinstance(one, tuple) else "")
def test_intermediates_in_bytes_and_tokens(figures: Any, where: Any, expected: int) -> None:
    assert figures[where] == expected


@pytest.mark.parametrize(("where", "printed"), SHARES.items(), ids=lambda one: one[0] if len(one) == 3 else "")
def test_shares_round_to_what_is_printed(figures: Any, where: Any, printed: tuple[str, str]) -> None:
    digits, unit = printed
    places = len(digits.partition(".")[2])
    assert f"{figures[where] * (100 if unit == '%' else 1):.{places}f}" == digits


def test_weights_of_a_rank_decide_over_blackwell(figures: Any) -> None:
    assert figures["eight-blackwell", "8x B200 of 192 GB", "sequences"] == 0
    assert figures["eight-blackwell", "8x B300 of 288 GB", "sequences"] >= 1
    assert f"{figures['eight-blackwell', None, 'weights_per_rank'] / 2**30:.1f}" == "191.8"


def test_intermediates_carry_their_inputs_and_arithmetic(checked: Any) -> None:
    (claim,) = (one for one in checked["claims"] if one["name"] == "k3-128k")
    figure = claim["bases"][1]["figures"]["total"]
    assert figure["inputs"]["context"] == [128_000]
    assert sum(line["bytes"] for line in figure["arithmetic"]) == figure["value"]


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("k3-128k", '"3.76"', '"3.77"', "not reproduced: -0.37 % at the nearest"),
        ("all-mla-1m", '"1m"', '"1M"', "not reproduced: +4.85 % at the nearest"),
        ("snapshots-50", 'verdict = "reproduced on another basis"\nbasis', 'verdict = "not reproduced"\n#', "EXPECTED"),
    ],
)
def test_an_altered_claim_fails(tmp_path: Path, name: str, old: str, new: str, said: str) -> None:
    done = run(altered(tmp_path, name, old, new), "check", name)
    assert done.returncode == 1, done.stdout
    assert f"NOT AS EXPECTED: {name}." in done.stdout
    assert said in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("k3-128k", "[source]", "[sourse]", "source: Field required"),
        ("k3-128k", 'value = "3.76"', 'value = "about 4"', "printed.0.value: "),
        ("k3-128k", 'unit = "GB"', 'unit = "tokens"', "total is printed in 'tokens', and total_bytes gives bytes"),
        ("k3-128k", '"total_bytes"', '"totl_bytes"', "quantity 'totl_bytes' is not known; for example total_bytes"),
        ("k3-128k", 'saving = "saving"', "", "has no figure for saving"),
        ("k3-128k", f'basis = "{BF16}"', 'basis = "fp64"', "expected.basis 'fp64' is not one of the further bases"),
        ("k3-128k", 'context = "128k"', 'context = "-3"', "token count '-3'"),
        ("k3-128k", 'context = "128k"', 'contxt = "128k"', "--contxt 128k: no such flag"),
        ("mla-90", "kv_heads = 96", "kv_heads = 0", "at least one head"),
        ("mla-90", "kv_heads = 96", "kv_heads = 96, heads = 1", "latent_saving takes no argument heads"),
        ("experts", '"48e9"', '"0"', "given is 0"),
        ("perplexity", "out_of_scope", "# out_of_scope", "out_of_scope gives the reason"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, name: str, old: str, new: str, said: str) -> None:
    path = altered(tmp_path, name, old, new) / "claims" / f"{name}.toml"
    with pytest.raises(ProfileError) as refused:
        judge(name, parse_claim(path))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_altered_speed_no_longer_has_the_verdict_that_is_expected(tmp_path: Path) -> None:
    """3.4 at 1M and 2.3 at 128K lie in the intervals of one H200, so the altered claim would be reproduced."""
    home = altered(tmp_path, "decode-6.3x", 'value = "6.3"', 'value = "3.4"')
    path = home / "claims" / "decode-6.3x.toml"
    path.write_text(path.read_text(encoding="utf-8").replace('value = "3.98"', 'value = "2.3"'), encoding="utf-8")
    done = run(home, "check", "decode-6.3x", "--json")
    assert done.returncode == 1, done.stderr
    judged = json.loads(done.stdout)["claims"][0]
    assert (judged["verdict"], judged["as_expected"]) == ("reproduced in range", False)


def test_a_speed_is_an_interval_and_says_what_comes_from_bytes_and_what_from_the_batch(checked: Any) -> None:
    claim = next(claim for claim in checked["claims"] if claim["name"] == "decode-6.3x")
    for basis in claim["bases"]:
        for length in ("1M", "128K"):
            whole, from_bytes, from_batch = (
                basis["figures"][f"{name}_{length}"] for name in ("at", "from_bytes_at", "from_batch_at")
            )
            assert whole["low"] < whole["value"] < whole["high"] < 6.25
            assert from_bytes["value"] * from_batch["value"] == pytest.approx(whole["value"], rel=1e-6)
            assert from_bytes["value"] < 27 / 7


def test_an_unknown_claim_names_the_nearest() -> None:
    done = here("claims", "show", "k3-128")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "did you mean k3-128k" in done.stderr


def test_the_screens_keep_to_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show_list(list_claims(), as_json=False)
    judged = [judge(name, find_claim(name)) for name in ("decode-6.3x", "dcp-8x", "ratio", "up-to-75")]
    for one in judged:
        show_claim(one, as_json=False)
    show_check(judged, as_json=False, names=[])
    shown = capsys.readouterr().out.splitlines()
    assert shown
    assert not [line for line in shown if len(line) > 80 and "://" not in line]


def test_the_list_holds_every_claim_as_its_file_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    show_list(list_claims(), as_json=True)
    listed = {claim["name"]: claim for claim in json.loads(capsys.readouterr().out)["claims"]}
    assert set(listed) == set(VERDICTS)
    assert listed["k3-1m"]["printed"][0] == {"name": "total", "value": "27.87", "unit": "GB", "relation": "equal"}


@pytest.mark.parametrize(
    ("value", "printed", "relation", "agrees"),
    [
        ("3.755", "3.76", "equal", True),
        ("3.7549", "3.76", "equal", False),
        ("3.765", "3.76", "equal", True),
        ("3.7651", "3.76", "equal", False),
        ("0.5", "1", "at least", False),
        ("1", "1", "at least", True),
        ("1.2", "1", "at most", False),
        ("217055232", "217,055,232", "equal", True),
        ("217055233", "217,055,232", "equal", False),
    ],
)
def test_a_figure_agrees_when_it_rounds_to_the_printed_one(
    value: str, printed: str, relation: Any, agrees: bool
) -> None:
    figure = Computed("given", "", {}, {}, "count", Fraction(value), "", Fraction(1), False, None, {}, [])
    assert _compare(Printed(name="n", value=printed, unit="", relation=relation), figure, "").agrees is agrees


def test_flops_of_a_step_follow_the_published_counts() -> None:
    """KDA: 7 K V per head; absorbed MLA: 2,176 per head and token; linear: two per active parameter (104.19 B)."""
    short, long = (step_flops(resolve("kimi-k3"), tokens) for tokens in (1, 1001))
    assert short.state == long.state == 69 * 96 * 114_688
    assert long.attention - short.attention == 24 * 96 * 2_176 * 1000
    assert long.linear / 2e9 == pytest.approx(104.19, abs=0.01)
    assert long.total == long.linear + long.attention + long.state


def test_flops_of_an_uncounted_kind_are_refused() -> None:
    for name, kind in (("minimax-m3", "gqa_index"), ("jamba-v0.1", "mamba1")):
        with pytest.raises(ConfigError, match=f"the FLOPs of {kind} layers are not modelled"):
            step_flops(resolve(name), 4096)
