"""Every JSON document that kvplan prints fits its published schema, and a renamed key does not."""

import copy
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kvplan.cli.app import app
from kvplan.diff.read import read_plan
from kvplan.errors import SourceError, UsageError
from kvplan.plan import plan
from kvplan.schemas import DOCUMENTS, find_schema, schema_rows

ROOT = Path(__file__).resolve().parent.parent
LOGS = Path(__file__).parent / "golden" / "logs"
K3 = "kimi-k3 --gpu B300:8 --kv-cache-dtype fp8"
LINEAR = "kimi-linear --gpu H200"
TIMED = "--prefill-tokens-per-s 20000"
BLOCKS = '{"timestamp": 1, "input_length": 2048, "hash_ids": [1, 2, 3, 4]}\n' * 3
FLOW = (
    'schema = "kvplan.workflow/1"\nname = "one"\n'
    '[[agents]]\nname = "a"\nduration_s = 100\nend_tokens = 1000\n'
)  # fmt: skip
TRACE = "session,input_tokens,output_tokens,lcp_prev,preamble_tokens,api_s,think_s\n" + "".join(
    f"a,{1000 + 500 * step},50,{500 * (step + 1) if step else 0},300,2,5\n" for step in range(20)
)


COMMANDS = {
    "plan": [
        "estimate kimi-k3", f"estimate {K3} --snapshot-every 64K", "estimate kimi-k3 --gpu H100:2",
        "estimate llama-3.1-8b --gpu 4090 --engine llamacpp", "estimate qwen3-next --gpu H100:2 --engine sglang",
    ],
    "verify": ["verify {logs}/llamacpp-qwen3-next-32k.log", "verify {logs}/sglang-qwen3.5-397b-tp2.log"],
    "diff": ["diff {here}/one.json {here}/other.json"],
    "compare": ["compare kimi-k3 qwen3-next --context 128K", f"compare {K3}"],
    "frontier": [
        "frontier kimi-linear --sessions 20 --gpu h200 --tp 1 --pp 1 --spare 1 --gpu-price 3.5/h",
        "frontier kimi-linear --gpu h200:2 --tp 1", "frontier kimi-linear --sessions 4 --gpu l4:1",
    ],
    "agents": [
        f"agents {LINEAR} --workload coding-agent --no-knee", f"agents {LINEAR} --workload chat {TIMED} --no-knee",
    ],
    "sessions": [f"agents sessions {LINEAR} --workload coding-agent"],
    "tiers": [f"agents tiers {LINEAR} --workload coding-agent {TIMED}"],
    "failover": [f"agents failover {LINEAR}:4 --tp 1 --workload coding-agent {TIMED}"],
    "residency": [
        f"agents residency {LINEAR} --workload {{here}}/trace.csv --hours 0.1 --runs 1",
        f"agents residency {LINEAR} --workload {{here}}/blocks.jsonl",
    ],
    "checkpoints": [f"agents checkpoints kimi-k3 --workload {{here}}/{name}" for name in ("trace.csv", "blocks.jsonl")],
    "workflow_plan": [f"agents workflow {{here}}/flow.toml {K3}", "agents workflow {here}/flow.toml kimi-k3"],
    "workloads": ["workloads list"],
    "workload": ["workloads show coding-agent", "workloads fit {here}/trace.csv"],
    "models": ["models list"],
    "model": ["models show kimi-k3", "models show deepseek-v4-pro"],
    "model_types": ["models types"],
    "gpus": ["gpus list"],
    "gpu": ["gpus show h200", "gpus show mi300x"],
    "engines": ["engines list", "engines show vllm", "engines show ideal"],
    "claims": ["claims list", "claims show decode-4k", "claims check decode-4k"],
    "calibrations": ["calibrations list"],
    "calibration": ["calibrations show h200"],
    "calibration_comparison": ["calibrations compare h200 h200"],
    "calibration_check": ["calibrations check h200"],
    "precision": ["calibrations precision"],
    "savings": ["claims saving kimi-linear"],
    "report": ["report kimi-linear --gpu H200 --pages verdict -o {here}/report.pdf"],
    "schemas": ["schema"],
}  # fmt: skip
ELSEWHERE = {"kvplan.import/1"}
"""Documents whose commands need what is not here."""
READ_ALONE = {"kvplan.claim/1", "kvplan.engine/1", "kvplan.overhead/1", "kvplan.workflow/1", "kvplan.tier/1"}
"""Schemas of files that kvplan reads and does not print."""

