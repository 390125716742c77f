"""`kvplan compare`: exact figures side by side, refused ones with their reason."""

import csv
import io
import json
from typing import Any

import pytest

from here_kit import here
from kvplan.cases import product, read_cases
from kvplan.compare import compare
from kvplan.compare.figures import figures_of
from kvplan.plan import plan


def document_of(*words: str) -> Any:
    return json.loads(here(*words, "--json").stdout)


def test_figures_are_those_of_each_plan() -> None:
    found = compare(product([("kimi-k3", {"gpu": "B300:8"}, ()), ("qwen3-next", {"gpu": "B300:8"}, ())], []), {})
    for case in found.cases:
        rows = figures_of(case)["contexts"]
        alone = plan(case.label, gpu="B300:8", context=",".join(str(row["context_tokens"]) for row in rows))
        for row, one, fit in zip(rows, alone.per_sequence, alone.capacity, strict=True):
            assert (row["total_bytes"], row["saving"]) == (one.total_bytes, one.saving)
            assert (row["sequences"], row["low"], row["high"]) == (fit.sequences, fit.low, fit.high)


def test_every_model_is_asked_about_the_maximum_of_the_others_that_it_reaches() -> None:
    """Kimi K3's maximum is 2^20 tokens, Qwen3-Next's 262,144, Llama 3.1's 131,072."""
    document = document_of("compare", "kimi-k3", "qwen3-next", "llama-3.1-8b")
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


def test_one_model_on_several_gpus() -> None:
    done = here("compare", "kimi-k3", "--gpu", "B300:8, B200:8", "--kv-cache-dtype", "fp8")
    lines = {line[:19].strip(): line[19:].split() for line in done.stdout.splitlines()}
    assert done.returncode == 0
    assert lines["binds at 1M"] == ["kv", "weights"]
    assert lines["fit at 1M"][-1] == "0"
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_a_refused_model_stays_in_the_table() -> None:
    done = here("compare", "kimi-k3", "no-such-model")
    assert done.returncode == 0 and "REFUSED    no-such-model: " in done.stdout
    assert "refused" in next(line for line in done.stdout.splitlines() if line.startswith("layers"))
    document = document_of("compare", "kimi-k3", "no-such-model")
    assert [one["label"] for one in document["refused"]] == ["no-such-model"]
    rows = list(csv.DictReader(io.StringIO(here("compare", "kimi-k3", "no-such-model", "--csv").stdout)))
    assert [row["label"] for row in rows] == ["kimi-k3", "kimi-k3", "no-such-model"]
    assert rows[0]["total_bytes"] == "4073250816" and "kvplan models list" in rows[-1]["refused"]


def test_a_layout_that_one_model_cannot_have() -> None:
    """Qwen3-Next has 2 KV heads and 16 query heads; 96 heads of K3 split by 6."""
    document = document_of("compare", "kimi-k3", "qwen3-next", "--tp", "6", "--gpu", "B300:6")
    assert [one["label"] for one in document["columns"]] == ["kimi-k3"]
    assert "--tp 6" in document["refused"][0]["reason"]


@pytest.mark.parametrize("words", [("no-such-model",), ("nosuch-1", "nosuch-2"), ("kimi-k3", "--gpu", "nosuch"), ()])
def test_nothing_to_show(words: tuple[str, ...]) -> None:
    done = here("compare", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kvplan: ") and done.stderr.count("\n") == 1


def test_many_models_become_rows_in_eighty_columns() -> None:
    models = ("kimi-k3", "kimi-linear", "qwen3-next", "jamba-1.5-large", "llama-3.1-8b", "deepseek-v4-pro", "kimi-k2")
    done = here("compare", *models, "--gpu", "B300:8")
    assert done.returncode == 0
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert done.stdout.count("\nkimi-linear ") > 3


def test_markdown() -> None:
    assert "| bytes per token | 27,648 | 8,064 |" in here("compare", "kimi-k3", "kimi-linear", "--markdown").stdout


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


def test_a_calibration_puts_times_beside_each_other_and_the_same_as_estimate() -> None:
    """A step at what fits, and a cold first token; nothing where not one sequence fits."""
    words = ("--calibration", "h200", "--context", "128K")
    rows = [one["contexts"][0] for one in document_of("compare", "kimi-linear", "--gpu", "H200,L4", *words)["columns"]]
    alone = document_of("estimate", "kimi-linear", "--gpu", "H200", *words)["latency"]
    assert rows[0]["tpot_ms"] == alone["decode"][-1]["tpot_ms"]
    assert rows[0]["ttft_s"] == alone["first_token"][-1]["cold_s"]
    assert (rows[1]["sequences"], rows[1]["tpot_ms"], rows[1]["ttft_s"]) == (0, None, None)
    text = here("compare", "kimi-linear", "--gpu", "H200", *words).stdout
    assert "ms a token at 128K" in text and "s to first at 128K" in text
    table = here("compare", "kimi-linear", "--gpu", "H200", *words, "--csv").stdout
    assert float(next(csv.DictReader(io.StringIO(table)))["tpot_ms_low"]) == rows[0]["tpot_ms"]["low"]


def test_commas_alone_name_no_gpu() -> None:
    done = here("compare", "kimi-linear", "--gpu", " ,")
    assert (done.returncode, done.stdout) == (2, "") and "--gpu names no GPU" in done.stderr
