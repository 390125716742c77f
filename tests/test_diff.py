"""`kvplan diff`: what changed between two plans, by which rule, and a gate on lost capacity."""

import contextlib
import copy
import csv
import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.diff import compare
from kvplan.diff.read import check_plan
from kvplan.diff.screen import show_diff
from kvplan.diff.share import parse_share
from kvplan.errors import KvplanError, SourceError, UsageError
from kvplan.plan import plan

K3 = {
    "gpu": "B300:8", "kv_cache_dtype": "fp8", "enable_prefix_caching": True, "max_model_len": "1048576",
    "kv_cache_memory": "45344117227", "tp": 8,
}  # fmt: skip
NAMES = ("a.json", "b.json")


def document(model: str = "kimi-k3", **flags: Any) -> dict[str, Any]:
    """A plan as it stands in a file."""
    made: dict[str, Any] = json.loads(json.dumps(plan(model, **flags).to_dict()))
    return made


@pytest.fixture(scope="module")
def old() -> dict[str, Any]:
    return document(**K3, engine_version="0.28")


@pytest.fixture(scope="module")
def new() -> dict[str, Any]:
    return document(**K3, engine_version="0.33")


def diff(before: dict[str, Any], after: dict[str, Any], limit: str | None = None) -> Any:
    share = None if limit is None else parse_share(limit, "--fail-if-capacity-drops")
    return compare(check_plan(before, "a.json"), check_plan(after, "b.json"), NAMES, share)


def changed(rows: list[Any]) -> dict[str, tuple[Any, Any]]:
    return {
        row.name if row.context_tokens is None else f"{row.name} at {row.context_tokens}": (row.before, row.after)
        for row in rows
    }


def test_the_rule_that_took_three_blocks_is_named(old: dict[str, Any], new: dict[str, Any]) -> None:
    """The figures of the published run and of 0.33's own planner; 0.29.0 reserves a checkpoint for FlashKDA."""
    found = diff(old, new)
    engine = changed(found.engine)
    assert engine["blocks_per_sequence at 1048576"] == (689, 692)
    assert engine["kv_cache_tokens"] == (3_249_215, 3_235_129)
    assert changed(found.inputs) == {"engine_version": ("0.28", "0.33")}
    first = found.rules[0]
    assert (first.rule, first.engine, first.releases) == ("state blocks per request", "vLLM", ("0.29.0",))
    assert first.change == "prefill checkpoint block c 0 → 1"
    assert "blocks_per_max_sequence 689 → 692" in first.moved
    assert not found.sizes


def test_the_same_rule_read_backwards(old: dict[str, Any], new: dict[str, Any]) -> None:
    rule = diff(new, old).rules[0]
    assert (rule.change, rule.releases) == ("prefill checkpoint block c 1 → 0", ("0.29.0",))


def test_a_rule_is_not_named_without_its_effect(old: dict[str, Any]) -> None:
    """Triton's prefill saves no checkpoint, so 0.29.0 changes nothing."""
    same = document(**K3, engine_version="0.33", kda_prefill_backend="triton")
    found = diff(old, same)
    assert "blocks_per_max_sequence" not in changed(found.engine)
    assert "state blocks per request" not in [rule.rule for rule in found.rules if rule.change]


def test_the_block_alignment_of_kimi_linear() -> None:
    """960 tokens per block in 2025's log; 1,024 since latent hybrids align to 128."""
    flags = {"gpu": "H200:2", "tp": 2}
    found = diff(
        document("kimi-linear", **flags, engine_version="0.20.1"),
        document("kimi-linear", **flags, engine_version="0.27.1"),
    )
    assert changed(found.engine)["block_tokens"] == (960, 1024)
    named = {rule.rule: rule for rule in found.rules}
    assert "0.27.1" in named["block alignment"].releases
    assert named["prefix caching of hybrids"].change == "prefix caching by default off → on"
    assert named["gpu_memory_utilization"].change == "default share of memory 0.9 → 0.92"


def test_blocks_of_qwen3_next_follow_its_prefill_checkpoints() -> None:
    """272 tokens until FlashInfer's GDN prefill saves a state every 64 tokens; the model has no latent rows."""
    flags = {"gpu": "H200:4", "tp": 4, "enable_prefix_caching": True}
    plans = [document("qwen3-next", **flags, engine_version=version) for version in ("0.26.0", "0.33.0")]
    named = {rule.rule: rule for rule in diff(*plans).rules}
    assert named["block alignment"].moved == ("block_tokens 272 → 320", "blocks_per_max_sequence 970 → 829")
    assert named["block alignment"].releases == ("0.33.0",)
    assert "64 tokens between prefill checkpoints" in str(named["block alignment"].change)
    assert named["state blocks per request"].releases == ("0.33.0",)
    assert named["state blocks per request"].moved == ("min_request_blocks 7 → 10",)


