"""The one page, and its verdict by workload: bytes counted by hand against a twin with full attention."""

import json
from typing import Any

import pytest

from kvplan.agents.idle import read_replica
from kvplan.agents.page import AgentsPage, PageOptions, agents_page
from kvplan.agents.page_screen import page_lines
from kvplan.agents.residency_report import ResidencyOptions, residency_report
from kvplan.agents.saving import Saving, saving_of
from kvplan.agents.usage import read_usage
from kvplan.errors import UsageError

TOKEN, STATE, MLA_LAYERS, LAYERS, LATENT = 27_648, 449_372_160, 24, 93, 1_152
"""Kimi K3 in bf16: bytes per token, fp32 state and tails of a sequence, and a latent row of one MLA layer."""
K3 = ("kimi-k3", "--gpu", "B300:8", "--kv-cache-dtype", "fp8", "--engine-version", "0.28")


def saving(workload: str, **flags: Any) -> Saving:
    replica = read_replica("kimi-k3", gpu="B300:8", **flags)
    found = saving_of(replica, read_usage(workload).by_request)
    assert found is not None
    return found


def test_chat_stores_more_under_k3_than_under_its_twin() -> None:
    """By hand, bf16 cache: the median request of 1,412 tokens (1,020 of prompt), one of 8 ranks has its own latents."""
    found = saving("chat", kv_cache_dtype="bf16")
    median = found.whole.median
    assert (found.median_tokens, found.saves) == (1_412, False)
    assert median.bytes == STATE + 1_412 * TOKEN == 488_411_136
    assert median.twin_bytes == LAYERS * LATENT * 1_412 == 151_276_032
    assert median.more_bytes == 337_135_104 and found.whole.break_even_tokens == 5_654
    assert found.rank is not None
    assert found.rank.median.bytes == STATE // 8 + 1_412 * TOKEN
    assert found.rank.median.twin_bytes == 151_276_032
    assert found.whole.below > 0.99


def test_chat_under_an_fp8_cache_stores_more_on_a_rank_too() -> None:
    found = saving("chat", kv_cache_dtype="fp8")
    assert found.rank is not None
    assert (found.whole.break_even_tokens, found.rank.break_even_tokens) == (11_307, 1_414)
    assert found.rank.median.more_bytes == STATE // 8 - (LAYERS - MLA_LAYERS) * LATENT // 2 * 1_412 == 52_992


def test_coding_agents_save_about_seventy_per_cent() -> None:
    found = saving("coding-agent", kv_cache_dtype="bf16")
    assert found.saves and found.whole.below < 0.01
    assert found.whole.mean.saving == pytest.approx(0.70, abs=0.015)
    assert found.whole.median.saving == pytest.approx(1 - (STATE + 105_149 * TOKEN) / (LAYERS * LATENT * 105_149))
    assert found.rank is not None and found.rank.mean.saving > found.whole.mean.saving


def test_a_model_of_full_attention_has_no_twin() -> None:
    assert saving_of(read_replica("llama-3.1-8b", gpu="H100"), read_usage("chat").by_request) is None


@pytest.fixture(scope="module")
def page() -> AgentsPage:
    flags = {"gpu": "B300:8", "kv_cache_dtype": "fp8", "engine_version": "0.28"}
    return agents_page("kimi-k3", "coding-agent", flags=flags, options=PageOptions(knee=False), notes=[])


def test_the_page_says_what_its_parts_say(page: AgentsPage, answer: Any) -> None:
    sessions = json.loads(answer("agents", "sessions", *K3, "--workload", "coding-agent", "--json")[1])
    found = json.loads(answer("agents", *K3, "--workload", "coding-agent", "--no-knee", "--json")[1])
    assert found["schema"] == "kvplan.agents/1"
    assert found["sessions"]["at_risk"] == sessions["sessions"]["at_risk"]
    assert found["stated"]["risk"] == 0.01 and found["stated"]["sessions"] == page.stated.sessions
    tiers = json.loads(answer("agents", "tiers", *K3, "--workload", "coding-agent", "--json")[1])
    assert found["idle"]["tiers"] == tiers["tiers"] and found["idle"]["tier"] == "dram"
    lost = json.loads(answer("agents", "failover", *K3, "--workload", "coding-agent", "--json")[1])
    assert found["failover"]["losses"] == lost["losses"]
    assert found["saving"]["saves"] and found["saving"]["model"]["median"]["saving"] > 0.6


def test_the_page_on_a_screen(answer: Any) -> None:
    code, shown, _ = answer("agents", *K3, "--workload", "coding-agent", "--no-knee")
    lines = shown.splitlines()
    assert code == 0 and all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("kimi-k3 on 8x B300, tp8, vllm 0.28.0:") and "at 1 % risk" in lines[0]
    labels = [line.split()[0] for line in lines if line[:1].isupper()]
    assert labels[:9] == ["POOL", "RUNNING", "KNEE", "SNAPSHOTS", "IDLE", "NO", "GPU/NODE", "SPARE", "BYTES"]


