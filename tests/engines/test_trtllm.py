"""TensorRT-LLM's rules against public logs, and the arithmetic of its hybrid cache manager."""

from typing import Any

import pytest

from kvplan.deployment import Layout, make_deployment
from kvplan.engines.base import Allocation, Share
from kvplan.engines.trtllm import ENGINE
from kvplan.errors import UsageError
from kvplan.placement import stage_layers
from kvplan.sources import resolve

GIB = 1 << 30


def allocate(
    name: str, pool_bytes: int, contexts: tuple[int, ...] = (4096,), layout: Layout | None = None, **flags: Any
) -> Allocation:
    model, deployment, layout = resolve(name), make_deployment(**flags), layout or Layout()
    share = Share(model, layout, ENGINE.dtypes(model, deployment), stage_layers(model, layout))
    return ENGINE.allocate(share, pool_bytes, deployment, list(contexts))


def test_an_8b_model_on_a_5090() -> None:
    """fp8 KV: 8,219 blocks, 263,008 tokens in 16.05 GiB, 0.9 of 17.83 GiB."""
    low, high = (
        allocate("llama-3.1-8b", int(free * GIB * 0.9), kv_cache_dtype="fp8").figures["num_blocks"]
        for free in (17.825, 17.835)
    )
    assert low <= 8_219 <= high
    assert 8_219 * 32 == 263_008
    assert pytest.approx(16.05, abs=0.005) == 263_008 * 65_536 / GIB


def test_windows_are_priced_whole() -> None:
    """gpt-oss-120b: 8,224 tokens in 0.56 GiB are 36 full layers of 2,048 B."""
    figures = allocate("gpt-oss-120b", 8_224 * 73_728, (8_224,)).figures
    assert (figures["page_bytes"], figures["kv_cache_tokens"]) == (32 * 73_728, 8_224)
    assert pytest.approx(0.56, abs=0.005) == 8_224 * 73_728 / GIB


def test_states_of_every_resident_sequence_are_reserved() -> None:
    """Kimi K3 at TP8: max_batch_size 64 takes 65 slots of 56,171,520 B; the rest is blocks of 32 × 27,648 B."""
    flags = {"max_batch_size": 64, "engine": "trtllm"}
    kept = allocate("kimi-k3", 40 * GIB, (32_768,), Layout(tp=8), **flags)
    assert kept.figures["state_slots"] == 65
    assert kept.figures["state_pool_bytes"] == 65 * 56_171_520
    blocks = (40 * GIB - 65 * 56_171_520) // 27_648 // 32
    assert kept.figures["num_blocks"] == blocks
    assert kept.fits[0].sequences == blocks // (32_768 // 32)


def test_snapshots_take_slots_and_a_block_each() -> None:
    plain = allocate("kimi-k3", 40 * GIB, (32_768,), Layout(tp=8), max_batch_size=64).figures
    kept = allocate("kimi-k3", 40 * GIB, (32_768,), Layout(tp=8), max_batch_size=64, snapshots=1).figures
    assert kept["state_slots"] == 129
    assert kept["num_blocks"] == pytest.approx(plain["num_blocks"] - 64 * (56_171_520 / 884_736 + 1), abs=2)


def test_too_many_sequences_for_their_states() -> None:
    fit = allocate("kimi-k3", 40 * GIB, (32_768,), Layout(tp=8), max_batch_size=2048).fits[0]
    assert (fit.sequences, fit.binds) == (0, "state")


def test_without_max_batch_size_the_states_are_sized_to_the_length() -> None:
    fit = allocate("kimi-k3", 40 * GIB, (32_768,), Layout(tp=8)).fits[0]
    again = allocate("kimi-k3", 40 * GIB, (32_768,), Layout(tp=8), max_batch_size=fit.sequences).fits[0]
    assert again.sequences == fit.sequences
    assert (
        allocate("kimi-k3", 40 * GIB, (32_768,), Layout(tp=8), max_batch_size=fit.sequences + 1).fits[0].binds == "kv"
    )


def test_blocks_are_rounded_up() -> None:
    """A 4,607-block pool of 64-token blocks in 0.99 of 63.62 GiB at 229,376 B a token holds 294,848 tokens."""
    free = (int(gib * GIB * 0.99) // 229_376 for gib in (63.615, 63.625))
    low, high = (-(-tokens // 64) for tokens in free)
    assert low <= 4_607 <= high
    figures = allocate("llama-3.1-8b", 1_000 * 131_072, tokens_per_block=64).figures
    assert (figures["num_blocks"], figures["kv_cache_tokens"]) == (16, 1_024)


def test_max_tokens_caps_the_pool() -> None:
    assert allocate("llama-3.1-8b", 40 * GIB, max_tokens=10_000).figures["num_blocks"] == 313


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "rwkv7-2.9b"])
def test_what_is_not_modelled(name: str) -> None:
    with pytest.raises(UsageError, match="--engine trtllm"):
        allocate(name, 40 * GIB)
