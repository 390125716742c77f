"""What vLLM's flags mean where they need more than another name."""

import json
from typing import TYPE_CHECKING, Any

from kvplan.launch.numbers import absent, whole
from kvplan.launch.shared import layout, model_name, take_quantization, weights_dtype

if TYPE_CHECKING:
    from kvplan.launch.reading import Reading

_WHOLE = (
    "block-size", "num-gpu-blocks-override", "max-num-batched-tokens", "max-num-seqs", "mamba-block-size",
    "prefix-cache-retention-interval", "max-cudagraph-capture-size", "kv-cache-memory-bytes", "kv-cache-memory",
)  # fmt: skip
_SPECULATION = {
    "spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens",
    "speculative-model": "model", "num-speculative-tokens": "num_speculative_tokens",
}  # fmt: skip


def translate(values: dict[str, Any], into: "Reading") -> None:
    """vLLM's flags → kvplan's."""
    model_name(values, into, "model")
    sizes = layout(values, into, tp="tensor-parallel-size", dp="data-parallel-size")
    if values.pop("enable-expert-parallel", False):
        into.set("ep", sizes["tp"] * sizes["dp"], "enable-expert-parallel")
    weights_dtype(values, into)
    take_quantization(values, into)
    _length(values, into)
    _speculation(values, into)
    for flag in _WHOLE:
        if not absent(values.get(flag)):
            values[flag] = whole(values[flag], flag)
    into.rest({flag: value for flag, value in values.items() if not absent(value)})


def _length(values: dict[str, Any], into: "Reading") -> None:
    length = values.pop("max-model-len", None)
    if absent(length):
        return
    tokens = whole(length, "max-model-len")
    if tokens == -1:
        into.notes.append(
            "--max-model-len auto: the engine takes the longest that fits; the model's maximum is planned"
        )
    else:
        into.set("max_model_len", tokens, "max-model-len")


def _speculation(values: dict[str, Any], into: "Reading") -> None:
    """One mapping from `--speculative-config` and the flags that stand for its keys."""
    given = values.pop("speculative-config", None)
    config = dict(given) if isinstance(given, dict) else {}
    for flag, key in _SPECULATION.items():
        value = values.pop(flag, None)
        if not absent(value):
            config[key] = whole(value, flag) if key == "num_speculative_tokens" else value
    if str(config.get("method", "")).endswith("_mtp"):
        config["method"] = "mtp"
    if config:
        into.set("speculative_config", json.dumps(config, sort_keys=True, default=str), "speculative-config")
