"""`kvplan compare`: exact figures side by side, refused ones with their reason."""

import csv
import io
from typing import Any

import pytest

from kvplan.cases import product, read_cases
from kvplan.compare import compare
from kvplan.compare.figures import figures_of
from kvplan.plan import plan


def test_figures_are_those_of_each_plan() -> None:
    found = compare(product([("kimi-k3", {"gpu": "B300:8"}, ()), ("qwen3-next", {"gpu": "B300:8"}, ())], []), {})
    for case in found.cases:
        rows = figures_of(case)["contexts"]
        alone = plan(case.label, gpu="B300:8", context=",".join(str(row["context_tokens"]) for row in rows))
        for row, one, fit in zip(rows, alone.per_sequence, alone.capacity, strict=True):
            assert (row["total_bytes"], row["saving"]) == (one.total_bytes, one.saving)
            assert (row["sequences"], row["low"], row["high"]) == (fit.sequences, fit.low, fit.high)


def test_every_model_is_asked_about_the_maximum_of_the_others_that_it_reaches(kvplan_json: Any) -> None:
    """Kimi K3's maximum is 2^20 tokens, Qwen3-Next's 262,144, Llama 3.1's 131,072."""
    document = kvplan_json("compare", "kimi-k3", "qwen3-next", "llama-3.1-8b")
    lengths = {one["label"]: [row["context_tokens"] for row in one["contexts"]] for one in document["columns"]}
    assert lengths == {
        "kimi-k3": [131_072, 262_144, 1_048_576],
        "qwen3-next": [131_072, 262_144],
        "llama-3.1-8b": [131_072],
    }
    k3 = document["columns"][0]
    assert (document["schema"], k3["bytes_per_token"], k3["state_bytes"]) == ("kvplan.compare/1", 27_648, 449_372_160)
    assert k3["contexts"][0]["total_bytes"] == 4_073_250_816
    assert document["columns"][2]["baseline"] is None


def test_one_model_on_several_gpus(kvplan: Any) -> None:
    done = kvplan("compare", "kimi-k3", "--gpu", "B300:8, B200:8", "--kv-cache-dtype", "fp8")
    lines = {line[:19].strip(): line[19:].split() for line in done.stdout.splitlines()}
    assert done.returncode == 0
    assert lines["binds at 1M"] == ["kv", "weights"]
    assert lines["fit at 1M"][-1] == "0"
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_a_refused_model_stays_in_the_table(kvplan: Any, kvplan_json: Any) -> None:
    done = kvplan("compare", "kimi-k3", "no-such-model")
    assert done.returncode == 0 and "REFUSED    no-such-model: " in done.stdout
    assert "refused" in next(line for line in done.stdout.splitlines() if line.startswith("layers"))
    document = kvplan_json("compare", "kimi-k3", "no-such-model")
    assert [one["label"] for one in document["refused"]] == ["no-such-model"]
    rows = list(csv.DictReader(io.StringIO(kvplan("compare", "kimi-k3", "no-such-model", "--csv").stdout)))
    assert [row["label"] for row in rows] == ["kimi-k3", "kimi-k3", "no-such-model"]
    assert rows[0]["total_bytes"] == "4073250816" and "kvplan models list" in rows[-1]["refused"]


def test_a_layout_that_one_model_cannot_have(kvplan_json: Any) -> None:
    """Qwen3-Next has 2 KV heads and 16 query heads; 96 heads of K3 split by 6."""
    document = kvplan_json("compare", "kimi-k3", "qwen3-next", "--tp", "6", "--gpu", "B300:6")
    assert [one["label"] for one in document["columns"]] == ["kimi-k3"]
    assert "--tp 6" in document["refused"][0]["reason"]


@pytest.mark.parametrize("words", [("no-such-model",), ("nosuch-1", "nosuch-2"), ("kimi-k3", "--gpu", "nosuch"), ()])
def test_nothing_to_show(kvplan: Any, words: tuple[str, ...]) -> None:
    done = kvplan("compare", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kvplan: ") and done.stderr.count("\n") == 1


def test_many_models_become_rows_in_eighty_columns(kvplan: Any) -> None:
    models = ("kimi-k3", "kimi-linear", "qwen3-next", "jamba-1.5-large", "llama-3.1-8b", "deepseek-v4-pro", "kimi-k2")
    done = kvplan("compare", *models, "--gpu", "B300:8")
    assert done.returncode == 0
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert done.stdout.count("\nkimi-linear ") > 3


def test_markdown(kvplan: Any) -> None:
    assert "| bytes per token | 27,648 | 8,064 |" in kvplan("compare", "kimi-k3", "kimi-linear", "--markdown").stdout


def test_lengths_beyond_a_model_are_left_out_for_it_alone() -> None:
    cases, refused = read_cases(product([(name, {"context": "64K,1M"}, ()) for name in ("kimi-k3", "qwen3-next")], []))
    assert [case.contexts for case in cases] == [(65_536, 1_048_576), (65_536,)]
    assert refused == []


def test_labels_say_what_differs() -> None:
    one = [("kimi-k3", {}, ())]
    assert [column.label for column in product(one, ["a", "b"])] == ["a", "b"]
    assert [column.label for column in product(one, ["a"])] == ["kimi-k3"]
    both = product([*one, ("kimi-linear", {}, ())], ["a", "b"])
    assert [column.label for column in both] == ["kimi-k3, a", "kimi-k3, b", "kimi-linear, a", "kimi-linear, b"]
    assert both[1].flags == {"gpu": "b"}
