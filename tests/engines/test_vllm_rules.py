"""vLLM's rules by release, and the laws they keep."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.deployment import Deployment, Layout, make_deployment
from kvplan.engines.vllm import ENGINE
from kvplan.engines.vllm.figures import Planned, waste
from kvplan.engines.vllm.groups import plan_groups
from kvplan.engines.vllm.model import model_specs
from kvplan.engines.vllm.rules import NEWEST, rules_for
from kvplan.engines.vllm.settings import settings_for
from kvplan.engines.vllm.specs import Spec
from kvplan.errors import ConfigError, PlacementError, UsageError
from kvplan.layers.delta import Gdn
from kvplan.layers.full import Full
from kvplan.layers.mamba import Mamba2
from kvplan.layers.windowed import ChunkedLocal, SlidingWindow
from kvplan.ledger import Holding
from kvplan.model import Model
from kvplan.plan import plan
from kvplan.sources import resolve
from vllm_kit import B300, B300_POOL, GIB, MILLION, allocate, figures, kimi_linear, model, qwen_27b

GOLDEN = Path(__file__).parent.parent / "golden"


# Rules by release.


def test_versions() -> None:
    assert rules_for(None).release == NEWEST
    assert rules_for("0.28").release == (0, 28, 0)
    assert rules_for("v0.20.1.dev0+g101584af0.d20260424").release == (0, 20, 1)
    assert rules_for("0.1.dev19262+gb6bbf29dd.d20260727").release == (0, 28, 0)
    assert rules_for("9.1").release == NEWEST
    for wrong in ("0.10.2", "latest", "", "0." + "9" * 70):
        with pytest.raises(UsageError, match="--engine-version"):
            rules_for(wrong)


@pytest.mark.parametrize(
    ("version", "width"), [("0.11.0", 10), ("0.12.0", 12), ("0.17.1", 12), ("0.18.1", 12), ("0.33.0", 12)]
)
def test_group_width_below_a_quarter_more(version: str, width: int) -> None:
    specs = [Spec("full", 16, 1024)] * 10 + [Spec("sliding", 16, 1024, window=512)] * 12
    groups = plan_groups(specs, rules_for(version))
    assert max(group.slots for group in groups) == width


@pytest.mark.parametrize(("version", "width"), [("0.17.1", 10), ("0.18.1", 14)])
def test_group_width_below_a_half_more(version: str, width: int) -> None:
    specs = [Spec("full", 16, 1024)] * 10 + [Spec("sliding", 16, 1024, window=512)] * 14
    assert max(group.slots for group in plan_groups(specs, rules_for(version))) == width


@pytest.mark.parametrize(
    ("version", "flags", "mode", "per_request"),
    [
        ("0.11.0", {}, "none", 1),
        ("0.14.1", {}, "none", 1),
        ("0.15.1", {"num_speculative_tokens": 3}, "none", 4),
        ("0.25.1", {"enable_prefix_caching": True, "num_speculative_tokens": 3}, "align", 5),
        ("0.26.0", {}, "align", 2),
        ("0.33.0", {"gpu": "H200"}, "align", 3),
        ("0.33.0", {"gpu": "RTX-3090"}, "align", 2),
        ("0.33.0", {"enable_prefix_caching": False}, "none", 1),
    ],
)
def test_state_blocks_by_release(version: str, flags: dict[str, Any], mode: str, per_request: int) -> None:
    made = figures(qwen_27b(), 64 * GIB, 8192, engine_version=version, **flags)
    attention = -(-8192 // made["block_tokens"])
    assert made["mamba_cache_mode"] == mode
    assert made["blocks_per_max_sequence"] == attention + 3 * per_request


def test_mode_all_keeps_a_state_per_block() -> None:
    mamba = model((Full(8, 128, 128), 4), (Mamba2(48, 64, 128, 1, 4), 36))
    made = figures(mamba, 8 * GIB, 8192, engine_version="0.24.0", enable_prefix_caching=True)
    assert made["mamba_cache_mode"] == "all"
    assert made["blocks_per_max_sequence"] == 10 * -(-8192 // made["block_tokens"])
    newer = figures(mamba, 8 * GIB, 8192, engine_version="0.28.0", enable_prefix_caching=True, mamba_cache_mode="all")
    assert newer["mamba_cache_mode"] == "all"
    assert (
        figures(mamba, 8 * GIB, 8192, enable_prefix_caching=True, mamba_cache_mode="all")["mamba_cache_mode"] == "align"
    )


@pytest.mark.parametrize(("version", "batches"), [("0.25.1", 1), ("0.26.0", 2)])
def test_windows_reserve_what_is_in_flight(version: str, batches: int) -> None:
    made = model((Full(8, 128, 128), 6), (SlidingWindow(8, 128, 128, 1024), 6))
    found = figures(made, 8 * GIB, 131_072, engine_version=version, max_num_batched_tokens=2048)
    windows = -(-(1023 + batches * 2048) // 16) + 1
    assert found["blocks_per_max_sequence"] == 131_072 // 16 + windows


def test_chunked_layers_hold_one_chunk_and_the_batch() -> None:
    made = model((Full(8, 128, 128), 12), (ChunkedLocal(8, 128, 128, 8192), 36))
    found = figures(made, 8 * GIB, 131_072, max_num_batched_tokens=2048, async_scheduling=False)
    assert found["blocks_per_max_sequence"] == 131_072 // 16 + 3 * (8192 + 2048) // 16


def test_null_block_in_the_start_up_check() -> None:
    made = model((Full(8, 128, 128), 1))
    exactly = 16 * 4096 * 1000
    for version, longest in (("0.28.0", 16_000), ("0.29.0", 15_984)):
        assert allocate(made, exactly, 1024, engine_version=version).figures["longest_max_model_len"] == longest


def test_default_utilization_by_release() -> None:
    for version, share in (("0.19.1", 0.9), ("0.20.2", 0.92)):
        assert rules_for(version).gpu_memory_utilization == share


# What a pool becomes.


def test_engine_does_not_start_where_the_longest_request_does_not_fit() -> None:
    made = allocate(model((Full(8, 128, 128), 32)), GIB, 4096, max_model_len=131_072)
    assert [(fit.sequences, fit.packed, fit.binds) for fit in made.fits] == [(0, 0, "kv")]
    assert 0 < made.figures["longest_max_model_len"] < 131_072


def test_no_pool_and_no_cache() -> None:
    assert allocate(kimi_linear(), -5, 4096).fits[0].binds == "weights"
    bare = allocate(model(), GIB, 4096, max_num_seqs=7)
    assert (bare.fits[0].sequences, bare.fits[0].binds) == (7, "max_num_seqs")


def test_limit_on_sequences_binds() -> None:
    fit = allocate(resolve("kimi-k3"), B300_POOL, 4096, engine_version="0.28", max_num_seqs=10, **B300).fits[0]
    assert (fit.sequences, fit.packed, fit.binds) == (10, 10, "max_num_seqs")


def test_retention_of_states() -> None:
    """Dense at every 1,536 tokens of 1M: 682 states. An interval has to fit the scheduler's block."""
    dense = figures(resolve("kimi-k3"), B300_POOL, MILLION, engine_version="0.28", **B300)
    assert dense["retention_interval_tokens"] is None
    assert dense["retained_states"][0]["states"] == MILLION // 1536
    sparse = figures(resolve("kimi-k3"), B300_POOL, MILLION, **B300)
    assert (sparse["retention_interval_tokens"], sparse["retained_states"][0]["states"]) == (0, 1)
    flags = B300 | {"enable_prefix_caching": False, "prefix_cache_retention_interval": "32768"}
    with pytest.raises(UsageError, match="3,145,728"):
        figures(resolve("kimi-k3"), B300_POOL, MILLION, **flags)


