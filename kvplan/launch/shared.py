"""Translations that several engines need."""

from typing import TYPE_CHECKING, Any

from kvplan.dtypes import canonical
from kvplan.launch.numbers import absent, whole

if TYPE_CHECKING:
    from kvplan.launch.reading import Reading

_KERNELS = {
    "awq_marlin": "awq", "gptq_marlin": "gptq", "gptq_marlin_24": "gptq", "moe_wna16": None, "bitsandbytes": "int4",
    "compressed-tensors": None, "modelopt": None, "modelopt_fp4": None, "modelopt_fp8": None, "modelopt_mixed": None,
    "marlin": None, "quark": None, "w8a8_fp8": "fp8", "w8a8_int8": "int8", "mxfp4": None, "gguf": None,
}  # fmt: skip
"""Names of kernels and of checkpoint formats: None = as the checkpoint says."""


def model_name(values: dict[str, Any], into: "Reading", *flags: str) -> None:
    """The model with its revision, as `kvplan estimate` takes it."""
    named = [str(values.pop(flag)) for flag in flags if values.get(flag)]
    revision = values.pop("revision", None)
    into.model = named[0] if named else None
    if into.model and revision and not into.model.startswith(("/", ".", "~")):
        into.model = f"{into.model}@{revision}"


def layout(values: dict[str, Any], into: "Reading", *, tp: str, dp: str) -> dict[str, int]:
    """Both sizes; without a flag an engine takes one rank, where kvplan would take every GPU of the node."""
    sizes = {}
    for name, flag in (("tp", tp), ("dp", dp)):
        value = values.pop(flag, None)
        sizes[name] = 1 if absent(value) else whole(value, flag)
        if name == "tp" or sizes[name] > 1:
            into.set(name, sizes[name], flag)
    return sizes


def weights_dtype(values: dict[str, Any], into: "Reading") -> None:
    """`--dtype`: 16-bit models store as many bytes either way; another width is not modelled."""
    dtype = values.pop("dtype", None)
    if not absent(dtype) and canonical(str(dtype)) not in ("bf16", "fp16"):
        into.unmodelled("dtype", f"weights and cache in {str(dtype)[:20]}")


def take_quantization(values: dict[str, Any], into: "Reading") -> None:
    """`--quantization`: a name of kernels leaves the checkpoint's format as it is."""
    name = values.pop("quantization", None)
    if absent(name):
        return
    wanted = str(name).strip().lower()
    meant = _KERNELS.get(wanted, wanted)
    if meant is not None:
        into.set("quantization", meant, "quantization")
