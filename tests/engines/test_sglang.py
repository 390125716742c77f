"""SGLang's rules against SGLang's own sizing (frozen answers), its published figures and public logs."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.deployment import Layout, make_deployment, make_fleet
from kvplan.dtypes import Dtypes
from kvplan.engines.base import Allocation, Share
from kvplan.engines.sglang import ENGINE
from kvplan.engines.sglang.rules import Rules
from kvplan.engines.sglang.settings import Settings, settings_for
from kvplan.engines.sglang.states import StateBytes, size_states
from kvplan.errors import UsageError
from kvplan.layers.base import Layer
from kvplan.layers.compressed import Csa, Hca, WindowOnly
from kvplan.layers.delta import Gdn, Kda
from kvplan.layers.dsa import Dsa
from kvplan.layers.full import Full
from kvplan.layers.mamba import Mamba2
from kvplan.layers.mla import Mla
from kvplan.layers.windowed import SlidingWindow
from kvplan.model import Model, Source
from kvplan.placement import stage_layers
from kvplan.sources import resolve

GIB = 1 << 30
FROZEN = Path(__file__).parent.parent / "golden"
GOLDEN = json.loads((FROZEN / "sglang_pools.json").read_text())
RELEASES = json.loads((FROZEN / "sglang_releases.json").read_text())

STATE_DTYPES = {"float32": "fp32", "bfloat16": "bf16"}


def state_layer(state: dict[str, Any]) -> Layer | None:
    if state["kind"] == "kda":
        return Kda(state["num_heads"], state["head_dim"], state["conv_kernel"])
    if state["kind"] == "gdn":
        widths = (state["key_heads"], state["value_heads"], state["key_dim"], state["value_dim"])
        return Gdn(*widths, state["conv_kernel"])
    if state["kind"] == "mamba2":
        widths = (state["num_heads"], state["head_dim"], state["d_state"], state["n_groups"])
        return Mamba2(*widths, state["conv_kernel"])
    return None


def attention_layer(attention: dict[str, Any]) -> Layer:
    if attention["kind"] == "mla":
        return Mla(512, 64)
    if attention["kind"] == "dsa":
        return Dsa(512, 64, 128, 2048)
    return Full(attention["kv_heads"], attention["head_dim"], attention["head_dim"])


def order_of(case: dict[str, Any]) -> list[Layer]:
    attention, state = case["attention"], case["state"]
    if attention["kind"] == "v4":
        kinds = {0: WindowOnly(512, 64, 128), 4: Csa(512, 64, 128, 4, 128, 512), 128: Hca(512, 64, 128, 128)}
        return [kinds[ratio] for ratio in attention["ratios"]]
    recurrent = state_layer(state)
    kept, total = attention["layers"], attention["layers"] + (state["layers"] if recurrent else 0)
    last = {(i + 1) * total // kept - 1 for i in range(kept)}
    kept_layer = attention_layer(attention)
    order: list[Layer] = [kept_layer if i in last or recurrent is None else recurrent for i in range(total)]
    if attention["kind"] == "swa":
        heads, width = attention["kv_heads"], attention["head_dim"]
        order += [SlidingWindow(heads, width, width, attention["window"])] * attention["swa_layers"]
    return order


def model_of(case: dict[str, Any]) -> Model:
    return Model(
        name="case",
        source=Source("generated"),
        model_type="case",
        architecture="GptOssForCausalLM" if case["attention"]["kind"] == "swa" else "Case",
        dtype="bf16",
        blocks=tuple((layer,) for layer in order_of(case)),
        max_context_tokens=case["context_len"],
    )


def flags_of(case: dict[str, Any]) -> dict[str, Any]:
    flags = dict(case["flags"])
    strategy = flags.pop("strategy")
    return flags | {
        "mamba_radix_cache_strategy": "extra_buffer" if strategy == "extra_sync" else strategy,
        "disable_overlap_schedule": strategy in ("no_buffer", "extra_sync"),
        "kv_cache_dtype": "bf16" if case["attention"].get("bytes") == 2 else "fp8",
        "mamba_ssm_dtype": STATE_DTYPES[case["state"]["dtype"]],
        "max_model_len": case["context_len"],
        "chunked_prefill_size": 8192,
        "enable_dp_attention": case["attn_dp"] > 1,
        "dp": case["attn_dp"],
    }


def allocate_case(case: dict[str, Any]) -> Allocation:
    model, deployment = model_of(case), make_deployment(**flags_of(case))
    layout = Layout(tp=case["tp"], pp=case["pp"], dp=case["attn_dp"], dcp=case["dcp"])
    share = Share(model, layout, ENGINE.dtypes(model, deployment), stage_layers(model, layout))
    return ENGINE.allocate(share, case["rest_bytes"], deployment, [case["context_len"]])


def difference(row: dict[str, Any]) -> str:
    """What differs from SGLang's answer; empty where nothing does."""
    case, asked = row["case"], row["sglang"]
    figures = allocate_case(case).figures
    scale = 1 if case["attention"]["kind"] in ("swa", "v4") else case["dcp"]
    if asked is None:
        starts = figures["kv_cache_tokens"] > 0 and figures["max_running_requests"] > 0
        slots = figures["state_slots"]
        return "SGLang refuses to start" if starts and (slots is None or slots > 0) else ""
    ours = {
        "max_mamba_cache_size": figures["state_slots"],
        "slots_per_request": figures.get("slots_per_request"),
        "max_total_num_tokens": figures["kv_cache_tokens"] // scale,
        "swa_max_total_num_tokens": figures["swa_cache_tokens"],
        "max_running_requests": figures["max_running_requests"],
    }
    wrong = [f"{name}: {value} against {asked[name]}" for name, value in ours.items() if value != asked[name]]
    return ", ".join(wrong)


