"""One step and one prefill, term by term; bounds across architectures; refusals by name; capacity under a limit."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from here_kit import here
from kvplan.capacity import evaluate
from kvplan.deployment import make_deployment
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError, KvplanError, ProfileError, UsageError
from kvplan.flops import step_flops
from kvplan.gpu import find_gpu
from kvplan.interval import Interval
from kvplan.latency import Clock, Term, make_clock, read_calibration
from kvplan.latency.collectives import from_host_s
from kvplan.latency.compare import times_faster
from kvplan.latency.crossings import reads_equal_state_tokens, reload_bytes_per_s, state_traffic_bytes
from kvplan.latency.device import nearest_calibration, own_calibration
from kvplan.latency.products import Routing
from kvplan.ledger import Holding
from kvplan.plan import plan
from kvplan.sources import resolve


@cache
def clock(model: str, gpu: str, **flags: Any) -> Clock:
    return make_clock(resolve(model), make_deployment(gpu=gpu, **flags), find_gpu(gpu.partition(":")[0]))


def named(terms: list[Term]) -> dict[str, Term]:
    return {term.name: term for term in terms}


@pytest.mark.parametrize(("batch", "touched"), [(8, 120), (32, 393), (64, 613), (128, 807)])
def test_experts_touched_by_a_batch_of_kimi_k3(batch: int, touched: int) -> None:
    """E (1 - (1 - k/E)^B) for 16 of 896; a Monte Carlo agrees to 0.3 %."""
    assert round(896 * Routing(896, 16).touched(batch)) == touched
    assert 8 * Routing(896, 16, shared_by=8).tokens(1) == 64


@pytest.mark.parametrize(("kv", "tokens"), [("bf16", 32_507), ("fp8", 65_014)])
def test_state_traffic_of_kimi_k3_is_the_cache_read_of_so_many_tokens(kv: str, tokens: int) -> None:
    """32.5k tokens in bf16, 65k in fp8: 2 x 449,372,160 B over 27,648 or 13,824 B a token."""
    mixers = list(resolve("kimi-k3").mixers())
    assert state_traffic_bytes(mixers, Dtypes(kv=kv)) == 2 * 449_372_160
    assert reads_equal_state_tokens(mixers, Dtypes(kv=kv)) == tokens


def test_models_without_a_state_or_without_a_cache_have_no_crossing() -> None:
    assert reads_equal_state_tokens(resolve("llama-3.1-8b").mixers(), Dtypes()) is None
    assert reads_equal_state_tokens(resolve("falcon-mamba-7b").mixers(), Dtypes()) is None


@pytest.mark.parametrize(("tokens", "gb_per_s"), [(8_000, 1.29), (32_000, 0.52), (105_000, 0.33), (1_000_000, 0.26)])
def test_bandwidth_from_which_a_reload_beats_replay(tokens: int, gb_per_s: float) -> None:
    """R (k + S/L) of Kimi K3 with an fp8 cache at 18,500 tokens a second, as the fact sheet's note has it."""
    held = Holding(resolve("kimi-k3").mixers(), Dtypes(kv="fp8")).bytes(tokens)
    seconds = tokens / 18_500
    needed = reload_bytes_per_s(held, Interval(seconds, seconds, seconds))
    assert needed.value / 1e9 == pytest.approx(gb_per_s, abs=0.006)


def test_a_step_reads_and_writes_what_the_arithmetic_says() -> None:
    """Kimi Linear, 4 sequences of 1M tokens: 7 x 1,152 B a token and sequence; states read and written."""
    terms = named(clock("kimi-linear", "h200:1").decode_terms(4, 1 << 20))
    assert terms["mla cache"].bytes == pytest.approx(4 * (1 << 20) * 8_064, rel=0.001)
    assert terms["mla cache"].calls == 7
    assert terms["kda state"].bytes == pytest.approx(4 * 20 * 2 * 32 * 128 * 128 * 4, rel=0.02)
    assert terms["kda state"].calls == 20
    touched = 256 * (1 - (1 - 8 / 256) ** 4)
    assert terms["routed experts"].bytes == pytest.approx(26 * touched * 3 * 2304 * 1024 * 2, rel=0.001)


