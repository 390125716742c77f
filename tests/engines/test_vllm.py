"""vLLM's rules against published figures of Kimi K3, Kimi Linear and Qwen, each with its source."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvplan.deployment import Layout, make_deployment
from kvplan.dtypes import Dtypes
from kvplan.engines.vllm.figures import Planned
from kvplan.engines.vllm.groups import block_bytes, plan_groups
from kvplan.engines.vllm.model import Specs
from kvplan.engines.vllm.rules import Rules, rules_for
from kvplan.engines.vllm.settings import Blocks, Device, Settings, block_sizes, settings_for
from kvplan.engines.vllm.specs import Spec
from kvplan.layers.delta import Kda
from kvplan.layers.full import Full
from kvplan.layers.mla import Mla
from kvplan.ledger import Holding
from kvplan.model import Model
from kvplan.sources import resolve
from vllm_kit import B300, B300_POOL, GIB, MILLION, allocate, blocked, figures, kimi_linear, qwen_27b

GOLDEN = Path(__file__).parent.parent / "golden"


def within(made: Model, gib: float, length: int, tokens: int, **flags: Any) -> bool:
    """Whether some whole number of blocks inside the rounding of a printed GiB gives the printed tokens."""
    low, high = (figures(made, int((gib + half) * GIB), length, **flags)["num_blocks"] for half in (-0.005, 0.005))
    return any(blocked(made, n, length, **flags)["kv_cache_tokens"] == tokens for n in range(low, high + 1))


# The command of the issue and the published reproductions (facts of 2026-07 to 2026-09, each with its public source).


def test_kimi_k3_on_b300_as_inferencex_logged() -> None:
    """InferenceX PR 2371: 42.23 GiB, 3,249,215 tokens, about 3.1 requests of maximal length."""
    made = figures(resolve("kimi-k3"), B300_POOL, MILLION, engine_version="0.28", **B300)
    assert (made["block_tokens"], made["num_blocks"], made["blocks_per_max_sequence"]) == (1536, 2135, 689)
    assert made["kv_cache_tokens"] == 3_249_215
    assert (made["groups"], made["group_layers"], made["padding_layers"]) == (4, 24, 3)
    assert round(100 * made["layer_padding_fraction"], 2) == 4.35
    assert round(100 * made["page_padding_fraction"], 2) == 8.68
    assert made["snapshot_bytes"] == 63_700_992
    assert made["min_request_bytes"] == 148_635_648
    assert within(resolve("kimi-k3"), 42.23, MILLION, 3_249_215, engine_version="0.28", **B300)


def test_newest_rules_take_three_blocks_for_checkpoints() -> None:
    made = figures(resolve("kimi-k3"), B300_POOL, MILLION, **B300)
    assert (made["blocks_per_max_sequence"], made["kv_cache_tokens"]) == (692, 3_235_129)
    assert made["rules_version"] == "0.33.0"
    triton = figures(resolve("kimi-k3"), B300_POOL, MILLION, kda_prefill_backend="triton", **B300)
    assert triton["blocks_per_max_sequence"] == 689
    assert "flashkda" in made["rules"]["checkpoint_kernels"]


def test_kimi_k3_safe_and_packed() -> None:
    """vLLM's manager admits 23 at 131,072 tokens, and 355 at 4,096 by prefill alone, of which 237 stay safe."""
    found = allocate(resolve("kimi-k3"), B300_POOL, 4096, 32_768, 131_072, engine_version="0.28", **B300).fits
    assert [(fit.sequences, fit.packed) for fit in found] == [(237, 355), (76, 76), (23, 23)]
    assert [fit.binds for fit in found] == ["state", "kv", "kv"]
    shared = allocate(resolve("kimi-k3"), B300_POOL, 131_072, engine_version="0.28", dcp=8, **B300).fits
    assert shared[0].sequences == 125


def k3_drafted() -> Model:
    """With Inferact's DSpark: five layers of MLA join the 24."""
    return replace(resolve("kimi-k3"), mtp=(Mla(512, 64),) * 5)