@pytest.mark.parametrize("row", GOLDEN["cases"], ids=lambda row: str(row["id"]))
def test_sglang_sizes_its_pools_alike(row: dict[str, Any]) -> None:
    """Slots, slots per request, tokens and running requests as SGLang 0.5.23's own code answered."""
    assert difference(row) == ""


@pytest.mark.parametrize("row", RELEASES["cases"], ids=lambda row: f"0.5.{row['patch']}")
def test_each_release_sizes_states_its_own_way(row: dict[str, Any]) -> None:
    """Slots and the KV cache's share as the released code of 0.5.8 to 0.5.22 answered."""
    settings = Settings(
        rules=Rules(row["patch"]),
        strategy=row["strategy"],
        overlap=row["overlap"],
        radix=row["radix"],
        slots_per_request=row["slots_per_request"],
        draft_tokens=row["draft_tokens"],
        algorithm="EAGLE" if row["draft_tokens"] else None,
        attn_dp=row["attn_dp"],
        requests=row["requests"],
        max_mamba_cache_size=row["max_mamba_cache_size"],
        ratio=row["ratio"],
        page_size=1,
        replayssm=row["replayssm"],
        ring_length=16,
    )
    one = StateBytes(row["slot_bytes"], row["ring_bytes"], row["ring_per_request"])
    states = size_states(row["rest_bytes"], one, settings)
    assert (states.slots, states.kv_bytes) == (row["slots"], row["kv_bytes"])


def allocate(
    name: str, rest_bytes: int, layout: Layout | None = None, contexts: tuple[int, ...] = (11_264,), **flags: Any
) -> Allocation:
    model, deployment, layout = resolve(name), make_deployment(**flags), layout or Layout()
    share = Share(model, layout, ENGINE.dtypes(model, deployment), stage_layers(model, layout))
    return ENGINE.allocate(share, rest_bytes, deployment, list(contexts))


def test_the_k3_page() -> None:
    """101 running requests at TP8, as SGLang's Kimi K3 page prints; 506 slots from 56 GiB."""
    figures = allocate("kimi-k3", 56 * GIB, Layout(tp=8)).figures
    assert figures["state_slots"] == 506
    assert figures["state_slot_bytes"] == 56_171_520
    assert figures["slots_per_request"] == 5
    assert figures["max_running_requests"] == 101


@pytest.mark.parametrize(("layout", "ratio", "digits"), [(Layout(tp=8), 0.902, 3), (Layout(tp=8, dcp=8), 7.21, 2)])
def test_balanced_ratio(layout: Layout, ratio: float, digits: int) -> None:
    """SGLang's calculator for Kimi K3 at 11,264 tokens, whose formula counts neither padding slot nor pages."""
    row = allocate("kimi-k3", 4_096 * GIB, layout).figures["balanced_mamba_full_memory_ratio"][0]
    assert round(row["ratio"], digits) == ratio