def test_products_of_one_token_are_the_ledger_of_flops() -> None:
    for name in ("kimi-linear", "qwen3-next", "qwen3-8b", "kimi-k3"):
        terms = clock(name, "h200:1" if name != "kimi-k3" else "h200:8").decode_terms(1, 4096)
        ranks = 8 if name == "kimi-k3" else 1
        linear = sum(term.flops for term in terms if " " not in term.name or term.name.split()[0] not in
                     ("kda", "gdn", "mla", "full", "other", "sums"))  # fmt: skip
        whole = step_flops(resolve(name), 4096).linear
        assert linear * ranks >= whole * 0.99
        if ranks == 1:
            assert linear == pytest.approx(whole, rel=0.01)


def test_every_expert_is_read_when_the_batch_is_large() -> None:
    terms = named(clock("kimi-linear", "h200:1").decode_terms(4096, 4096))
    assert terms["routed experts"].bytes == 26 * 256 * 3 * 2304 * 1024 * 2


def latent_bytes(tokens: int, heads: int) -> int:
    """Eight sequences through Kimi Linear's seven MLA layers: the cache, and the query and output of each head."""
    return 8 * 7 * (tokens * 576 + heads * (576 + 512)) * 2


def test_ranks_share_heads_experts_and_contexts() -> None:
    one, eight = clock("kimi-linear", "h200:1"), clock("kimi-linear", "h200:8")
    both = named(one.decode_terms(8, 131_072)), named(eight.decode_terms(8, 131_072))
    assert both[1]["kda state"].bytes * 8 == both[0]["kda state"].bytes
    assert [one["mla cache"].bytes for one in both] == [latent_bytes(131_072, 32), latent_bytes(131_072, 4)]
    assert both[1]["routed experts"].bytes == both[0]["routed experts"].bytes // 8
    assert both[1]["sums over tp"].calls == 2 * 27
    shared = named(clock("kimi-linear", "h200:8", dcp=8).decode_terms(8, 131_072))
    assert shared["mla cache"].bytes == latent_bytes(131_072 // 8, 32)
    assert shared["kda state"].bytes == both[1]["kda state"].bytes
    assert {"queries over dcp", "outputs over dcp"} <= shared.keys()


MODELS = [("kimi-linear", "h200:1"), ("qwen3-next", "h200:2"), ("qwen3-8b", "h200:1"), ("deepseek-v3.2", "h200:8"),
          ("nemotron-h-8b", "h200:1"), ("kimi-k3", "h200:16")]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    which=st.sampled_from(MODELS), batch=st.integers(1, 600), more=st.integers(0, 600), tokens=st.integers(1, 1 << 20),
    further=st.integers(0, 1 << 20),
)  # fmt: skip
def test_more_sequences_or_longer_ones_never_make_a_shorter_step(
    which: tuple[str, str], batch: int, more: int, tokens: int, further: int
) -> None:
    one = clock(*which)
    step = one.decode_step_s(batch, tokens)
    assert 0 < step.low <= step.value <= step.high
    for other in (one.decode_step_s(batch + more, tokens), one.decode_step_s(batch, tokens + further)):
        assert other.value >= step.value * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(
    which=st.sampled_from(MODELS), tokens=st.integers(1, 40_000),
    more=st.integers(0, 40_000), start=st.integers(0, 200_000),
)  # fmt: skip
def test_a_longer_prefill_never_takes_less_time(which: tuple[str, str], tokens: int, more: int, start: int) -> None:
    one = clock(*which)
    first = one.prefill_s(tokens, start)
    assert 0 < first.low <= first.value <= first.high
    assert one.prefill_s(tokens + more, start).value >= first.value * (1 - 1e-9)
    assert one.prefill_s(0, start).value == 0


