"""vLLM's boot log, V1 engine, 0.8 to 0.33.

The lines come from v1/worker/gpu_worker.py, v1/worker/gpu_model_runner.py, v1/core/kv_cache_utils.py,
v1/core/kv_cache_planning.py, platforms/interface.py and v1/engine/core.py.
"""

import re
from typing import Any

from kvplan.logs.figures import Facts, Unit
from kvplan.logs.lines import Line
from kvplan.logs.reprs import read_dict, read_pairs

ENGINE = "vllm"
RESOLVED = "quantization, resolved"
"""Told where the engine's own config line says what the checkpoint's weights are, None for plain ones."""
HINTS = (
    "KV cache size:", "Available KV cache memory", "memory for KV", "reserved for KV", "KV cache is needed",
    "may waste at most", "GPU blocks:", "cuda blocks:", "num_gpu_blocks", "attention block size", "mamba page size",
    "amba cache mode", "Mamba cache blocks", "mamba_ssm_cache_dtype to", "Model loading took", "odel weights take",
    "total_gpu_memory (", "Free memory on device",
    "LLM engine (", "default args", "args: Namespace", "vLLM API server version", "vLLM server version",
    "CUDA graph memory", "Graph capturing", "█", "hunked prefill", "to store kv cache", "Maximum concurrency",
    "Using max model len", "maximum model length is", "model's max seq len", "Starting to load model",
)  # fmt: skip
"""Words of the lines that matter; a line without any of them is not looked at."""
_N, _F = r"(\d+(?:,\d{3})*)", r"(\d+(?:\.\d+)?)"

_FIGURES: tuple[tuple[str, Unit, re.Pattern[str]], ...] = (
    ("weights", "GiB", re.compile(rf"Model loading took {_F} ?GiB")),
    ("weights", "GiB", re.compile(rf"model weights take {_F} ?GiB", re.IGNORECASE)),
    ("activation", "GiB", re.compile(rf"activation peak memory takes {_F} ?GiB")),
    ("non_torch", "GiB", re.compile(rf"non_torch_memory takes {_F} ?GiB")),
    ("gpu_memory", "GiB", re.compile(rf"total_gpu_memory \({_F} ?GiB\)")),
    ("gpu_memory", "GiB", re.compile(rf"Free memory on device \([\d.]+/{_F} GiB\) on startup")),
    ("activation", "GiB", re.compile(rf"{_F} GiB for peak activation")),
    ("non_torch", "GiB", re.compile(rf"{_F} GiB for non-torch memory")),
    ("pool_bytes", "bytes", re.compile(rf"Current kv cache memory in use is {_N} bytes")),
    ("pool", "GiB", re.compile(rf"reserved for KV Cache is {_F} ?GiB")),
    ("pool", "GiB", re.compile(rf"Available KV cache memory: {_F} ?GiB")),
    ("pool", "GiB", re.compile(rf"Reserved {_F} ?GiB memory for KV Cache", re.IGNORECASE)),
    ("num_blocks", "blocks", re.compile(rf"# (?:GPU|cuda) blocks: {_N}")),
    ("num_blocks", "blocks", re.compile(rf"num_gpu_blocks is: {_N}")),
    ("num_blocks", "blocks", re.compile(rf"num_gpu_blocks_override={_N}")),
    ("kv_cache_tokens", "tokens", re.compile(rf"KV cache size: {_N} tokens")),
    ("max_concurrency", "x", re.compile(rf"Maximum concurrency for [\d,]+ tokens per request: {_F}x")),
    ("block_tokens", "tokens", re.compile(rf"Setting attention block size to {_N} tokens")),
    ("page_padding", "%", re.compile(rf"Padding mamba page size by {_F}%")),
    ("padding_layers", "layers", re.compile(rf"Add {_N} padding layers")),
    ("layer_padding", "%", re.compile(rf"padding layers, may waste at most {_F}%")),
    ("graphs", "GiB", re.compile(rf"Graph capturing finished in .*took {_F} GiB")),
    ("graphs_estimate", "GiB", re.compile(rf"Estimated CUDA graph memory: {_F} GiB")),
    ("least_pool", "GiB", re.compile(rf"{_F} GiB KV cache is needed")),
    ("longest_model_len", "tokens", re.compile(rf"estimated maximum model length is {_N}")),
    ("state_blocks", "blocks", re.compile(rf"exceeds available Mamba cache blocks \({_N}\)")),
)  # fmt: skip
_ROUNDED = {"GiB": 2}
"""GiB(x) and format_gib round to two places and drop trailing zeros; older lines print four."""