def test_row_2_dspark_widens_the_groups() -> None:
    """ROCm/ATOM PR 2268: 37.85 GiB, 1,584 blocks of 25,657,344 B, 1,887,436 tokens, 28.80x, entry 58.22 MiB."""
    flags = {"engine_version": "0.28", "tp": 8, "kv_cache_dtype": "fp8", "num_speculative_tokens": 2}
    made = blocked(k3_drafted(), 1584, 65_536, enable_prefix_caching=True, **flags)
    assert (made["group_layers"], made["block_bytes"]) == (29, 25_657_344)
    assert (made["blocks_per_max_sequence"], made["kv_cache_tokens"]) == (55, 1_887_436)
    assert round(made["max_concurrency"], 2) == 28.80
    assert (made["padding_layers"], round(100 * made["layer_padding_fraction"], 2)) == (18, 26.09)
    assert round(69 * made["page_bytes"] / (1 << 20), 2) == 58.22
    assert within(k3_drafted(), 37.85, 65_536, 1_887_436, enable_prefix_caching=True, **flags)


@pytest.mark.parametrize(
    ("dcp", "per_request", "blocks", "tokens"), [(8, 174, 175, 1_054_602), (16, 89, 124, 1_460_937)]
)
def test_rows_3_and_4_context_parallel(dcp: int, per_request: int, blocks: int, tokens: int) -> None:
    """local-inference-lab/vllm issue 239: K3 on 16 GPUs, TP16, fp8, 1M."""
    flags = {"engine_version": "0.28", "tp": 16, "dcp": dcp, "kv_cache_dtype": "fp8", "enable_prefix_caching": False}
    made = blocked(resolve("kimi-k3"), blocks, MILLION, **flags)
    assert (made["block_tokens"], made["blocks_per_max_sequence"]) == (768, per_request)
    assert made["kv_cache_tokens"] == tokens


def six_wide(window: int) -> tuple[Planned, Rules]:
    """K3 at TP16 in fp8 with a windowed draft of five layers, seven draft tokens, groups of six layers."""
    rules = rules_for("0.28")
    latent = Spec("latent", 768, 576)
    state = Spec(
        "state", MILLION, 407_040 + 7 * 4608, padded_bytes=442_368, dcp_sharded=False, state_blocks=8, drafts=7
    )
    draft = Spec("sliding_latent", 768, 576, window=window, dcp_sharded=False)
    specs = (latent,) * 24 + (state,) * 69 + (draft,) * 5
    groups = plan_groups(specs, rules, width=6)
    made = Settings(rules, Device(), "none", False, 7, 7, 0, 128, 4096, 4096, ())
    blocks = Blocks(768, 128, 407_040, 442_368)
    return Planned(made, Specs(specs, (98,), blocks, packed=False), tuple(groups), 499, 6 * 442_368, 16), rules


@pytest.mark.parametrize(
    ("window", "in_flight", "blocks"),
    [(32_768, 8192, 495), (32_768, 4096, 489), (4096, 4096, 452)],
)
def test_rows_5_to_7_windowed_draft(window: int, in_flight: int, blocks: int) -> None:
    """local-inference-lab/vllm issue 239 and its scripts: 1,057,049 tokens; 1,297,907,712 and 1,199,702,016 B."""
    planned, rules = six_wide(window)
    planned = replace(planned, settings=replace(planned.settings, in_flight=in_flight))
    assert len(planned.groups) == 17
    assert block_bytes(planned.groups, rules) == 2_654_208
    assert planned.request_blocks(MILLION) == blocks
    if in_flight == 8192:
        assert planned.tokens(MILLION) == 1_057_049
    published = {489: 1_297_907_712, 452: 1_199_702_016}
    assert published.get(blocks, blocks * 2_654_208) == blocks * 2_654_208


def test_row_8_context_parallel_saves_860_mib() -> None:
    planned, _ = six_wide(32_768)
    saved = replace(planned, dcp=8).request_blocks(MILLION) - planned.request_blocks(MILLION)
    assert saved * planned.block_bytes == int(860.625 * (1 << 20))


