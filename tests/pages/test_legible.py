"""Every text of every page lies on the paper and on no other text, for one to six models and for long names."""

from dataclasses import replace
from typing import Any

import pytest

from kvplan.cases import product
from kvplan.claims import list_claims
from kvplan.pages import Report, claims_report, deployment_report
from kvplan.pages._text import clean, short_names, shorten, spread, width_pt, wrap
from pages_kit import collisions, drawn, off_paper

MODELS = ("kimi-k3", "kimi-linear", "qwen3-next", "deepseek-v4-pro", "jamba-1.5-large", "llama-3.1-405b")
LONG = "an-organisation-with-a-name/A-Model-With-A-Very-Long-Name-{}-235B-A22B-Instruct-2507-FP8-Dynamic"


def report(*models: str, labels: tuple[str, ...] = (), workload: str | None = None, **flags: Any) -> Report:
    columns = product([(name, flags, ()) for name in models], [])
    columns = [replace(one, label=label) for one, label in zip(columns, labels or models, strict=True)]
    command = f"kvplan report {' '.join(labels or models)} --gpu {flags.get('gpu')} -o report.pdf"
    return deployment_report(columns, workload=workload, command=command)


def check(made: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, sheet in enumerate(made.sheets, 1):
        figure, texts = drawn(made, place, monkeypatch)
        assert len(texts) > 10, sheet.name
        assert off_paper(figure, texts) == [], sheet.name
        assert collisions(texts) == [], sheet.name


def test_one_model_with_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    made = report("kimi-linear", gpu="H200", workload="coding-agent", calibration="auto")
    assert len(made.sheets) == 8
    check(made, monkeypatch)


def test_two_models_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = report(*MODELS[1:3], gpu="H200:2", workload="coding-agent", calibration="h200")
    assert {"snapshots", "kernels", "tiers"} <= {sheet.name for sheet in made.sheets}
    check(made, monkeypatch)


def test_three_models_and_all_that_they_rest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made = report(*MODELS[:3], gpu="B300:8")
    check(made, monkeypatch)
    first = {text.get_text() for text in drawn(made, 1, monkeypatch)[1]}
    assert {one["name"] for one in made.assumptions} <= first


def test_six_models_with_long_names(monkeypatch: pytest.MonkeyPatch) -> None:
    check(report(*MODELS, labels=tuple(LONG.format(place) for place in range(6)), gpu="B300:8"), monkeypatch)


def test_a_model_that_does_not_fit_with_odd_characters_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    made = report("qwen3-next", labels=("$x_1$ \\frac 模型 \x1b[31m\n",), gpu="H100:2")
    assert {one["page"] for one in made.left_out} >= {"capacity", "engines", "tiers"}
    check(made, monkeypatch)


def test_many_lengths_and_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = "4K,8K,16K,32K,64K,128K,256K,512K,1M"
    check(report("kimi-k3", gpu="B300:8", context=lengths, snapshot_every="20000"), monkeypatch)


def test_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {name: claim for name, claim in list_claims().items() if not name.startswith(("decode", "v4", "dcp", "e"))}
    check(claims_report(chosen, command="kvplan claims report -o claims.pdf"), monkeypatch)


def test_text_is_measured_wrapped_and_shortened() -> None:
    assert width_pt("", 8) == 0.0
    assert width_pt("mm", 8) > width_pt("ii", 8)
    assert width_pt("iiii", 8, mono=True) == pytest.approx(width_pt("mmmm", 8, mono=True))
    text = "several words and one/extraordinarily-long-path-that-has-no-break-in-it"
    lines = wrap(text, 90, 8)
    assert all(width_pt(line, 8) <= 90 for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert wrap("", 90, 8) == [""]
    assert shorten("short", 90, 8) == "short"
    cut = shorten("a-rather-long-name-of-a-model", 60, 8)
    assert cut[0] == "a" and cut[-1] == "l" and "…" in cut and width_pt(cut, 8) <= 60


def test_names_that_a_cut_makes_alike_are_told_apart() -> None:
    names = [f"organisation/the-same-model-{middle}-with-the-same-end" for middle in ("one", "two")]
    short = short_names([*names, names[0]], 80, 8)
    assert short[0] != short[1] and short[0] == short[2]
    assert short_names(["a", "b"], 80, 8) == ["a", "b"]


def test_what_the_font_lacks_is_escaped() -> None:
    assert clean("a\x1b[31m  b") == "a\\x1b[31m b"
    assert clean("模") == "\\u6a21"
    assert clean("9 × 2 …") == "9 × 2 …"


def test_labels_are_moved_apart_in_order() -> None:
    assert spread([], 10, 0, 100) == []
    assert spread([50], 10, 0, 100) == [50]
    assert spread([5, 5, 5], 10, 0, 100) == [5, 15, 25]
    assert spread([99, 98], 10, 0, 100) == [100, 90]
    assert spread([200, -5], 10, 0, 100) == [100, 0]
    packed = spread([1, 2, 3], 80, 0, 100)
    assert packed == [0, 50, 100]
