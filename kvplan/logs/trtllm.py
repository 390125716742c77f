"""TensorRT-LLM's boot log. The lines come from cpp/tensorrt_llm/batch_manager and _torch/pyexecutor/_util.py."""

import re

from kvplan.logs.figures import Facts, Unit
from kvplan.logs.lines import Line
from kvplan.logs.reprs import read_pairs

ENGINE = "trtllm"
HINTS = (
    "paged KV cache", "paged kv cache", "k/v cache", "tokens per block", "primary blocks", "primary pool",
    "TRTGptModel", "LLM Args", "model weights (inside torch)", "LLM version",
)  # fmt: skip
"""Words of the lines that matter; a line without any of them is not looked at."""
_N, _F = r"(\d+(?:,\d{3})*)", r"(\d+(?:\.\d+)?)"
_FIGURES: tuple[tuple[str, Unit, re.Pattern[str]], ...] = (
    ("pool", "GiB", re.compile(rf"Allocated {_F} GiB for max tokens in paged KV cache")),
    ("pool", "bytes", re.compile(rf"Allocate {_N} bytes for k/v cache")),
    ("kv_cache_tokens", "tokens", re.compile(rf"for max tokens in paged KV cache \({_N}\)")),
    ("kv_cache_tokens", "tokens", re.compile(rf"Using {_N} tokens in paged KV cache")),
    ("block_tokens", "tokens", re.compile(rf"Number of tokens per block: {_N}")),
    ("block_tokens", "tokens", re.compile(rf"tokens per block={_N}")),
    ("num_blocks", "blocks", re.compile(rf"primary blocks={_N}")),
    ("num_blocks", "blocks", re.compile(rf"blocks in KV cache primary pool: {_N}")),
    ("gpu_memory", "GiB", re.compile(rf"max tokens in paged kv cache: total: {_F} GiB")),
    ("memory_loaded", "GiB", re.compile(rf"max tokens in paged kv cache:.* available: {_F} GiB")),
    ("weights", "GiB", re.compile(rf"model weights \(inside torch\)[^:]*: {_F} GiB")),
)  # fmt: skip
_MODEL = re.compile(r"TRTGptModel (maxBatchSize|maxSequenceLen|maxNumTokens): (\d+)")
_FLAGS = {"maxBatchSize": "max-batch-size", "maxSequenceLen": "max-seq-len", "maxNumTokens": "max-num-tokens"}
_ARGS = re.compile(r"LLM Args:? *(?:\w*LlmArgs\()?(.*)")
_VERSION = re.compile(r"TensorRT[- ]LLM version: ([\w.+-]+)")


def read(line: Line, facts: Facts) -> None:
    """Take from one line what it holds."""
    text = line.text
    if match := _VERSION.search(text):
        facts.start()
        facts.version = match[1]
    if match := _MODEL.search(text):
        facts.values.setdefault(_FLAGS[match[1]], match[2])
    if match := _ARGS.search(text):
        given = {key.replace("_", "-"): value for key, value in read_pairs(match[1]).items()}
        facts.values |= {key: value for key, value in given.items() if value is not None}
    for what, unit, pattern in _FIGURES:
        if match := pattern.search(text):
            decimals = 2 if unit == "GiB" else None
            facts.add(what, match[1], unit, line.number, line.who(match.start()), decimals)
