"""vLLM's rules against frozen answers of vLLM's own planner and block manager, and against its public logs."""

import json
import runpy
from collections import Counter
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from kvplan.engines.vllm.blocks import demand
from kvplan.engines.vllm.figures import Planned
from kvplan.engines.vllm.groups import block_bytes, plan_groups
from kvplan.engines.vllm.model import Specs
from kvplan.engines.vllm.rules import Rules, rules_for
from kvplan.engines.vllm.settings import Blocks, Device, Settings
from kvplan.engines.vllm.specs import Spec
from kvplan.errors import KvplanError

GOLDEN = Path(__file__).parent.parent / "golden"


# The frozen answers of vLLM 0.33's planner and manager; scripts/vllm_oracle_cases.py asks them.


def golden(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GOLDEN / name).read_text())
    return found


def frozen_spec(layer: dict[str, Any], mode: Any, rules: Rules) -> Spec:
    """A case's layer as a release sees it: whether windows keep values of their own width depends on it."""
    kind = layer["kind"]
    if kind == "state":
        sizes = zip(layer["shapes"], layer["dtype_bytes"], strict=True)
        checkpoints = layer["checkpoints"] if rules.since(0, 29, 0) else 0
        return Spec(
            "state", layer["block_tokens"], sum(prod(shape) * size for shape, size in sizes),
            (str(layer["shapes"]), str(layer["dtype_bytes"])), padded_bytes=layer["padded_bytes"], dcp_sharded=False,
            state_blocks=rules.state_blocks(mode, layer["drafts"], checkpoints), drafts=layer["drafts"],
        )  # fmt: skip
    own = kind not in ("full", "sliding", "chunked") or rules.own_values(kind)
    row = layer.get("row_bytes") or layer["heads"] * layer["dtype_bytes"] * (
        layer["k_dim"] + layer["v_dim"] if own else 2 * layer["k_dim"]
    )
    return Spec(
        kind, layer["block_tokens"], row,
        (layer["heads"], layer["k_dim"], layer["v_dim"], layer["dtype_bytes"]), layer.get("tokens_per_row") or 1,
        layer["window"], None, layer.get("align_bytes") or 1, layer["dcp_sharded"],
    )  # fmt: skip


def frozen_plan(case: dict[str, Any], blocks: int | None = None, version: str | None = None) -> Planned:
    rules = rules_for(version)
    mode = "all" if case["mode"] == "align" and not rules.since(0, 15, 1) else case["mode"]
    specs = tuple(frozen_spec(case["layers"][int(kind)], mode, rules) for kind in case["pattern"])
    groups = plan_groups(specs, rules, packed=case["layout"].startswith("B"))
    size = block_bytes(groups, rules)
    settings = Settings(
        rules, Device(), case["mode"], case["mode"] == "align", 0, 0, 0, 1024, case["in_flight"], case["in_flight"], ()
    )
    made = Specs(specs, (len(specs),), Blocks(16, 16, None, None), packed=False)
    return Planned(settings, made, tuple(groups), blocks or case["available_bytes"] // size, size, case["dcp"])


def test_planner_agrees_on_every_frozen_case() -> None:
    cases = golden("vllm_planner.json")
    assert len(cases) == 200
    for number, row in enumerate(cases):
        case, answer = row["case"], row["answer"]
        if "refused" in answer:
            with pytest.raises(KvplanError):
                frozen_plan(case)
            continue
        planned, length = frozen_plan(case), case["max_model_len"]
        ours = {
            "layers": [len(group.layers) for group in planned.groups],
            "block_tokens": [group.spec.block_tokens for group in planned.groups],
            "block_bytes": planned.block_bytes,
            "num_blocks": planned.num_blocks,
            "blocks_per_request": [group.blocks(length, case["in_flight"], case["dcp"]) for group in planned.groups],
            "kv_cache_tokens": planned.tokens(length),
            "max_concurrency": planned.concurrency(length),
            "longest": planned.longest(length),
        }
        assert ours == answer, number


@pytest.mark.parametrize("version", ["0.11.0", "0.14.1", "0.17.1", "0.19.1", "0.25.1", "0.28.0"])
def test_older_planners_agree(version: str) -> None:
    """The same cases as older releases plan them; scripts/vllm_release_cases.py asks."""
    cases, answers = golden("vllm_planner.json"), json.loads((GOLDEN / "vllm_releases.json").read_text())[version]
    assert len(answers) > 100
    for number, answer in answers.items():
        case = cases[int(number)]["case"]
        if "refused" in answer:
            with pytest.raises(KvplanError):
                frozen_plan(case, version=version)
            continue
        planned, length = frozen_plan(case, version=version), case["max_model_len"]
        ours = {
            "layers": [len(group.layers) for group in planned.groups],
            "num_blocks": planned.num_blocks,
            "max_concurrency": planned.concurrency(length),
            "kv_cache_tokens": planned.tokens(length),
        }
        assert ours == answer, number


def test_manager_admits_and_keeps_what_we_say() -> None:
    """Sequences arrive with `prompt` tokens and all decode abreast to `context`; packed is prefill of `context`."""
    cases = golden("vllm_manager.json")
    assert len(cases) >= 50
    for number, row in enumerate(cases):
        case = row["case"]
        planned = frozen_plan(case, case["num_blocks"])
        whole = demand(planned.groups, case["context"], case["chunk"], case["dcp"])
        arrived = replace(whole, prefill=demand(planned.groups, case["prompt"], case["chunk"], 1).prefill)
        usable = planned.num_blocks - 1
        assert {"sequences": arrived.safe(usable), "packed": min(400, whole.packed(usable))} == row["answer"], number


# Public start-up logs, reproduced to the block.


def test_public_logs_reproduce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every log whose inputs are complete. The one that differs prints another rank's pool than the smallest."""
    scripts = Path(__file__).parents[2] / "scripts"
    monkeypatch.syspath_prepend(str(scripts))
    script = runpy.run_path(str(scripts / "engine_logs.py"))
    verdicts = {row.case: row.verdict for row in map(script["check"], golden("vllm_logs.json"))}
    assert [case for case, verdict in verdicts.items() if verdict == "differs"] == ["vllm-qwen3-235b-fp8-h100-tp4"]
    assert Counter(verdicts.values()) == {"exact": 49, "consistent": 7, "not modelled": 7, "differs": 1}