def test_row_9_sixteen_hoppers() -> None:
    """A K3 deployment note: TP16 bf16 without prefix caching, 0.82 GiB, 29,696 tokens long: 30,062 tokens, 1.012x."""
    flags = {"engine_version": "0.28", "tp": 16, "enable_prefix_caching": False, "gpu": "H200:8", "nodes": 2}
    made = blocked(resolve("kimi-k3"), 82, 29_696, **flags)
    assert (made["block_tokens"], made["blocks_per_max_sequence"], made["kv_cache_tokens"]) == (384, 81, 30_062)
    assert round(made["max_concurrency"], 3) == 1.012
    assert within(resolve("kimi-k3"), 0.82, 29_696, 30_062, **flags)


def test_row_10_blocks_not_tokens_decide() -> None:
    """A K3 ops note: 2,295,266 tokens, 8.76x at 256K; its 17.5x and 4.4x elsewhere divide that number."""
    flags = {"engine_version": "0.28", "tp": 8, "enable_prefix_caching": True}
    made = blocked(resolve("kimi-k3"), 3047, 262_144, **flags)
    assert (made["block_tokens"], made["kv_cache_tokens"]) == (768, 2_295_266)
    assert round(made["max_concurrency"], 2) == 8.76
    ladder = [blocked(resolve("kimi-k3"), 3047, length, **flags)["max_concurrency"] for length in (131_072, 524_288)]
    assert [round(value, 2) for value in ladder] == [17.21, 4.42]


def test_row_11_recoverssm_gains_capacity() -> None:
    """vLLM PR 51855: +10.97 % at TP8, DSpark 7, fp8, 256K, in the same 46.48 GiB."""
    flags = {
        "engine_version": "0.29", "tp": 8, "kv_cache_dtype": "fp8", "enable_prefix_caching": True,
        "num_speculative_tokens": 7, "kda_prefill_backend": "triton",
    }  # fmt: skip
    plain = blocked(k3_drafted(), 1944, 262_144, **flags)
    recovered = blocked(k3_drafted(), 1667, 262_144, use_replayssm=True, **flags)
    assert (plain["block_tokens"], plain["blocks_per_max_sequence"]) == (1536, 198)
    assert (recovered["block_tokens"], recovered["blocks_per_max_sequence"]) == (1792, 153)
    pool = int(46.476 * GIB)
    assert pool // plain["block_bytes"] == 1944
    assert pool // recovered["block_bytes"] == 1667
    assert round(recovered["max_concurrency"] / plain["max_concurrency"] - 1, 4) == 0.1097


def test_row_12_scheduler_block() -> None:
    """InferenceX PR 2372: scheduler_block_size 3145728 in mode none."""
    flags = {"engine_version": "0.28", "tp": 8, "kv_cache_dtype": "fp8", "enable_prefix_caching": False}
    assert figures(resolve("kimi-k3"), B300_POOL, MILLION, **flags)["scheduler_block_tokens"] == 3_145_728


def test_row_13_kimi_linear_under_the_old_rules() -> None:
    """vLLM issue 28228: 2.30 GiB, 75,840 tokens, 2.48x at 120,000, 1 padding layer (5.00 %)."""
    made = blocked(kimi_linear(), 318, 120_000, engine_version="0.11", tp=2)
    assert (made["block_tokens"], made["group_layers"], made["kv_cache_tokens"]) == (960, 7, 75_840)
    assert round(made["max_concurrency"], 2) == 2.48
    assert (made["padding_layers"], made["layer_padding_fraction"]) == (1, 0.05)
    assert within(kimi_linear(), 2.30, 120_000, 75_840, engine_version="0.11", tp=2)