def test_the_knee_is_that_of_residency(tmp_path: Any) -> None:
    """Six sessions that grow by 2,000 tokens a turn, on a pool of 32,768 tokens."""
    head = "session,input_tokens,output_tokens,api_s,think_s,lcp_prev"
    rows = [f"s{one},{2_000 * turn},50,60,240,{2_000 * (turn - 1)}" for one in range(6) for turn in range(1, 9)]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join([head, *rows]))
    flags = {"gpu": "H100", "kv_cache_memory": "4GiB", "max_model_len": 20_000}
    found = agents_page("llama-3.1-8b", str(trace), flags=flags, options=PageOptions(), notes=[])
    alone = residency_report("llama-3.1-8b", str(trace), flags=flags, options=ResidencyOptions(), notes=[])
    assert found.knee == alone.knee and found.knee is not None and found.knee.sessions >= 1
    assert found.snapshots is None and "KNEE       " in "\n".join(page_lines(found))


def test_where_no_knee_can_be_found(page: AgentsPage) -> None:
    assert page.knee is None and "--no-knee" in page.no_knee
    chat = agents_page("kimi-k3", "chat", flags={"gpu": "B300:8"}, options=PageOptions(), notes=[])
    assert chat.knee is None and "no sessions" in chat.no_knee
    off = {"gpu": "B300:8", "enable_prefix_caching": False}
    found = agents_page("kimi-k3", "coding-agent", flags=off, options=PageOptions(), notes=[])
    assert found.best is None and not found.loss_tiers
    assert "caching is off" in found.no_knee and "CACHING" in "\n".join(page_lines(found))


def test_snapshot_flags_follow_the_engine_and_its_release(page: AgentsPage) -> None:
    """0.30 made resume points the default and has the flag; before, every block boundary is kept."""
    assert page.snapshots is not None and "--enable-prefix-caching" in page.snapshots.flags
    assert not any("retention" in flag for flag in page.snapshots.flags)
    new = agents_page("kimi-k3", "chat", flags={"gpu": "B300:8"}, options=PageOptions(), notes=[])
    assert new.snapshots is not None and "--prefix-cache-retention-interval 0" in new.snapshots.flags


def test_a_chat_is_told_that_it_saves_nothing(answer: Any) -> None:
    code, shown, _ = answer("agents", *K3, "--workload", "chat")
    text = " ".join(shown.split())
    assert code == 0 and "BYTES saves nothing: the median request of 1,412 tokens stores 375 MiB more" in text
    assert "one of 8 ranks stores 0.1% more" in text


def test_the_engines_command_and_flags_before_it(answer: Any) -> None:
    words = ("--gpu", "B300:8", "--workload", "chat", "--json")
    served = answer("agents", *words, "--", "vllm", "serve", "moonshotai/Kimi-K3", "-tp", "8")[1]
    typed = answer("agents", "moonshotai/Kimi-K3", *words, "--tp", "8")[1]
    assert json.loads(served)["sessions"] == json.loads(typed)["sessions"]


def test_what_nobody_measured_is_said_to_be_unknown() -> None:
    found = agents_page(
        "kimi-linear", "coding-agent", flags={"gpu": "H200:2"}, options=PageOptions(knee=False), notes=[]
    )
    text = "\n".join(page_lines(found))
    assert found.recompute_s is None and "UNKNOWN" in text and "NO TIER" not in text
    assert all(row.choice is None and row.needed_bytes_per_s is None for row in found.tiers)
    stated = PageOptions(prefill_tokens_per_s=10_000, knee=False)
    known = agents_page("kimi-linear", "coding-agent", flags={"gpu": "H200:2"}, options=stated, notes=[])
    assert "UNKNOWN" not in "\n".join(page_lines(known)) and known.best is not None


def test_a_calibration_is_the_clock() -> None:
    flags = {"gpu": "H200:2", "calibration": "h200"}
    found = agents_page("kimi-linear", "coding-agent", flags=flags, options=PageOptions(knee=False), notes=[])
    assert found.recompute_s is not None and found.recompute_s.low < found.recompute_s.high
    assert "calibration" in {one.name for one in found.assumptions}


def test_nothing_fits_and_the_page_says_so(answer: Any) -> None:
    code, shown, _ = answer("agents", "kimi-k3", "--gpu", "B300:1", "--workload", "chat")
    assert code == 1 and ": 0 chat sessions" in shown and "IDLE" not in shown


def test_a_word_that_is_nearly_a_command(answer: Any) -> None:
    with pytest.raises(UsageError, match="did you mean `kvplan agents sessions kimi-k3`"):
        answer("agents", "sesions", "kimi-k3", "--workload", "chat")
    for words in ((), ("--help",), ("kimi-k3", "--help")):
        code, shown, _ = answer("agents", *words) if words else (0, "Usage", "")
        assert code == 0 and "Usage" in shown