def test_a_default_that_the_user_sets_is_no_rule_change() -> None:
    flags = {"gpu": "H200:2", "tp": 2, "gpu_memory_utilization": 0.9}
    plans = [document("kimi-linear", **flags, engine_version=version) for version in ("0.20.1", "0.27.1")]
    assert "gpu_memory_utilization" not in [rule.rule for rule in diff(*plans).rules]


def test_an_equal_plan_has_no_differences(old: dict[str, Any]) -> None:
    found = diff(old, copy.deepcopy(old), "0%")
    assert not (found.inputs or found.sizes or found.pool or found.engine or found.rules)
    assert [row.share for row in found.capacity] == [0, 0]
    assert found.exit_code == 0


def test_bytes_and_pool_are_compared() -> None:
    found = diff(document(), document(kv_cache_dtype="fp8"))
    assert changed(found.sizes)["per_sequence.kv_bytes at 1048576"] == (28_991_029_248, 14_495_514_624)
    one, two = document(gpu="B300:8"), document(gpu="B300:8", gpu_memory_utilization=0.5)
    assert "bytes" in changed(diff(one, two).pool)


def test_contexts_that_one_plan_lacks_are_shown(old: dict[str, Any]) -> None:
    found = diff(old, document(**K3, engine_version="0.28", context="131072"))
    assert changed(found.capacity)["sequences at 1048576"][1] is None


@pytest.mark.parametrize(
    ("before", "after", "limit", "code"),
    [
        (100, 90, "10%", 0),
        (100, 89, "10%", 1),
        (100, 89, "0.11", 0),
        (100, 99, "0%", 1),
        (100, 0, "99.99%", 1),
        (100, 0, "100%", 0),
        (0, 0, "0%", 0),
        (3, 4, "0%", 0),
        (100, 0, None, 0),
    ],
)
def test_the_gate(old: dict[str, Any], before: int, after: int, limit: str | None, code: int) -> None:
    plans = [copy.deepcopy(old), copy.deepcopy(old)]
    for made, count in zip(plans, (before, after), strict=True):
        made["capacity"][0]["deployment_sequences"] = count
    assert diff(*plans, limit).exit_code == code


def test_the_gate_counts_the_whole_deployment(old: dict[str, Any]) -> None:
    """A lost replica is lost capacity, though each replica holds what it held."""
    twice = copy.deepcopy(old)
    for row in twice["capacity"]:
        row["deployment_sequences"] = 2 * row["sequences"]
    found = diff(twice, old, "10%")
    assert found.exit_code == 1
    assert [row.share for row in found.capacity] == [0, 0]


def test_the_gate_needs_a_capacity() -> None:
    with pytest.raises(UsageError, match="share no context"):
        diff(document(), document(), "10%")


@pytest.mark.parametrize(
    ("text", "share"), [("10%", "1/10"), ("0.1", "1/10"), (" 2.5 % ", "1/40"), ("0", "0"), ("100%", "1")]
)
def test_shares(text: str, share: str) -> None:
    assert parse_share(text, "--x") == Fraction(share)


@pytest.mark.parametrize("text", ["10", "1", "-1%", "101%", "ten", "", "%", "1e-3", "٣%", "9" * 5000])
def test_a_share_that_could_mean_two_things_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--x"):
        parse_share(text, "--x")


def test_another_engine_is_compared_without_rules() -> None:
    found = diff(document(gpu="B300:8", engine="vllm"), document(gpu="B300:8", engine="sglang"))
    assert not found.rules
    assert changed(found.inputs)["engine"] == ("vllm", "sglang")


def test_rules_of_an_engine_whose_plan_carries_only_their_release() -> None:
    made = [document(gpu="B300:8", engine="sglang", engine_version=version) for version in ("0.5.16", "0.5.17")]
    found = diff(*made)
    assert found.rules
    assert all(rule.releases == ("0.5.17",) and rule.change is None for rule in found.rules)
    assert "padding slot" in [rule.rule for rule in found.rules]