def test_rows_14_to_16_qwen_27b() -> None:
    """talos-argocd-proxmox PR 1995; club-3090 issues 295 and 294; a public log of 1,760 blocks."""
    flags = {"engine_version": "0.24", "enable_prefix_caching": True, "tp": 2, "kv_cache_dtype": "fp8"}
    made = blocked(qwen_27b(), 208, 131_072, **flags)
    assert (made["block_tokens"], made["blocks_per_max_sequence"], made["kv_cache_tokens"]) == (1568, 90, 302_921)
    assert round(made["max_concurrency"], 2) == 2.31
    drafted = qwen_27b(mtp=(Full(4, 256, 256),))
    for blocks, tokens in ((424, 620_944), (425, 622_408)):
        made = blocked(drafted, blocks, 262_144, num_speculative_tokens=3, **flags)
        assert (made["block_tokens"], made["blocks_per_max_sequence"], made["group_layers"]) == (1600, 179, 17)
        assert made["kv_cache_tokens"] == tokens
        assert round(made["max_concurrency"], 2) == 2.37
    plain = blocked(qwen_27b(), 1760, 131_072, engine_version="0.24", enable_prefix_caching=True)
    assert (plain["block_tokens"], plain["blocks_per_max_sequence"]) == (784, 174)
    assert plain["kv_cache_tokens"] == 1_325_785


def test_row_17_int4_keys_and_values() -> None:
    """A public log, 12 GB GPU: block 1,552, 86 blocks, 2.26x, 111,238 tokens. The KV type is not stated: among 16-token
    multiples only 4 × 2 × (128 + 4) B per token, packed int4 with an fp32 scale per head, gives this block."""
    made = qwen_27b()
    deployment = make_deployment(engine_version="0.24", enable_prefix_caching=True, mamba_ssm_dtype="bf16")
    layers = list(made.mixers())
    resolved = settings_for(deployment, Layout(), layers, 49_152)
    dtypes = Dtypes(kv="bf16", state="bf16")
    blocks = block_sizes(resolved, deployment, dtypes, layers, 4 * 2 * (128 + 4), 1_634_304)
    assert blocks.tokens == 1552
    assert -(-49_152 // 1552) + 3 * 2 == 38
    assert int(86 / 38 * 49_152) == 111_238


@pytest.mark.parametrize(
    ("name", "flags", "block", "padding"),
    [
        ("qwen3.5-0.8b", {}, 544, None),
        ("qwen3.5-4b", {}, 528, None),
        ("qwen3.6-35b-a3b", {"kv_cache_dtype": "fp8"}, 2096, 0.0),
        ("qwen3.5-27b", {}, 784, 0.13),
        ("qwen3.5-27b", {"tp": 2, "mamba_ssm_dtype": "bf16"}, 400, 0.25),
        ("kimi-linear", {"tp": 2, "engine_version": "0.11"}, 960, None),
        ("kimi-k3", {"tp": 8}, 768, 8.68),
        ("kimi-k3", {"tp": 8, "kv_cache_dtype": "fp8"}, 1536, 8.68),
        ("kimi-k3", {"tp": 16}, 384, 8.68),
        ("kimi-k3", {"tp": 16, "kv_cache_dtype": "fp8"}, 768, 8.68),
    ],
)
def test_logged_block_sizes(name: str, flags: dict[str, Any], block: int, padding: float | None) -> None:
    made = figures(resolve(name), 64 * GIB, 32_768, **({"engine_version": "0.28"} | flags))
    assert made["block_tokens"] == block
    assert padding is None or round(100 * made["page_padding_fraction"], 2) == padding


def test_anchors() -> None:
    """A2: ATOM's state entry of 54.78 MiB with two drafts. A3: 0.75 MiB per layer. A5: vLLM issue 40691. A8: a trap."""
    entry = 69 * (12 * 128 * 128 * 4 + 5 * 3 * 12 * 128 * 2)
    rank = Kda(96, 128, 4).on_rank(8)
    state, tail = rank.stored(Dtypes())
    assert 69 * (state.entry_bytes + tail.entry_bytes // 3 * 5) == entry
    assert round(entry / (1 << 20), 3) == 54.782
    assert state.entry_bytes / (1 << 20) == 0.75
    old = blocked(qwen_27b(), 1487, 32_768, engine_version="0.19.0")
    assert (old["block_tokens"], old["kv_cache_tokens"], round(old["max_concurrency"], 2)) == (784, 290_864, 33.04)
    growth = Holding(resolve("kimi-k3").mixers(), Dtypes()).growth()
    assert growth == 27_648
    assert growth != 107_136