def test_kinds_without_own_kernels_say_whose_they_borrow_and_are_wider() -> None:
    gdn = named(clock("qwen3-next", "h200:2").decode_terms(64, 32_768))
    kda = named(clock("kimi-linear", "h200:1").decode_terms(64, 32_768))
    assert "stands in" in gdn["gdn state"].source
    assert "stands in" in gdn["full cache"].source
    assert "stands in" not in kda["kda state"].source
    own, borrowed = kda["kda state"].seconds, gdn["gdn state"].seconds
    assert (own.how, borrowed.how) == ("measured", "fitted")
    assert borrowed.high / borrowed.value > own.high / own.value


def test_another_card_of_the_architecture_is_scaled_and_another_architecture_bounded() -> None:
    measured, scaled = clock("qwen3-8b", "h200:1"), clock("qwen3-8b", "h100:1")
    assert (measured.basis, scaled.basis, clock("qwen3-8b", "b300:1").basis) == ("measured", "scaled", "bounds")
    here, there = measured.decode_step_s(64, 32_768), scaled.decode_step_s(64, 32_768)
    assert there.value / here.value == pytest.approx(4.8 / 3.35, rel=0.1)
    assert (there.high - there.low) / there.value > (here.high - here.low) / here.value
    bounded = clock("qwen3-8b", "b300:1").decode_step_s(64, 32_768)
    assert bounded.high <= here.high
    assert bounded.low < here.low
    assert clock("kimi-linear", "h200:8", nodes=2, tp=16).basis == "bounds"


def test_kernels_without_samples_go_by_the_datasheet_and_the_datasheet_alone_gives_bounds() -> None:
    measured = clock("kimi-linear", "h200:1").decode_step_s(32, 131_072)
    known = read_calibration("h200")
    fewer = replace(known, names=("fewer",), samples=[one for one in known.samples if one["kernel"] != "mla_decode"])
    partly = make_clock(resolve("kimi-linear"), make_deployment(gpu="h200:1"), find_gpu("h200"), fewer)
    terms = named(partly.decode_terms(32, 131_072))
    assert "no `mla_decode` samples: the datasheet of h200" in terms["mla cache"].source
    assert "kvplan kda_decode" in terms["kda state"].source
    alone = clock("kimi-linear", "h200:1", calibration="datasheet")
    assert (partly.basis, alone.basis) == ("measured", "bounds")
    for other in (partly.decode_step_s(32, 131_072), alone.decode_step_s(32, 131_072)):
        assert other.low < measured.value < other.high
        assert other.high / other.low > measured.high / measured.low


def test_a_snapshot_crosses_the_link_as_it_was_measured() -> None:
    """56,171,520 B in 1.055 ms: 53 GB/s, as on other machines with PCIe 5 (53.7 to 54.9)."""
    seconds = from_host_s(clock("kimi-k3", "h200:8").meter, 56_171_520)
    assert 56_171_520 / seconds.value / 1e9 == pytest.approx(53.7, rel=0.03)


def test_what_one_table_gets_wrong_it_gets_wrong_for_both() -> None:
    def term(name: str, value: float, share: float) -> Term:
        return Term(name, 1, 0, 0, Interval(value, value * (1 - share), value * (1 + share), "measured"), "")

    same = times_faster([term("a", 1, 0.2)], [term("a", 3, 0.2)])
    assert (same.low, same.value, same.high) == pytest.approx((2.911, 3, 3.091), abs=1e-3)
    apart = times_faster([term("a", 1, 0.2)], [term("b", 3, 0.2)])
    assert (apart.low, apart.high) == pytest.approx((3 * 0.8 / 1.2, 3 * 1.2 / 0.8), rel=0.031)
    mixed = times_faster([term("a", 1, 0.2), term("c", 1, 0)], [term("a", 3, 0.2), term("c", 1, 0)])
    assert (mixed.low, mixed.value, mixed.high) == pytest.approx((3.4 / 1.8, 2, 4.6 / 2.2), rel=0.022)


