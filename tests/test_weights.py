"""Weights against published totals, byte for byte, and the ways in which ranks share them."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit import small_moe as model
from kvplan.deployment import Layout
from kvplan.errors import PlacementError, SourceError
from kvplan.model import Model, Published
from kvplan.sources import resolve
from kvplan.units import GIB
from kvplan.weights import weigh
from kvplan.weights.ranks import stage_sizes

BF16_ROLES = ("attention", "mlp", "shared_expert", "router", "embedding", "head")


@pytest.fixture(scope="module")
def k3() -> Model:
    return resolve("kimi-k3")


def by_role(model: Model, *roles: str, **options: Any) -> int:
    return sum(line.bytes for line in weigh(model, Layout(), **options).lines if line.role in roles)


def test_k3_parts(k3: Model) -> None:
    """github.com/murillo128/k3-out-of-core#117 states 17,547,264 bytes an expert; 92 × 896 of them."""
    assert by_role(k3, "expert") == 92 * 896 * 17_547_264 == 1_446_456_066_048
    assert by_role(k3, *BF16_ROLES) == 113_479_249_088
    report = weigh(k3, Layout())
    assert report.params_total == 2_779_931_837_184
    assert round(report.params_active or 0, -9) == 104_000_000_000
    assert round(report.total_bytes / 1e12, 2) == 1.56


@pytest.mark.parametrize(
    ("layout", "options", "gib", "tolerance"),
    [
        (Layout(tp=8), {"with_vision": False}, 190.98, 0.02),
        (Layout(tp=8), {}, 191.81, 0.02),
        (Layout(tp=16), {"with_vision": False}, 100.83, 0.02),
        (Layout(tp=16), {"moe_shard_multiple": 256}, 129.75, 0.02),
    ],
)  # fmt: skip
def test_k3_ranks_as_measured(k3: Model, layout: Layout, options: dict[str, Any], gib: float, tolerance: float) -> None:
    """ATOM logs 190.98 without and 191.81 with vision at TP8; a TP16 Hopper log 129.75 with Marlin's padding."""
    assert abs(weigh(k3, layout, **options).rank_bytes / GIB - gib) < tolerance


@pytest.mark.parametrize(
    ("name", "total"),
    [
        # model.safetensors.index.json, metadata.total_size
        ("llama-3.1-8b", 16_060_522_496), ("gpt-oss-20b", 13_761_264_768), ("gpt-oss-120b", 65_248_815_744),
        # elements by dtype as the hub counts them: F8_E4M3, BF16, F32
        ("deepseek-v3", 680_571_043_840 + 2 * 3_918_786_560 + 4 * 41_555_600),
        # the hub's 1,029,173,256,720 less the 3,416 rotary frequencies in bf16 that belong to no module
        ("kimi-k2", 1_029_173_256_720 - 2 * 3_416),
    ],
)  # fmt: skip
def test_checkpoints_to_the_byte(name: str, total: int) -> None:
    report = weigh(resolve(name), Layout())
    assert report.total_bytes == total == sum(line.bytes for line in report.lines)
    assert (report.kind, report.rank_bytes) == ("derived", total - mtp_bytes(name))


def mtp_bytes(name: str) -> int:
    return by_role(resolve(name), "mtp")


@pytest.mark.parametrize(
    ("name", "quantization", "published", "unit", "within"),
    [
        ("deepseek-v4-pro", None, 865, 10**9, 1),
        ("kimi-k2.5", None, 595, 10**9, 0.5),
        ("qwen3-next", None, 151.49, GIB, 0.02),
        ("qwen3.8-27b", None, 51.7, GIB, 0.06),
        ("qwen3.8-27b", "fp8", 28.7, GIB, 0.06),
        ("qwen3.8-2.4t-a95b", None, 4.45, 1 << 40, 0.005),
    ],
)
def test_checkpoints_as_rounded_by_their_publisher(
    name: str, quantization: str | None, published: float, unit: int, within: float
) -> None:
    total = weigh(resolve(name), Layout(), quantization=quantization).total_bytes
    assert abs(total / unit - published) < within


@pytest.mark.parametrize(
    ("name", "billions"),
    [("gpt-oss-120b", 5.13), ("gpt-oss-20b", 3.61), ("kimi-k3", 104.19), ("mixtral-8x7b", 12.75)],
)
def test_active_parameters(name: str, billions: float) -> None:
    """The gpt-oss model card counts the head and not the embedding."""
    assert round((weigh(resolve(name), Layout()).params_active or 0) / 1e9, 2) == billions


@pytest.mark.parametrize(
    ("layers", "pp", "sizes"),
    [(3, 2, [2, 1]), (5, 3, [2, 2, 1]), (4, 2, [2, 2]), (7, 4, [2, 2, 2, 1]), (5, 4, [1, 1, 2, 1]), (1, 1, [1])],
)
def test_pipeline_stages_as_vllm_cuts_them(layers: int, pp: int, sizes: list[int]) -> None:
    """vllm/distributed/utils.py get_pp_indices: the rest goes to stages from the second-last backwards."""
    assert stage_sizes(layers, pp) == sizes