def test_prefix_match_unit_divides_the_blocks() -> None:
    made = figures(resolve("kimi-k3"), B300_POOL, MILLION, prefix_match_unit=128, **B300)
    assert made["prefix_match_tokens"] == 128
    assert figures(resolve("kimi-k3"), B300_POOL, MILLION, **B300)["prefix_match_tokens"] == 1536
    with pytest.raises(UsageError, match="--prefix-match-unit"):
        figures(resolve("kimi-k3"), B300_POOL, MILLION, prefix_match_unit=1000, **B300)


def test_windows_kept_whole_without_the_hybrid_manager() -> None:
    made = model((Full(8, 128, 128), 6), (SlidingWindow(8, 128, 128, 1024), 30))
    plain = figures(made, 8 * GIB, 65_536)
    whole = figures(made, 8 * GIB, 65_536, disable_hybrid_kv_cache_manager=True)
    assert (plain["groups"], whole["groups"]) == (6, 1)
    assert whole["blocks_per_max_sequence"] == 65_536 // 16


def test_kept_states_cost_blocks() -> None:
    flags = {"engine_version": "0.28", **B300}
    plain = allocate(resolve("kimi-k3"), B300_POOL, 131_072, **flags).fits[0]
    kept = allocate(resolve("kimi-k3"), B300_POOL, 131_072, snapshots=8, **flags).fits[0]
    assert plain.sequences == 2134 // 92
    assert kept.sequences == 2134 // (92 + 3 * 8)