_CONFIG = re.compile(r"Initializing an? (?:V[01] )?LLM engine \(v?([^)\s]+)\) with config: (.*)")
_ARGS = re.compile(r"\bargs: (?:Namespace\((?=\w+=))?(.*)")
_VERSION = re.compile(r"vLLM (?:API )?server version ([\w.+-]+)|█.*\bversion ([\w.+-]+)")
_LOADING = re.compile(r"Starting to load model (\S+?)\.\.\.|█  model +(\S+)$")
_TAKEN = {
    "model": "model", "revision": "revision", "max_seq_len": "max-model-len", "quantization": "quantization",
    "tensor_parallel_size": "tensor-parallel-size", "pipeline_parallel_size": "pipeline-parallel-size",
    "data_parallel_size": "data-parallel-size", "decode_context_parallel_size": "decode-context-parallel-size",
    "kv_cache_dtype": "kv-cache-dtype", "enforce_eager": "enforce-eager",
    "enable_prefix_caching": "enable-prefix-caching",
}  # fmt: skip
"""What the engine's own config line resolves; everything else there is at its default or not about memory."""
_SINGLE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("max-num-batched-tokens", re.compile(r"max_num_batched_tokens ?= ?(\d+)")),
    ("max-model-len", re.compile(r"Using max model len (\d+)")),
    ("max-model-len", re.compile(r"Maximum concurrency for ([\d,]+) tokens per request")),
    ("max-model-len", re.compile(r"model's max seq len \(([\d,]+)\)")),
    ("kv-cache-dtype", re.compile(r"Using (fp8\w*|nvfp4|int8) data type to store kv cache")),
    ("mamba-ssm-cache-dtype", re.compile(r"Updating mamba_ssm_cache_dtype to '(\w+)'")),
    ("mamba-cache-mode", re.compile(r"[Mm]amba cache mode is set to '(\w+)'")),
    ("gpu-memory-utilization", re.compile(r"Desired GPU memory utilization is \((0?\.\d+|1(?:\.0*)?),")),
    ("kv-cache-memory-bytes", re.compile(r"kv_cache_memory_bytes(?: config)?[ =:]+(\d{6,})")),
)  # fmt: skip


def read(line: Line, facts: Facts) -> None:
    """Take from one line what it holds."""
    text = line.text
    if match := _VERSION.search(text):
        facts.start()
        facts.version = match[1] or match[2]
    if match := _CONFIG.search(text):
        facts.version = match[1]
        _config(read_pairs(match[2]), facts)
    elif ("non-default args" in text or "args: Namespace(" in text) and (match := _ARGS.search(text)):
        _arguments(match[1], facts)
    if match := _LOADING.search(text):
        facts.fill("model", match[1] or match[2])
    for flag, pattern in _SINGLE:
        if match := pattern.search(text):
            facts.fill(flag, match[1].replace(",", ""))
    for what, unit, pattern in _FIGURES:
        if match := pattern.search(text):
            facts.add(what, match[1], unit, line.number, line.who(match.start()), _ROUNDED.get(unit))


def _arguments(text: str, facts: Facts) -> None:
    """What the user typed: kept over what other lines say."""
    given = read_dict(text[1:]) if text.startswith("{") else read_pairs(text)
    for own in ("model_tag", "subparser", "config", "dispatch_function"):
        given.pop(own, None)
    facts.told |= given.keys()
    for key, value in given.items():
        flag = key.replace("_", "-")
        facts.values[flag] = value


def _config(config: dict[str, Any], facts: Facts) -> None:
    """The resolved config; a draft is a mapping or nothing."""
    facts.told |= config.keys()
    if "quantization" in config:
        facts.told.add(RESOLVED)
    for key, flag in _TAKEN.items():
        if config.get(key) is not None:
            facts.fill(flag, config[key])
    draft = config.get("speculative_config")
    if isinstance(draft, dict) and "speculative-config" not in facts.values:
        tokens = draft.get("num_speculative_tokens", draft.get("num_spec_tokens"))
        facts.values["speculative-config"] = draft | {"num_speculative_tokens": tokens}
