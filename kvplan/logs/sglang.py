"""SGLang's boot log, 0.4 to 0.5.23.

The lines come from srt/mem_cache/memory_pool.py and kv_cache_configurator.py, srt/model_executor/model_runner.py and
srt/managers/scheduler.py. Its "GB" are GiB.
"""

import re

from kvplan.logs.figures import Facts, Unit
from kvplan.logs.lines import Line
from kvplan.logs.reprs import read_pairs

ENGINE = "sglang"
HINTS = (
    "Cache is allocated", "SWAKVPool mem usage", "KV cache dtype", "Post-capture KV", "server_args=", "Load weight",
    "Memory pool end",
    "max_total_num_tokens=", "state slots per", "sglang==", "sglang version", "sglang[",
)  # fmt: skip
"""Words of the lines that matter; a line without any of them is not looked at."""
_N, _F = r"(\d+(?:,\d{3})*)", r"(\d+(?:\.\d+)?)"
_FIGURES: tuple[tuple[str, Unit, re.Pattern[str]], ...] = (
    ("memory_before", "GiB", re.compile(rf"Load weight begin\. avail mem={_F} GB")),
    ("memory_loaded", "GiB", re.compile(rf"Load weight end\..*avail mem={_F} GB")),
    ("weights", "GiB", re.compile(rf"Load weight end\..*mem usage={_F} GB")),
    ("state_slots", "slots", re.compile(rf"max_mamba_cache_size: {_N},")),
    ("conv_state", "GiB", re.compile(rf"\bconv_state size: {_F} ?GB")),
    ("ssm_state", "GiB", re.compile(rf"\bssm_state size: {_F} ?GB")),
    ("draft_ssm_state", "GiB", re.compile(rf"intermediate_ssm_state_cache size: {_F} ?GB")),
    ("draft_conv_state", "GiB", re.compile(rf"intermediate_conv_window_cache size: {_F} ?GB")),
    ("memory_after_pools", "GiB", re.compile(rf"Memory pool end\. avail mem={_F} GB")),
    ("kv_cache_tokens", "tokens", re.compile(rf"max_total_num_tokens={_N},")),
    ("max_running_requests", "requests", re.compile(rf"max_running_requests={_N},")),
    ("slots_per_request", "slots", re.compile(rf"max_mamba_cache_size=\d+, {_N} state slots per")),
    ("memory_free", "GiB", re.compile(rf"available_gpu_mem={_F} GB")),
)  # fmt: skip
_POOL = re.compile(
    rf"([\w ]*KV Cache) is allocated\.(?: dtype: ([\w.]+),)?(?: #tokens: {_N},)? "
    rf"(?:K size: {_F} GB, V size: {_F} GB|KV size: {_F} GB)"
)
_LATE_POOL = re.compile(
    rf"Post-capture KV sizing: (draft )?KV cache allocated\. dtype: ([\w.]+), #tokens: {_N}, KV size: {_F} GB"
)
"""From 0.5.16 the pool may be sized after CUDA graphs; what stood before is then an upper bound of addresses."""
_WINDOWS = re.compile(rf"SWAKVPool mem usage: {_F} GB, swa size: {_N}, full size: {_N}")
"""Models with windows: one line for both pools, in place of the line of each."""
_ARGS = re.compile(r"server_args=(?:ServerArgs)?[({](.*)")
_KV_DTYPE = re.compile(r"Using KV cache dtype: torch\.(\w+)")
_LENGTH = re.compile(r"max_total_num_tokens=\d+.*\bcontext_len=(\d+)")
_VERSION = re.compile(r"sglang(?:\[\w+\])?(?:==| version:? ?|: +)v?(\d[\w.+-]*)")


def read(line: Line, facts: Facts) -> None:
    """Take from one line what it holds."""
    text = line.text
    if match := _ARGS.search(text):
        facts.start()
        given = read_pairs(match[1])
        facts.told |= given.keys()
        facts.values |= {key.replace("_", "-"): value for key, value in given.items()}
    if match := _VERSION.search(text):
        facts.version = match[1]
    if match := _KV_DTYPE.search(text):
        facts.fill("kv-cache-dtype", match[1])
    if match := _LENGTH.search(text):
        facts.values["context-length"] = match[1]
    if match := _POOL.search(text):
        sizes = [("k_pool", match[4]), ("v_pool", match[5]), ("kv_pool", match[6])]
        _pool(line, facts, line.who(match.start()), match[3], match[2], sizes, draft="raft" in match[1])
    if match := _WINDOWS.search(text):
        who = line.who(match.start())
        facts.add("both_pools", match[1], "GiB", line.number, who, 2)
        facts.add("swa_pool_tokens", match[2], "tokens", line.number, who)
        facts.add("pool_tokens", match[3], "tokens", line.number, who)
    if match := _LATE_POOL.search(text):
        who = line.who(match.start())
        facts.add("late_pool_tokens", match[3], "tokens", line.number, who)
        _pool(line, facts, who, match[3], match[2], [("kv_pool", match[4])], draft=match[1] is not None)
    for what, unit, pattern in _FIGURES:
        if match := pattern.search(text):
            facts.add(what, match[1], unit, line.number, line.who(match.start()), 2 if unit == "GiB" else None)


def _pool(
    line: Line,
    facts: Facts,
    who: str,
    tokens: str | None,
    dtype: str | None,
    sizes: list[tuple[str, str | None]],
    *,
    draft: bool,
) -> None:
    """One KV pool. The second of another size that a rank allocates is the draft's; the same again is a peer's."""
    before = [one for one in facts.figures if one.who == who and one.what in ("k_pool", "v_pool", "kv_pool")]
    if before and {(one.what, one.text) for one in before} == {(what, text) for what, text in sizes if text}:
        return
    name = "draft_" if before or draft else ""
    if tokens:
        facts.add(f"{name}pool_tokens", tokens, "tokens", line.number, who)
    for what, text in sizes:
        if text:
            facts.add(name + what, text, "GiB", line.number, who, 2)
    if dtype and not name:
        facts.fill("kv-cache-dtype", dtype.removeprefix("torch."))
