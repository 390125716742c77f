"""The weights that a checkpoint's name tells of, where its files are not here to be sized."""

import re
from typing import Any

from kvplan.errors import UsageError
from kvplan.model import Model

_TAG = re.compile(
    r"(?<![a-z0-9])(fp8|mxfp8|nvfp4|mxfp4|awq|gptq|int[48]|w4a16|w8a8|w8a16|[48]bit|bf16|fp16|f16"
    r"|i?q\d(?:_[a-z0-9]+)*)(?![a-z0-9])"
)
_SAME = ("fp8", "mxfp8", "nvfp4", "mxfp4", "awq", "gptq", "int4", "int8", "bf16", "fp16")
_FORMATS = {name: name for name in _SAME} | {
    "w4a16": "int4", "4bit": "int4", "w8a8": "int8", "w8a16": "int8", "8bit": "int8", "f16": "fp16",
}  # fmt: skip
_BITS = {
    "q2_k": 3.35, "q3_k_s": 3.50, "q3_k_m": 3.91, "q3_k_l": 4.27, "q4_k_s": 4.58, "q4_k_m": 4.84, "q5_k_s": 5.52,
    "q5_k_m": 5.68, "q6_k": 6.56, "q4_0": 4.5, "q4_1": 5.0, "q5_0": 5.5, "q5_1": 6.0, "q8_0": 8.5,
}  # fmt: skip
"""Bits per weight: of a block for the plain types, of Llama 2 7B for the mixed ones (llama.cpp, tools/quantize)."""
_PULLED = "q4_k_m"
"""What llama.cpp's --hf-repo fetches where no quantisation is named."""


def weights_named(name: str, model: Model, flags: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """(flags that size the weights as `name` tells, how that is said), for a name whose files are not here.

    Nothing where the user sizes them, or the name is the model's own. Raises UsageError where a GPU is to be filled
    and the name tells of a format without a known size.
    """
    if flags.get("weights") is not None or flags.get("quantization") is not None:
        return {}, "weights as given"
    tag = _tag(name, model)
    if tag is None or tag == model.quantization.get("quant_method"):
        return {}, "weights as that is published"
    if tag in _FORMATS:
        return {
            "quantization": _FORMATS[tag]
        }, f"weights as {_FORMATS[tag]}, from its name; give its own with --weights"
    bits, params = _BITS.get(tag), model.published.params_total
    if bits is not None and params is not None:
        said = f"weights of {bits} bits each, as {tag.upper()} files have; give the file's size with --weights"
        return {"weights": f"{int(params * bits / 8)}"}, said
    if flags.get("gpu") is None and flags.get("gpu_memory") is None:
        return {}, "weights as that is published"
    raise UsageError(
        f"{name[:120]} is not here, and {tag.upper()} does not size its weights: give the file's size with --weights"
    )


def _tag(name: str, model: Model) -> str | None:
    """The format at the end of a name, in lower case."""
    last = name.rstrip("/").rpartition("/")[2].lower().removesuffix(".gguf")
    tags: list[str] = _TAG.findall(last)
    own = model.hf_id.rpartition("/")[2].lower()
    if own and last == own:
        return None
    if tags:
        return next((tag for tag in tags if tag not in ("4bit", "8bit")), tags[0])
    return _PULLED if last.endswith("gguf") and not model.quantization else None