@pytest.mark.parametrize(
    ("model", "flags", "said"),
    [
        ("kimi-linear", {"num_speculative_tokens": 3}, "--num-speculative-tokens"),
        ("kimi-linear", {"enforce_eager": True}, "--enforce-eager"),
        ("kimi-linear", {"weights": "90GB"}, "--weights"),
        ("kimi-linear", {"calibration": "h300"}, "no calibration called 'h300'"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(model: str, flags: dict[str, Any], said: str) -> None:
    with pytest.raises(KvplanError) as refused:
        make_clock(resolve(model), make_deployment(gpu="h200:1", **flags), find_gpu("h200")).decode_step_s(1, 4096)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_prefill_that_nobody_counts_is_refused_by_its_kind() -> None:
    with pytest.raises(ConfigError, match="prefill time of gqa_index layers is not modelled"):
        clock("minimax-m3", "h200:8").prefill_s(4096, 0)


def test_layers_that_read_another_layers_cache_prefill_as_that_layer_does() -> None:
    shared = clock("gemma-3n-e2b", "h200:1").prefill_terms(8192)
    assert {"swa attention", "full attention"} <= named(shared).keys()
    local = named(clock("llama-4-scout", "h200:8").prefill_terms(65_536))
    assert local["swa attention"].flops < local["full attention"].flops


def test_calibrations_are_found_by_gpu() -> None:
    assert own_calibration(find_gpu("h200")) == "h200"
    assert own_calibration(find_gpu("b300")) is None
    assert nearest_calibration(find_gpu("h100")) == "h200"
    assert "h200-x2" in read_calibration("h200").names
    assert "h200-held-out" not in read_calibration("h200").names
    with pytest.raises(ProfileError):
        read_calibration("h200,nothing")
    with pytest.raises(UsageError):
        read_calibration(" , ")


def test_capacity_under_a_limit_holds_it_at_the_slow_end() -> None:
    """n fits the limit and n + 1 does not; the fast end of the times gives the upper count."""
    model, flags = resolve("kimi-linear"), {"gpu": "h200:1", "context": "32K"}
    free = evaluate(model, make_deployment(**flags), find_gpu("h200"), [32_768]).capacity[0]
    held = evaluate(model, make_deployment(**flags, max_tpot_ms=25.0), find_gpu("h200"), [32_768]).capacity[0]
    one = clock("kimi-linear", "h200:1")
    assert held.binds == "tpot"
    assert held.low <= held.sequences < free.sequences <= free.high
    assert held.sequences <= held.high <= free.high
    assert one.decode_step_s(held.sequences, 32_768).high <= 0.025 < one.decode_step_s(held.sequences + 1, 32_768).high
    loose = evaluate(model, make_deployment(**flags, max_tpot_ms=1e5), find_gpu("h200"), [32_768]).capacity[0]
    assert loose == free


def test_a_first_token_that_comes_too_late_lets_nothing_in() -> None:
    made = plan("kimi-linear", gpu="h200:1", context="4K,1M", max_ttft_s=10.0)
    short, long = made.capacity
    assert short.sequences > 0
    assert (long.sequences, long.high, long.binds) == (0, 0, "ttft")
    assert made.verdict is not None
    assert made.verdict.fits == "no"
    assert "ttft binds" in made.verdict.reason


def test_bounds_decide_nothing() -> None:
    with pytest.raises(UsageError, match="only bounds"):
        plan("kimi-k3", gpu="b300:8", context="8K", max_tpot_ms=50.0)
    with pytest.raises(UsageError, match="needs --gpu"):
        plan("kimi-k3", context="8K", calibration="h200")


def test_the_plan_holds_times_as_intervals() -> None:
    part = plan("kimi-linear", gpu="h200:1", context="128K", calibration="h200", snapshot_every="8K").latency
    assert part is not None
    assert part.basis == "measured"
    assert part.decode[0].sequences == 1
    for row in part.decode:
        assert row.tpot_ms.value is not None
        assert row.tpot_ms.low < row.tpot_ms.value < row.tpot_ms.high
        assert row.tokens_per_s_each.value == pytest.approx(1e3 / row.tpot_ms.value)
        assert row.tokens_per_s_per_gpu.value == pytest.approx(row.sequences * 1e3 / row.tpot_ms.value)
    first = part.first_token[0]
    assert (first.replay_tokens, first.new_tokens) == (4096, 1024)
    assert first.reloaded_s is not None
    times = (first.resumed_s.value, first.reloaded_s.value, first.cold_s.value)
    assert None not in times
    assert list(times) == sorted(times)
    assert part.crossings.reads_equal_state_tokens == 2 * 43_417_600 // 8_064 + 1


def test_what_cannot_be_held_has_no_times() -> None:
    """1,454 GiB of weights on one card; in a pool of 2 GiB one length fits and another, of 7.9 GiB, does not."""
    part = plan("kimi-k3", gpu="h200", calibration="h200").latency
    assert part is not None
    assert (part.decode, part.first_token, part.decode_terms, part.prefill_terms) == ([], [], [], [])
    words = ("estimate", "kimi-k3", "--gpu", "h200", "--calibration", "h200")
    done = here(*words, "--explain")
    assert (done.returncode, done.stderr) == (1, "")
    assert "TIME       none: not one sequence can be held" in done.stdout
    assert not [word for word in ("TIME PER", "TIME TO", "TERMS", "RELOAD") if word in done.stdout]
    some = plan("kimi-linear", gpu="h200", calibration="h200", kv_cache_memory="2GiB", context="8K,1M")
    held = [row.context_tokens for row in some.capacity if row.high]
    assert held == [8192]
    assert some.latency is not None
    assert {row.context_tokens for row in (*some.latency.decode, *some.latency.first_token)} == {8192}
    assert some.latency.crossings.reload_context_tokens == 8192


def test_a_limit_on_time_alone_leaves_the_time_that_misses_it() -> None:
    late = plan("kimi-linear", gpu="h200", context="8K", calibration="h200", max_tpot_ms=0.1)
    assert (late.capacity[0].sequences, late.capacity[0].binds) == (0, "tpot")
    assert late.latency is not None and late.latency.decode[0].tpot_ms.low > 0.1


def test_bounds_have_no_middle() -> None:
    part = plan("kimi-k3", gpu="b300:8", context="8K", calibration="h200").latency
    assert part is not None
    assert part.basis == "bounds"
    one = part.decode[0].tpot_ms
    assert (one.value, one.how) == (None, "bounds")
    assert one.low < one.high


def test_without_a_calibration_nothing_of_time_is_loaded_or_said() -> None:
    code = (
        "import sys; from kvplan.plan import plan; made = plan('kimi-linear', gpu='h200:1');"
        "print(made.latency, any(name.startswith('kvplan.latency') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["None", "False"]


def test_the_screen_shows_ranges_in_eighty_columns() -> None:
    done = here("estimate", "kimi-linear", "--gpu", "h200:1", "--context", "128K", "--calibration", "h200")
    assert done.returncode == 0
    assert "TIME PER OUTPUT TOKEN" in done.stdout
    assert not [line for line in done.stdout.splitlines() if len(line) > 80]
    plainly = here("estimate", "kimi-linear", "--gpu", "h200:1", "--context", "128K").stdout
    assert "--calibration h200 tells it" in " ".join(plainly.split())


def test_check_and_saving_as_documents() -> None:
    checked = json.loads(here("calibrations", "check", "h200", "--json").stdout)
    assert checked["schema"] == "kvplan.calibration_check/1"
    assert checked["holds"] is True
    assert len(checked["published"]) == 24
    assert sum(not point["holds"] for point in checked["published"]) == 1
    saved = json.loads(here("claims", "saving", "kimi-k3", "--json").stdout)
    rows = {row["context_tokens"]: row for row in saved["models"][0]["rows"]}
    assert rows[4096]["saving"] < 0 < rows[8192]["saving"]
    assert rows[1 << 20]["saving"] == pytest.approx(0.738, abs=0.001)
    alone = [row["faster_alone"]["value"] for row in rows.values()]
    assert alone == sorted(alone)
    assert alone[1] < 1.15
