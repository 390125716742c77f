"""The ledger against arithmetic written out by hand, and against brute force on random layers."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.dtypes import Dtypes
from kvplan.layers.base import Layer
from kvplan.layers.compressed import Csa, Hca, WindowOnly
from kvplan.layers.delta import Gdn, Kda
from kvplan.layers.dsa import Dsa
from kvplan.layers.full import Full
from kvplan.layers.gqa_index import GqaIndex
from kvplan.layers.linear import Lightning, Rwkv7, ShortConv
from kvplan.layers.mamba import Mamba1, Mamba2
from kvplan.layers.mla import Mla
from kvplan.layers.windowed import SlidingWindow
from kvplan.ledger import Holding, break_even_tokens

DIM = st.integers(1, 9)
LAYERS: st.SearchStrategy[Layer] = st.one_of(
    st.builds(Full, DIM, DIM, DIM),
    st.builds(SlidingWindow, DIM, DIM, DIM, st.integers(1, 40)),
    st.builds(Mla, DIM, st.integers(0, 9)),
    st.builds(Dsa, DIM, DIM, DIM, st.integers(1, 30), st.booleans()),
    st.builds(GqaIndex, DIM, DIM, DIM, DIM, st.integers(1, 30)),
    st.builds(WindowOnly, DIM, DIM, st.integers(1, 40)),
    st.builds(Hca, DIM, DIM, st.integers(1, 40), st.integers(2, 8)),
    st.builds(Csa, DIM, DIM, st.integers(1, 40), st.integers(2, 5), DIM, st.integers(1, 9)),
    st.builds(Kda, DIM, DIM, DIM),
    st.builds(Gdn, DIM, DIM, DIM, DIM, DIM),
    st.builds(Mamba1, DIM, DIM, DIM),
    st.builds(Mamba2, DIM, DIM, DIM, DIM, DIM),
    st.builds(Lightning, DIM, DIM),
    st.builds(Rwkv7, DIM, DIM, DIM),
    st.builds(ShortConv, DIM, DIM),
)
STACK = st.lists(LAYERS, min_size=1, max_size=6)
DTYPES = st.builds(
    Dtypes,
    kv=st.sampled_from(["bf16", "fp8", "fp32"]),
    index=st.sampled_from(["auto", "bf16", "fp8"]),
    state=st.sampled_from(["fp32", "bf16"]),
    conv=st.sampled_from([None, "bf16"]),
)


@given(STACK, DTYPES, st.integers(1, 300), st.integers(1, 4))
def test_more_tokens_never_keep_fewer_bytes(stack: list[Layer], dtypes: Dtypes, tokens: int, dcp: int) -> None:
    held = Holding(stack, dtypes, dcp)
    assert held.bytes(tokens) <= held.bytes(tokens + 1)


@given(STACK, DTYPES, st.integers(1, 300), st.integers(0, 5))
def test_columns_lines_and_total_agree(stack: list[Layer], dtypes: Dtypes, tokens: int, snapshots: int) -> None:
    held = Holding(stack, dtypes)
    footprint = held.footprint(tokens, snapshots)
    assert footprint.total == sum(line.bytes for line in held.lines(tokens, snapshots))
    assert footprint.total == held.bytes(tokens) + snapshots * held.snapshot_bytes()


@given(STACK, DTYPES, st.integers(1, 300), st.integers(1, 8))
def test_ranks_of_dcp_hold_at_least_the_whole(stack: list[Layer], dtypes: Dtypes, tokens: int, dcp: int) -> None:
    whole, rank = Holding(stack, dtypes), Holding(stack, dtypes, dcp)
    grows = [tensor for tensor in whole.tensors if tensor.grows and tensor.tokens_per_entry == 1]
    for tensor in grows:
        assert dcp * tensor.bytes(tokens, dcp) >= tensor.bytes(tokens)
    assert rank.bytes(tokens) <= whole.bytes(tokens)


@given(STACK, DTYPES, st.integers(1, 300))
def test_a_step_never_reads_more_than_is_kept(stack: list[Layer], dtypes: Dtypes, tokens: int) -> None:
    for layer in stack:
        assert layer.read_bytes(dtypes, tokens) <= Holding([layer], dtypes).bytes(tokens)


@settings(deadline=None)
@given(STACK, STACK, DTYPES, st.integers(1, 3))
def test_break_even_is_what_a_search_finds(one: list[Layer], other: list[Layer], dtypes: Dtypes, dcp: int) -> None:
    hybrid, baseline = Holding(one, dtypes, dcp), Holding(other, dtypes, dcp)
    found = break_even_tokens(hybrid, baseline)
    searched = next((n for n in range(1, 600) if hybrid.bytes(n) <= baseline.bytes(n)), None)
    assert searched == found if found is None or found < 600 else searched is None


def holds(layer: Layer, tokens: int, **dtypes: Any) -> int:
    return Holding([layer], Dtypes(**dtypes)).bytes(tokens)


def test_sizes_worked_by_hand() -> None:
    """Record formats of vLLM's backends and DeepSeek's papers, one layer each."""
    mla, dsa = Mla(512, 64), Dsa(512, 64, 128, 2048)
    assert [holds(mla, 1, kv=kv) for kv in ("bf16", "fp8", "fp8_ds_mla", "nvfp4_ds_mla")] == [1152, 576, 656, 352]
    assert [holds(dsa, 1, kv="fp8_ds_mla", index=index) for index in ("auto", "bf16", "fp4")] == [788, 912, 724]
    assert holds(Full(8, 64, 64), 1, kv="nvfp4") == 2 * 8 * 64 * 9 // 16
    csa = Csa(512, 64, 128, 4, 128, 512)
    assert holds(csa, 3, kv="bf16") == 3 * 1024 + 65_536 + 16_384
    assert holds(csa, 4, kv="bf16") - holds(csa, 3, kv="bf16") == 1024 + 1024 + 256
    assert holds(csa, 1004, kv="fp8_ds_mla") - holds(csa, 1000, kv="fp8_ds_mla") == 584 + 132
    hca = Hca(512, 64, 128, 128)
    assert holds(hca, 127, kv="bf16") == 127 * 1024 + 524_288
    assert holds(hca, 128, kv="bf16") == 128 * 1024 + 1024 + 524_288


def test_a_mamba2_rank_is_wider_than_its_share() -> None:
    """granite-4.0-h-small, one group over four ranks: the convolution row is 2,304 and not 2,112 (vLLM)."""
    rank = Mamba2(128, 64, 128, 1, 4).on_rank(4)
    conv = next(tensor for tensor in rank.stored(Dtypes()) if tensor.name == "conv")
    assert conv.shape == (3, 2304)