def test_the_balanced_ratio_balances() -> None:
    """With the ratio that the figures name, slots and tokens run out together."""
    first = allocate("kimi-k3", 56 * GIB, Layout(tp=8), (32_768,)).figures["balanced_mamba_full_memory_ratio"][0]
    tuned = allocate("kimi-k3", 56 * GIB, Layout(tp=8), (32_768,), mamba_full_memory_ratio=first["ratio"])
    assert tuned.fits[0].sequences == first["requests"]
    assert tuned.figures["max_running_requests"] in (first["requests"], first["requests"] + 1)


def test_slots_trade_for_tokens() -> None:
    """club-3090#1331: 11 slots of Qwen3.8-27B at TP2 with a bf16 state and fp8 KV are worth 24,785 tokens."""
    flags = {"mamba_ssm_dtype": "bf16", "kv_cache_dtype": "fp8", "speculative_algorithm": "EAGLE"}
    flags |= {"speculative_num_draft_tokens": 4, "enable_linear_replayssm_spec": True, "linear_replayssm_cache_len": 1}
    few, many = (
        allocate("qwen3.8-27b", 20 * GIB, Layout(tp=2), max_mamba_cache_size=slots, **flags).figures
        for slots in (10, 21)
    )
    assert few["state_slot_bytes"] == 39_223_296
    assert few["page_bytes"] == 17_408
    assert few["kv_cache_tokens"] - many["kv_cache_tokens"] in (24_785, 24_786)


LOGS = [
    ("granite-4.0-h-micro", 38, 399_740, 8_192, 76_437_504, "0.5.9"),
    ("nemotron-3-nano at TP4, fp8", 2_211, 19_644_177, 1_536, 12_270_592, "0.5.17"),
    ("qwen3.6-27b on RTX PRO 6000", 154, 403_904, 65_536, 153_944_064, "0.5.16"),
    ("qwen3.8-27b on H100", 124, 330_323, 65_536, 153_944_064, "0.5.17"),
]
"""Public logs: model, state slots, tokens, bytes of a token and of a slot, and a release whose rule they follow."""


@pytest.mark.parametrize(("label", "slots", "tokens", "cell", "slot", "version"), LOGS, ids=[row[0] for row in LOGS])
def test_public_logs_split_as_computed(label: str, slots: int, tokens: int, cell: int, slot: int, version: str) -> None:
    """The memory that the printed tokens imply gives the printed slots, and no other release's rule does."""

    def slots_by(release: str) -> int:
        settings = settings_for(resolve("kimi-k3"), make_deployment(engine_version=release))
        rest = tokens * cell + cell // 2 + (slots + settings.rules.padding_row) * slot
        return size_states(rest, StateBytes(slot), settings).slots

    assert slots_by(version) == slots
    other = "0.5.17" if version in ("0.5.9", "0.5.16") else "0.5.16"
    if label != "granite-4.0-h-micro":
        assert slots_by(other) != slots


def test_glm5_record() -> None:
    """A GLM-5 log of February 2026 (fp8, TP8): 3,262,823 tokens in 186.77 GiB are 78 × (656 + 132) B each."""
    flags = {"kv_cache_dtype": "fp8", "engine_version": "0.5.9", "page_size": 1}
    figures = allocate("glm-5", 187 * GIB, Layout(tp=8), **flags).figures
    assert figures["page_bytes"] == 61_464
    assert 3_262_823 * figures["page_bytes"] / GIB == pytest.approx(186.77, abs=0.005)


def test_windows_have_their_own_pool() -> None:
    """MiMo-V2-Flash at TP4: 375,360 full and 300,288 window tokens (ratio 0.8, pages of 64)."""
    figures = allocate("mimo-v2-flash", 29_000_000_000, Layout(tp=4), page_size=64, max_total_tokens=375_360).figures
    assert (figures["kv_cache_tokens"], figures["swa_cache_tokens"]) == (375_360, 300_288)