def test_more_stages_than_layers() -> None:
    with pytest.raises(PlacementError, match="--pp 6"):
        weigh(model(), Layout(pp=6))


def test_whole_experts_by_ep_and_cuts_by_tp() -> None:
    def expert(layout: Layout, **options: Any) -> int:
        lines = weigh(model(), layout, **options).rank_lines
        return sum(line.bytes for line in lines if line.role == "expert")

    one = 5 * 3 * 256 * 128 * 2
    whole = 24 * one
    assert expert(Layout(tp=4)) == whole // 4
    assert expert(Layout(tp=4, ep=4)) == whole // 4
    assert expert(Layout(tp=4, ep=2)) == whole // 4
    assert expert(Layout(tp=1, dp=16, ep=16)) == 2 * one
    assert expert(Layout(tp=1, dp=24, ep=24)) == one
    assert expert(Layout(tp=4), moe_shard_multiple=64) == whole // 2
    assert expert(Layout(tp=4, ep=4), moe_shard_multiple=64) == whole // 4


def test_a_tied_embedding_is_on_the_last_stage_too() -> None:
    tied, untied = model(tie_word_embeddings=True), model()
    table = 1000 * 256 * 2
    assert weigh(untied, Layout()).total_bytes - weigh(tied, Layout()).total_bytes == table
    assert weigh(tied, Layout(pp=5)).rank_bytes == weigh(untied, Layout(pp=5)).rank_bytes


def test_prediction_blocks_are_on_the_rank_only_with_a_draft() -> None:
    v3 = resolve("deepseek-v3")
    without, having = weigh(v3, Layout(tp=8)), weigh(v3, Layout(tp=8), with_mtp=True)
    assert without.total_bytes == having.total_bytes
    assert having.rank_bytes - without.rank_bytes == sum(line.bytes for line in having.rank_lines if line.role == "mtp")
    assert not any(line.role == "mtp" for line in without.rank_lines)


layouts = st.builds(
    lambda tp, pp, ep: Layout(tp=tp, pp=pp, ep=min(ep, tp)),
    st.sampled_from([1, 2, 4, 8]), st.integers(1, 5), st.sampled_from([1, 2, 4, 8]),
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(layouts, st.sampled_from(["bf16", "fp8", "nvfp4", "mxfp4", "int4", "awq", "gptq"]))
def test_ranks_hold_at_least_the_whole(layout: Layout, quantization: str) -> None:
    report = weigh(model(), layout, quantization=quantization)
    assert report.rank_bytes == sum(line.bytes for line in report.rank_lines)
    assert report.total_bytes == sum(line.bytes for line in report.lines)
    assert report.total_bytes <= report.rank_bytes * layout.tp * layout.pp
    assert 0 < report.replicated_bytes < report.rank_bytes <= report.total_bytes
    wider = weigh(model(), replace(layout, tp=layout.tp * 2), quantization=quantization)
    assert wider.rank_bytes <= report.rank_bytes


def test_a_given_size() -> None:
    total = weigh(model(), Layout()).total_bytes
    report = weigh(model(), Layout(tp=4), weights_bytes=2 * total)
    assert (report.kind, report.total_bytes, report.source) == ("given", 2 * total, "--weights")
    assert abs(report.rank_bytes - 2 * weigh(model(), Layout(tp=4)).rank_bytes) <= 1


def test_a_published_size_is_labelled_and_shared_evenly() -> None:
    lacking = model(moe_intermediate_size=None, intermediate_size=None)
    assert lacking.weights is None
    with pytest.raises(SourceError, match=r"moe_intermediate_size.*--weights"):
        weigh(lacking, Layout(tp=4))
    stated = replace(lacking, published=Published(checkpoint_bytes=1001, source="the model card"))
    report = weigh(stated, Layout(tp=2, pp=2))
    assert (report.kind, report.total_bytes, report.rank_bytes) == ("published", 1001, 251)
    assert "the model card" in report.source and "evenly" in report.assumptions[-1]
    counted = replace(lacking, published=Published(params_total=1000))
    assert weigh(counted, Layout()).total_bytes == 2000
    assert weigh(counted, Layout(), quantization="mxfp4").total_bytes == 500 + 32
    assert weigh(lacking, Layout(tp=4), weights_bytes=1000).rank_bytes == 250


def test_a_tower_is_what_the_publisher_counts_beyond_the_decoder() -> None:
    known = replace(model(), towers=("vision_config",))
    counted = weigh(known, Layout()).params_total or 0
    assert weigh(known, Layout()).missing == ("vision_config: not sized; add it with --weights SIZE",)
    report = weigh(replace(known, published=Published(params_total=counted + 1001)), Layout(tp=4))
    assert [(line.bytes, line.kind) for line in report.rank_lines if line.role == "vision"] == [(2002, "assumed")]
    for published in (counted * 2, counted - 1, (counted // 10**6 + 1) * 10**6):
        assert weigh(replace(known, published=Published(params_total=published)), Layout()).missing