def test_pipeline_takes_the_fullest_stage() -> None:
    """K3 on two stages (public log of 2026-07): 13 layers of the largest group on the second, 2,380 blocks."""
    flags = {"engine_version": "0.28", "tp": 8, "pp": 2, "enable_prefix_caching": True, "gpu": "H200:8", "nodes": 2}
    made = figures(resolve("kimi-k3"), int(25.50 * GIB), 262_144, **flags)
    assert made["block_bytes"] == 13 * 884_736
    assert made["num_blocks"] == 2380
    assert made["kv_cache_tokens"] == 1_792_823


def test_deepseek_v4_packs_pages_of_different_size() -> None:
    made = figures(resolve("deepseek-v4-flash"), 40 * GIB, 262_144, tp=8)
    assert made["block_tokens"] == 256
    assert {row["kind"] for row in made["group_list"]} == {"latent", "sliding_latent"}
    assert made["blocks_per_max_sequence"] > 262_144 // 256


def test_mixes_that_no_release_plans() -> None:
    odd = [Spec("full", 16, 1024), Spec("sliding", 16, 1536, window=512)]
    with pytest.raises(ConfigError, match=r"vLLM 0\.11\.0 cannot plan"):
        plan_groups(odd, rules_for("0.11.0"))
    with pytest.raises(ConfigError, match=r"vLLM 0\.19\.1 cannot plan"):
        plan_groups(odd, rules_for("0.19.1"))
    assert plan_groups(odd, rules_for("0.33.0"))


def test_dcp_with_windows_is_refused() -> None:
    with pytest.raises(PlacementError, match="--dcp"):
        figures(model((Full(1, 128, 128), 2), (SlidingWindow(1, 128, 128, 512), 2)), GIB, 4096, tp=2, dcp=2)


def test_state_dtypes() -> None:
    k3, kinds = resolve("kimi-k3"), {"0.28": UsageError, "0.33": None}
    assert ENGINE.dtypes(k3, make_deployment()).state == "fp32"
    for version, error in kinds.items():
        flags = make_deployment(engine_version=version, mamba_ssm_dtype="bf16")
        if error is None:
            assert ENGINE.dtypes(k3, flags).state == "bf16"
        else:
            with pytest.raises(error, match="--mamba-ssm-dtype"):
                ENGINE.dtypes(k3, flags)
    assert ENGINE.dtypes(resolve("qwen3-next"), make_deployment()).state == "bf16"
    assert ENGINE.dtypes(qwen_27b(), make_deployment()).state == "fp32"


def test_sparse_records() -> None:
    glm = resolve("glm-5.1")
    assert ENGINE.dtypes(glm, make_deployment(kv_cache_dtype="fp8", gpu="RTX-PRO-6000")).kv == "fp8_ds_mla"
    assert ENGINE.dtypes(glm, make_deployment(kv_cache_dtype="fp8", gpu="B200")).kv == "fp8"
    assert ENGINE.dtypes(resolve("deepseek-v4-flash"), make_deployment()).kv == "fp8_ds_mla"


def test_speculation_flags() -> None:
    config = '{"method": "mtp", "num_speculative_tokens": 3}'
    drafted = qwen_27b(mtp=(Full(4, 256, 256),))
    made = figures(drafted, 64 * GIB, 8192, engine_version="0.24", speculative_config=config)
    assert made["group_layers"] == 17
    for wrong in ("[1]", "{", '{"num_speculative_tokens": -1}', '{"num_speculative_tokens": true}'):
        with pytest.raises(UsageError, match="--speculative-config"):
            figures(drafted, GIB, 8192, speculative_config=wrong)
    with pytest.raises(UsageError, match="--draft"):
        figures(qwen_27b(), GIB, 8192, speculative_config='{"method": "eagle3", "num_speculative_tokens": 3}')