Print = Callable[[str], Any]


def holds_its_schema(document: dict[str, Any]) -> None:
    """Raises ValidationError naming the key."""
    schema = find_schema(document["schema"])
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)


@pytest.fixture
def printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Print:
    """A command's --json, run in this process with small files at hand."""
    for name, text in (("flow.toml", FLOW), ("trace.csv", TRACE), ("blocks.jsonl", BLOCKS)):
        (tmp_path / name).write_text(text)
    (tmp_path / "one.json").write_text(json.dumps(plan("kimi-k3", gpu="B300:8").to_dict()))
    (tmp_path / "other.json").write_text(json.dumps(plan("kimi-k3", gpu="B300:8", kv_cache_dtype="fp8").to_dict()))

    def run(command: str) -> Any:
        words = shlex.split(command.format(here=tmp_path, logs=LOGS))
        code = app([*words, "--json"], standalone_mode=False)
        out = capsys.readouterr().out
        assert out, f"exit code {code} and nothing printed"
        return json.loads(out)

    return run


@pytest.mark.parametrize(("name", "command"), [(name, one) for name, all_ in COMMANDS.items() for one in all_])
def test_what_is_printed_fits_its_schema(name: str, command: str, printed: Print) -> None:
    document = printed(command)
    assert document["schema"] == f"kvplan.{name}/1"
    holds_its_schema(document)


def test_every_document_is_printed_here() -> None:
    assert {f"kvplan.{name}/1" for name in COMMANDS} | ELSEWHERE == set(DOCUMENTS)


def test_every_schema_in_the_code_is_published() -> None:
    found: set[str] = set()
    for folder in ("kvplan", "kernels"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(re.findall(r'"(kvplan\.[a-z_]+/\d+)"', path.read_text(encoding="utf-8")))
    assert found - READ_ALONE == set(DOCUMENTS)


def keys(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of every key, the first item of each list."""
    if isinstance(value, list):
        return keys(value[0], (*path, 0)) if value else []
    if not isinstance(value, dict):
        return []
    return [(*path, name) for name in value] + [
        one for name, part in value.items() for one in keys(part, (*path, name))
    ]


@pytest.mark.parametrize(
    ("command", "free"),
    [
        (f"estimate {K3}", {"inputs", "layers", "layout", "engine"}), ("gpus show h200", {"inputs"}),
        (f"agents sessions {LINEAR} --workload coding-agent", {"inputs"}), ("models show kimi-k3", {"inputs"}),
        ("verify {logs}/llamacpp-qwen3-next-32k.log", {"inputs"}),
        ("diff {here}/one.json {here}/other.json", {"inputs"}),
        ("engines show vllm", {"inputs", "values", "parity", "source"}),
    ],
)  # fmt: skip
def test_a_renamed_key_is_caught_wherever_it_is(command: str, free: set[str], printed: Print) -> None:
    document = printed(command)
    validator = jsonschema.Draft202012Validator(find_schema(document["schema"]))
    paths = [path for path in keys(document) if not free & set(path[:-1])]
    assert len(paths) > 8
    for *above, name in paths:
        broken = copy.deepcopy(document)
        part = broken
        for step in above:
            part = part[step]
        part[f"{name}_renamed"] = part.pop(name)
        assert not validator.is_valid(broken), (above, name)


def test_names_are_found_in_three_spellings() -> None:
    assert find_schema("plan") == find_schema("plan/1") == find_schema("kvplan.plan/1")
    assert find_schema("plan")["title"] == "kvplan.plan/1"
    assert [row["name"] for row in schema_rows()] == sorted(DOCUMENTS)
    with pytest.raises(UsageError, match="did you mean plan"):
        find_schema("plam")
    with pytest.raises(UsageError, match=re.escape("this kvplan writes kvplan.plan/1")):
        find_schema("plan/2")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("kvplan.plan/0", "is not 'kvplan.plan/1' but older"), ("kvplan.plan/2", "is not 'kvplan.plan/1' but newer"),
        ("kvplan.verify/1", "is not 'kvplan.plan/1'"), ("kvplan.plan/x", "is not 'kvplan.plan/1'"), (7, "'7' is not"),
    ],
)  # fmt: skip
def test_a_plan_of_another_schema_is_refused_by_name(schema: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan("kimi-k3").to_dict() | {"schema": schema}))
    with pytest.raises(SourceError, match=re.escape(said)):
        read_plan(str(path))