def put(made: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    made = copy.deepcopy(made)
    part: Any = made
    *way, last = path.split(".")
    for name in way:
        part = part[int(name) if name.isdecimal() else name]
    part[int(last) if last.isdecimal() else last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("schema", "kvplan.plan/2", "schema 'kvplan.plan/2' is not 'kvplan.plan/1'"),
        ("schema", "kvplan.verify/1", "kvplan.verify/1"),
        ("inputs", None, "inputs"),
        ("model", [], "model"),
        ("capacity.0.sequences", "23", "capacity.0.sequences"),
        ("capacity.0.sequences", -1, "capacity.0.sequences"),
        ("capacity.0.sequences", 1.5, "capacity.0.sequences"),
        ("capacity.0.context_tokens", 1048576, "appears twice"),
        ("per_sequence.0.kv_bytes", True, "per_sequence.0.kv_bytes"),
        ("per_rank.sequences", {}, "per_rank.sequences"),
        ("engine", "vllm", "engine"),
        ("pool.bytes", None, "pool.bytes"),
    ],
)
def test_a_malformed_plan_is_refused_with_its_field(old: dict[str, Any], path: str, value: Any, said: str) -> None:
    with pytest.raises(SourceError) as refused:
        check_plan(put(old, path, value), "b.json")
    assert str(refused.value).startswith("b.json: ")
    assert said in str(refused.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PLACES = (
    "engine", "engine.rules", "engine.rules_version", "engine.group_list", "engine.min_request_blocks", "engine.name",
    "engine.blocks_per_sequence", "engine.rules.checkpoint_kernels", "engine.waste_bytes", "engine.mamba_cache_mode",
    "inputs", "inputs.gpu", "inputs.num_speculative_tokens", "pool", "capacity", "capacity.0", "model.layers",
    "per_sequence", "per_rank", "per_rank.weights_bytes", "model.weights_bytes",
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLACES), JSON, st.sampled_from(("text", "json", "csv", "markdown")))
def test_any_value_anywhere_is_compared_or_refused(
    old: dict[str, Any], new: dict[str, Any], place: str, value: Any, form: str
) -> None:
    with contextlib.suppress(KvplanError), contextlib.redirect_stdout(io.StringIO()):
        show_diff(diff(put(old, place, value), new), form)
    with contextlib.suppress(KvplanError), contextlib.redirect_stdout(io.StringIO()):
        show_diff(diff(new, put(old, place, value)), form)


@given(JSON)
def test_any_document_is_compared_or_refused(value: Any) -> None:
    with pytest.raises(SourceError, match="x: "):
        check_plan(value, "x")


def test_deep_nesting_is_refused(old: dict[str, Any]) -> None:
    deep: Any = 0
    for _ in range(400):
        deep = [deep]
    with pytest.raises(SourceError, match="nested too deeply"):
        check_plan(put(old, "engine.deep", deep), "x")


@pytest.fixture
def files(tmp_path: Path, old: dict[str, Any], new: dict[str, Any]) -> tuple[str, str]:
    for name, made in zip(NAMES, (old, new), strict=True):
        (tmp_path / name).write_text(json.dumps(made))
    return str(tmp_path / "a.json"), str(tmp_path / "b.json")


def test_the_command_and_its_forms(kvplan: Any, files: tuple[str, str]) -> None:
    text = kvplan("diff", *files, "--fail-if-capacity-drops", "10%")
    assert text.returncode == 0, text.stderr
    assert "prefill checkpoint block c 0 → 1 (vLLM 0.29.0)" in " ".join(text.stdout.split())
    assert all(len(line) <= 80 or line.startswith(("/", "  /")) for line in text.stdout.splitlines())
    made = json.loads(kvplan("diff", *files, "--json").stdout)
    assert made["schema"] == "kvplan.diff/1"
    assert {"kvplan_version", "inputs", "assumptions", "rules", "capacity", "verdict"} <= made.keys()
    rows = list(csv.DictReader(io.StringIO(kvplan("diff", *files, "--csv").stdout)))
    tokens = next(row for row in rows if row["name"] == "kv_cache_tokens")
    assert (tokens["before"], tokens["after"]) == ("3249215", "3235129")
    assert "| 3,249,215 | 3,235,129 |" in kvplan("diff", *files, "--markdown").stdout


def test_the_exit_codes(kvplan: Any, files: tuple[str, str], tmp_path: Path, old: dict[str, Any]) -> None:
    less = tmp_path / "less.json"
    less.write_text(json.dumps(put(put(old, "capacity.0.deployment_sequences", 20), "capacity.0.sequences", 20)))
    lost = kvplan("diff", files[0], str(less), "--fail-if-capacity-drops", "10%")
    assert (lost.returncode, lost.stderr) == (1, "")
    assert "DROPS TOO MUCH: 23 to 20 sequences, -13.0% at 128K (limit 10.0%)." in lost.stdout
    assert kvplan("diff", files[0], str(less)).returncode == 0
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema": "kvplan.plan/0"}')
    for args in (
        (files[0], str(broken)),
        (str(tmp_path / "none.json"), files[1]),
        (str(tmp_path), files[1]),
        (*files, "--fail-if-capacity-drops", "10"),
        (*files, "--json", "--csv"),
        files[:1],
    ):
        done = kvplan("diff", *args)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), args
        assert done.stderr.startswith("kvplan: ")