@pytest.mark.parametrize("replay", [True, False])
def test_replay_needs_no_block_per_draft_token(replay: bool) -> None:
    mamba = model((Full(8, 128, 128), 4), (Mamba2(48, 64, 128, 1, 4), 36), mtp=(Full(8, 128, 128),))
    flags = {"engine_version": "0.28", "enable_prefix_caching": False, "num_speculative_tokens": 4}
    made = figures(mamba, 8 * GIB, 8192, use_replayssm=replay, **flags)
    states = sum(row["kind"] == "state" for row in made["group_list"])
    attention = -(-8192 // made["block_tokens"])
    assert made["blocks_per_max_sequence"] == attention + states * (1 if replay else 5)


# Laws.


@settings(max_examples=60, deadline=None)
@given(
    attention=st.integers(1, 12),
    states=st.integers(0, 40),
    windows=st.integers(0, 20),
    tokens=st.integers(1, 400_000),
    mode=st.booleans(),
)
def test_waste_accounts_for_every_byte(attention: int, states: int, windows: int, tokens: int, mode: bool) -> None:
    made = model(
        (Full(4, 128, 128), attention), (Gdn(16, 32, 128, 128, 4), states), (SlidingWindow(4, 128, 128, 1024), windows)
    )
    deployment = make_deployment(enable_prefix_caching=mode)
    planned = plan_of(made, deployment, tokens)
    spent = planned.request_blocks(tokens) * planned.block_bytes
    own = Holding(made.mixers(), ENGINE.dtypes(made, deployment)).bytes(tokens)
    found = waste(planned, tokens)
    assert spent == own + sum(found.values())
    assert all(size >= 0 for size in found.values())


def plan_of(made: Model, deployment: Deployment, tokens: int) -> Planned:
    from kvplan.engines.vllm import plan_blocks

    layers = list(made.mixers())
    resolved = settings_for(deployment, Layout(), layers, tokens)
    specs = model_specs([layers], (), resolved, ENGINE.dtypes(made, deployment), deployment, tokens)
    return plan_blocks(specs, resolved, deployment, 64 * GIB)


@settings(max_examples=60, deadline=None)
@given(pool=st.integers(0, 80 * GIB), tokens=st.integers(1, 300_000), more=st.integers(0, 50_000))
def test_longer_or_smaller_never_holds_more(pool: int, tokens: int, more: int) -> None:
    made = qwen_27b()
    one = allocate(made, pool, tokens).fits[0]
    longer, larger = allocate(made, pool, tokens + more).fits[0], allocate(made, pool + GIB, tokens).fits[0]
    assert longer.sequences <= one.sequences <= one.packed
    assert larger.sequences >= one.sequences


@settings(max_examples=40, deadline=None)
@given(pool=st.integers(GIB, 80 * GIB), tokens=st.integers(1, 300_000))
def test_vllm_never_beats_the_bare_bytes(pool: int, tokens: int) -> None:
    made = qwen_27b()
    fit = allocate(made, pool, tokens, max_num_seqs=1 << 20).fits[0]
    own = Holding(made.mixers(), ENGINE.dtypes(made, make_deployment())).bytes(tokens)
    assert fit.sequences <= pool // own


def test_experts_are_cut_over_replicas_that_dp_makes() -> None:
    """Without expert parallelism a typed -dp widens the experts' tensor parallelism, attention stays at tp."""
    one = plan("deepseek-v3", gpu="B300:8", tp=8, context="8K").per_rank
    shared = plan("deepseek-v3", gpu="B300:8", tp=4, dp=2, context="8K").per_rank
    spread = plan("deepseek-v3", gpu="B300:8", tp=4, dp=2, ep=8, context="8K").per_rank
    apart = plan("deepseek-v3", gpu="B300:8", tp=4, context="8K")
    assert one and shared and spread and apart.per_rank
    assert one.weights_bytes < shared.weights_bytes == spread.weights_bytes < apart.per_rank.weights_bytes
    assert apart.run is not None and "-dp" not in apart.run and apart.run.endswith("# once for each 4 GPUs")


def test_sglang_copies_experts_for_each_replica() -> None:
    apart = plan("deepseek-v3", gpu="B300:8", engine="sglang", tp=4, context="8K").per_rank
    typed = plan("deepseek-v3", gpu="B300:8", engine="sglang", tp=4, dp=2, context="8K").per_rank
    assert apart and typed and apart.weights_bytes == typed.weights_bytes