def test_slots_as_logged_on_gb10() -> None:
    """Qwen3.8-27B: --max-mamba-cache-size 360 admits 72 requests, five slots each."""
    figures = allocate("qwen3.8-27b", 64 * GIB, max_mamba_cache_size=360, max_running_requests=72).figures
    assert (figures["slots_per_request"], figures["max_running_requests"]) == (5, 72)


def test_without_radix_cache_a_request_is_a_slot() -> None:
    """Nemotron-Nano-9B-v2: 48 slots for 48 requests; K and V take 8,192 B a token each."""
    figures = allocate("nemotron-nano-9b-v2", 46 * GIB, disable_radix_cache=True, max_running_requests=48).figures
    assert (figures["state_slots"], figures["max_running_requests"]) == (48, 48)
    assert figures["page_bytes"] == 2 * 8_192
    assert figures["state_slot_bytes"] == 141_557_760 + 1_990_656


def test_unified_memory_counts_bytes() -> None:
    """One buffer for both: short requests are no longer held back by the ratio."""
    split = allocate("kimi-k3", 56 * GIB, Layout(tp=8), (200_000,))
    joint = allocate("kimi-k3", 56 * GIB, Layout(tp=8), (200_000,), enable_unified_memory=True)
    assert joint.fits[0].sequences > split.fits[0].sequences
    each = 5 * 56_171_520 + 200_000 * 27_648
    assert joint.fits[0].sequences == joint.figures["unified_pool_bytes"] // each


def test_host_pools() -> None:
    """HiCache: twice the device by default; a size in GB is shared by device bytes."""
    twice = allocate("kimi-k3", 56 * GIB, Layout(tp=8), enable_hierarchical_cache=True).figures
    assert twice["host"]["state_slots"] == 2 * 506 + 1
    assert twice["host"]["kv_tokens"] == 2 * twice["kv_cache_tokens"] + 1
    sized = allocate("kimi-k3", 56 * GIB, Layout(tp=8), enable_hierarchical_cache=True, hicache_size=200).figures
    assert sized["host"]["total_bytes"] == pytest.approx(200e9, rel=1e-3)


def test_attention_dp_divides_tp() -> None:
    fleet = make_fleet(make_deployment(gpu="H200:8", tp=8, dp=4, enable_dp_attention=True))
    assert fleet is not None
    assert (fleet.layout.tp, fleet.layout.dp, fleet.layout.ep) == (2, 4, 8)


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"engine_version": "0.4.6"}, "--engine-version"),
        ({"engine_version": "newest"}, "--engine-version"),
        ({"engine_version": "0.5.12", "enable_unified_memory": True}, "--enable-unified-memory"),
        ({"engine_version": "0.5.12", "mamba_radix_cache_strategy": "extra_buffer_lazy"}, "extra_buffer_lazy"),
        ({"speculative_algorithm": "EAGLE"}, "--speculative-num-draft-tokens"),
        ({"speculative_algorithm": "DSPARK"}, "--draft-kv-bytes-per-token"),
    ],
)
def test_flags_that_cannot_be_meant(flags: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        allocate("kimi-k3", 56 * GIB, Layout(tp=8), **flags)


@pytest.mark.parametrize(
    "version", ["0.5.8", "0.5.9", "v0.5.10.post2", "0.5.13", "0.5.16", "0.5.19", "0.5.23", "0.6.0"]
)
def test_every_release_answers(version: str) -> None:
    kept = allocate("kimi-k3", 56 * GIB, Layout(tp=8), engine_version=version)
    assert kept.figures["state_slots"] in (506, 507)
    assert kept.figures["slots_per_request"] == (5 if version in ("0.5.19", "0.5.23", "0.6.0") else 3)


def test_the_boot_log_in_sglangs_own_documentation() -> None:
    """429 slots: conv 1.00 GB, ssm 28.55 GB (GiB). 34 KDA layers of 32 heads, fp32, and the sink row of slot 0."""
    stored = {tensor.name: tensor.entry_bytes for tensor in Kda(32, 128, 4).stored(Dtypes(state="fp32"))}
    rows = (429 + 1) * 34
    assert round(rows * stored["recurrent"] / GIB, 2) == 28.55
    assert round(rows * stored["conv"] / GIB, 2) == 1.0
