"""What a public vLLM start-up log says about its deployment, as kvplan's flags and models."""

import re
from dataclasses import dataclass, replace
from typing import Any

from kvplan.deployment import Deployment, make_deployment
from kvplan.layers.full import Full
from kvplan.layers.mamba import Mamba2
from kvplan.layers.windowed import SlidingWindow
from kvplan.model import Model, Source
from kvplan.sources import resolve

Case = dict[str, Any]


@dataclass(frozen=True)
class Row:
    case: str
    version: str
    printed: str
    computed: str
    verdict: str
    reason: str


_PROFILES = (
    ("gemma-4-26b", "gemma-4-26b-a4b"), ("gemma-4-12b", "gemma-4-12b"), ("qwen3.8-27b", "qwen3.8-27b"),
    ("qwen3.6-35b", "qwen3.6-35b-a3b"), ("qwen3.6-27b", "qwen3.6-27b"), ("qwen3.5-27b", "qwen3.5-27b"),
    ("llama-3-70b", "llama-3.1-70b"), ("llama-3.1-70b", "llama-3.1-70b"), ("kimi-k2.6", "kimi-k2.6"),
    ("kimi-k2-thinking", "kimi-k2"), ("kimi-k3", "kimi-k3"), ("kimi-linear", "kimi-linear"),
    ("nemotron-3-nano-4b", "nemotron-3-nano-4b"), ("nemotron-3-super", "nemotron-3-super-120b-a12b"),
    ("qwen3-32b", "qwen3-32b"), ("qwen3-235b", "qwen3-235b-a22b"), ("qwen3-30b", "qwen3-30b-a3b"),
    ("qwen3-coder-30b", "qwen3-30b-a3b"), ("glm-5.1", "glm-5.1"), ("minimax-m2.5", "minimax-m2.5"),
    ("deepseek-v4-flash", "deepseek-v4-flash"), ("qwen3.8-2.4t", "qwen3.8-2.4t-a95b"),
)  # fmt: skip
"""Models of the logs by the profile of the same geometry."""

_GPUS = (
    ("rtx pro 6000", "rtx-pro-6000"), ("gb10", "gb10"), ("rtx 5090", "rtx-5090"), ("rtx 3090", "rtx-3090"),
    ("gb300", "gb300"), ("b300", "b300"), ("b200", "b200"), ("h200", "h200"), ("h100", "h100"), ("h20", "h20"),
    ("l40s", "l40s"), ("mi300x", "mi300x"), ("mi355x", "mi355x"),
)  # fmt: skip

_DRAFTS = {
    "vllm-qwen36-35b-dflash": (Full(4, 128, 128),) * 8,
    "vllm-qwen38-27b-gb10-dflash2": (SlidingWindow(8, 128, 128, 2048),) * 5,
}
"""Drafts that the logs name by path alone, by the geometry that their padding and group lines show."""


def hybrid(model_type: str, attention: Full, count: int, state: Mamba2, states: int) -> Model:
    blocks = ((attention,),) * count + ((state,),) * states
    return Model(model_type, Source("its log"), model_type, model_type, "bf16", blocks, num_attention_heads=32)


_GRANITE = {
    "granite-4.0-h-1b": hybrid("granitemoehybrid", Full(4, 128, 128), 4, Mamba2(48, 64, 128, 1, 4), 36),
    "granite-4.0-h-350m": hybrid("granitemoehybrid", Full(4, 64, 64), 4, Mamba2(24, 64, 128, 1, 4), 28),
}


def model_of(case: Case) -> Model | None:
    name = case["model"].lower()
    for part, model in _GRANITE.items():
        if part in name:
            return model
    profile = next((profile for part, profile in _PROFILES if part in name), None)
    if profile is None:
        return None
    model = resolve(profile)
    draft = next((layers for start, layers in _DRAFTS.items() if case["id"].startswith(start)), None)
    return replace(model, mtp=draft) if draft else model


def deployment_of(case: Case, release: str | None) -> Deployment:
    """The log's flags as a deployment."""
    other = case["other_flags"] or {}
    flags: Case = {
        "engine": "vllm", "engine_version": release, "tp": case["tp"], "pp": case["pp"] or 1,
        "dcp": case["dcp"] or 1, "max_model_len": case["max_model_len"], "block_size": case["block_size"],
        "max_num_seqs": case["max_num_seqs"], "gpu_memory_utilization": case["gpu_memory_utilization"],
        "num_speculative_tokens": draft_count(case), "enforce_eager": str(other.get("enforce_eager")) == "True",
        "language_model_only": str(other.get("language_model_only")) == "True",
    }  # fmt: skip
    gpu = next((profile for part, profile in _GPUS if part in (case["gpu"] or "").lower()), None)
    if gpu is not None:
        flags |= {"gpu": gpu, "gpus": case["gpu_count"]}
    if case["kv_cache_dtype"] not in (None, "auto"):
        flags["kv_cache_dtype"] = case["kv_cache_dtype"]
    mamba = case["mamba_flags"] or {}
    if "mamba_ssm_cache_dtype" in mamba:
        flags["mamba_ssm_dtype"] = mamba["mamba_ssm_cache_dtype"]
    if case["prefix_caching"] is not None:
        flags["enable_prefix_caching"] = case["prefix_caching"] == "True"
    if other.get("max_num_batched_tokens"):
        flags["max_num_batched_tokens"] = int(other["max_num_batched_tokens"])
    return make_deployment(**{name: value for name, value in flags.items() if value is not None})


def draft_count(case: Case) -> int | None:
    text = str(case["speculative"] or "off")
    if text == "off":
        return None
    found = re.search(r"num_speculative_tokens\W+(\d+)|k=(\d+)|(\d+) tokens", text)
    return int(next(group for group in found.groups() if group)) if found else None


def weight_flags(case: Case) -> Case:
    """What the log says about how the weights were quantized, where the profile's own are not it."""
    text = (case["weights"] or "").lower()
    name = case["model"].lower()
    if "nvfp4" in name or "nvfp4" in text:
        return {"quantization": "nvfp4-experts" if "glm" in name or "super" in name else "nvfp4"}
    return {"quantization": "fp8"} if text.startswith("fp8") else {}
