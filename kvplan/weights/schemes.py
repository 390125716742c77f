"""A checkpoint's `quantization_config`, or the user's `--quantization`, as a rule: module → format."""

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from kvplan.dtypes import canonical
from kvplan.errors import ConfigError, UsageError
from kvplan.weights.compressed import compressed_tensors
from kvplan.weights.formats import (
    INT8,
    MXFP4,
    MXFP8,
    PLAIN,
    Format,
    fp8_block,
    fp8_row,
    fp8_tensor,
    int_packed,
    nvfp4,
)
from kvplan.weights.patterns import Patterns
from kvplan.weights.rule import FIELD, LINEAR, Rule, integer, names, text

HEAD_TOO = LINEAR | {"head"}


def scheme(quantization: dict[str, Any], dtype: str, override: str | None = None) -> Rule:
    """The rule of a checkpoint, or of the flag where it asks for something else.

    Raises ConfigError for a `quant_method` that is not modelled and UsageError for a flag that is not.
    """
    wanted = "" if override is None else _flag(override)
    try:
        own = _from_config(quantization, dtype)
    except ConfigError:
        if wanted not in _FLAGS:
            raise
        own = Rule("none", PLAIN[dtype])
    if wanted in ("", "auto", own.name, own.method) or (own.name == "none" and wanted == dtype):
        return own
    if wanted.startswith("modelopt") and own.method.startswith("modelopt"):
        return own
    if wanted not in _FLAGS:
        near = get_close_matches(wanted, _FLAGS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(_FLAGS)}"
        raise UsageError(f"--quantization {wanted[:40]!r} is not modelled; {hint}")
    note = "as if requantised by the engine: every linear layer of the decoder, not the embedding, head or router"
    return _FLAGS[wanted](PLAIN[dtype], note)


def _flag(typed: str) -> str:
    """A `--quantization` value under one spelling; vLLM's kernel choices are no formats of their own."""
    short = typed.strip().lower().removesuffix("_marlin")
    return short if short == "mxfp4" else canonical(short)


def _from_config(quantization: dict[str, Any], dtype: str) -> Rule:
    plain = PLAIN[dtype]
    if not quantization or quantization.keys() == {"expert_dtype"}:
        return Rule("none", plain)
    method = text(quantization, "quant_method", "modelopt" if "quant_algo" in quantization else "")
    builder = _METHODS.get(method)
    if builder is None:
        shown = repr(method[:40]) if method else "(absent)"
        raise ConfigError(
            f"{FIELD}.quant_method: {shown} is not modelled; give the checkpoint's size with --weights SIZE"
        )
    return replace(builder(quantization, plain), method=method)


def _fp8(q: dict[str, Any], plain: Format) -> Rule:
    """fp8 as DeepSeek and transformers write it: tiles with `weight_block_size`, one scale a matrix without.

    The byte totals of DeepSeek V3 and Kimi K2 come out only with an fp32 correction bias.
    """
    block = q.get("weight_block_size")
    if block is None:
        linear = fp8_tensor(1 if q.get("activation_scheme") == "dynamic" else 2)
    else:
        linear = fp8_block(*_tile(block), scale_bytes=_tile_scale_bytes(q))
    ignored = names(q, "modules_to_not_convert", "ignored_layers")
    rule = Rule("fp8", plain, linear=linear, router_bias=PLAIN["fp32"], ignored=ignored)
    if "quantized_layers" in q:
        return replace(rule, chosen=_listed(q))
    experts = text(q, "expert_dtype", "fp8")
    if experts not in ("fp4", "fp8"):
        raise ConfigError(f"expert_dtype: {experts[:40]!r} is not modelled; expected fp4 or fp8")
    return replace(rule, experts=MXFP4) if experts == "fp4" else rule


def _tile_scale_bytes(q: dict[str, Any]) -> int:
    """DeepSeek V4 (the only family with `expert_dtype`) ships exponent bytes; V3.x rounds to ue8m0 but ships fp32."""
    return 1 if "expert_dtype" in q and q.get("scale_fmt") == "ue8m0" else 4


def _tile(block: Any) -> tuple[int, int]:
    if not isinstance(block, list) or len(block) != 2 or not all(type(side) is int and side > 0 for side in block):
        raise ConfigError(f"{FIELD}.weight_block_size: expected two positive integers, found {str(block)[:40]}")
    return block[0], block[1]


def _algorithm(name: str, q: dict[str, Any], where: str) -> Format:
    """A `quant_algo` of NVIDIA ModelOpt."""
    if name == "FP8":
        return fp8_tensor()
    if name in ("NVFP4", "NVFP4_AWQ", "W4A16_NVFP4"):
        return nvfp4(integer(q, "group_size", 16), input_scale=name != "W4A16_NVFP4")
    if name == "MXFP8":
        return MXFP8
    if name in ("W4A16_AWQ", "INT4_AWQ", "W4A8_AWQ"):
        return int_packed(4, integer(q, "group_size", 128), zeros=False)
    if name == "FP8_PER_CHANNEL_PER_TOKEN":
        return fp8_row(4)
    if name == "FP8_PB_WO":
        return fp8_block(128, 128)
    raise ConfigError(f"{where}: {name[:40]!r} is not modelled; give the checkpoint's size with --weights SIZE")


def _listed(q: dict[str, Any]) -> tuple[tuple[Patterns, Format], ...]:
    """`quantized_layers` of a mixed-precision checkpoint: one group of module paths per format."""
    layers = q.get("quantized_layers")
    where = f"{FIELD}.quantized_layers"
    if not isinstance(layers, dict) or not all(isinstance(entry, dict) for entry in layers.values()):
        raise ConfigError(f"{where}: expected an object of objects")
    grouped: dict[Format, list[str]] = {}
    for module, entry in layers.items():
        grouped.setdefault(_algorithm(text(entry, "quant_algo"), entry, where), []).append(module)
    return tuple((Patterns(modules, where), format_) for format_, modules in grouped.items())


def _modelopt(q: dict[str, Any], plain: Format) -> Rule:
    ignored = names(q, "exclude_modules", "ignore")
    algorithm = text(q, "quant_algo", "")
    if algorithm == "MIXED_PRECISION":
        return Rule("modelopt", plain, ignored=ignored, chosen=_listed(q), roles=HEAD_TOO)
    if not algorithm:
        raise ConfigError(f"{FIELD}.quant_algo: is missing, so the weights' format is unknown")
    linear = _algorithm(algorithm, q, f"{FIELD}.quant_algo")
    return Rule(linear.name, plain, linear=linear, ignored=ignored, roles=HEAD_TOO)


def _mxfp4(q: dict[str, Any], plain: Format) -> Rule:
    """gpt-oss: the experts' matrices alone; `modules_to_not_convert` lists what stays."""
    return Rule("mxfp4", plain, experts=MXFP4, ignored=names(q, "modules_to_not_convert"))


def _bits(q: dict[str, Any]) -> int:
    bits = integer(q, "bits", 4)
    if bits not in (2, 3, 4, 8):
        raise ConfigError(f"{FIELD}.bits: {bits} is not one of 2, 3, 4 and 8")
    return bits


def _awq(q: dict[str, Any], plain: Format) -> Rule:
    bits, group = _bits(q), integer(q, "group_size", 128, minimum=-1)
    linear = int_packed(bits, max(group, 0), zeros=q.get("zero_point") is not False)
    return Rule("awq", plain, linear=linear, ignored=names(q, "modules_to_not_convert"))


def _gptq(q: dict[str, Any], plain: Format) -> Rule:
    bits, group = _bits(q), integer(q, "group_size", 128, minimum=-1)
    dynamic = q.get("dynamic") or {}
    if not isinstance(dynamic, dict) or any(not key.startswith("-:") for key in dynamic):
        raise ConfigError(f"{FIELD}.dynamic: only exclusions (keys that start with '-:') are modelled")
    ignored = [*names(q, "modules_to_not_convert"), *(f"re:{key[2:]}" for key in dynamic)]
    roles = HEAD_TOO if q.get("lm_head") is True else LINEAR
    linear = int_packed(bits, max(group, 0), zeros=True, index=True)
    return Rule("gptq", plain, linear=linear, ignored=tuple(ignored), roles=roles)


def _fbgemm(q: dict[str, Any], plain: Format) -> Rule:
    return Rule("fbgemm_fp8", plain, linear=fp8_row(4), ignored=names(q, "modules_to_not_convert"))


def _quark(q: dict[str, Any], plain: Format) -> Rule:
    """AMD Quark with one format for the whole model."""
    whole = q.get("global_quant_config")
    weight = whole.get("weight") if isinstance(whole, dict) else None
    if not isinstance(weight, dict) or q.get("layer_quant_config") or q.get("layer_type_quant_config"):
        raise ConfigError(f"{FIELD}: only Quark's global_quant_config is modelled; give --weights SIZE")
    kind = text(weight, "dtype")
    formats = {"fp4": MXFP4, "fp8_e4m3": fp8_row(4) if weight.get("qscheme") == "per_channel" else fp8_tensor()}
    if kind not in formats:
        raise ConfigError(f"{FIELD}.global_quant_config.weight.dtype: {kind[:40]!r} is not modelled")
    return Rule("quark", plain, linear=formats[kind], ignored=names(q, "exclude"), roles=HEAD_TOO)


_METHODS: dict[str, Callable[[dict[str, Any], Format], Rule]] = {
    "fp8": _fp8, "modelopt": _modelopt, "modelopt_fp4": _modelopt, "modelopt_mixed": _modelopt, "mxfp4": _mxfp4,
    "compressed-tensors": compressed_tensors, "awq": _awq, "gptq": _gptq, "fbgemm_fp8": _fbgemm, "quark": _quark,
}  # fmt: skip


def _everywhere(name: str, linear: Format | None) -> Callable[[Format, str], Rule]:
    return lambda plain, note: Rule(
        name, plain, linear=linear, notes=(f"--quantization {name}: {note}",), requantised=True
    )


def _experts_only(name: str, experts: Format) -> Callable[[Format, str], Rule]:
    note = f"--quantization {name}: the routed experts alone, as NVFP4 copies of GLM-5.1 and Nemotron 3 Super are made"
    return lambda plain, _note: Rule(name, plain, experts=experts, notes=(note,), requantised=True)


def _unquantised(name: str) -> Callable[[Format, str], Rule]:
    note = f"--quantization {name}: every weight in {name}"
    return lambda _plain, _note: Rule(name, PLAIN[name], notes=(note,), requantised=True)


_FLAGS: dict[str, Callable[[Format, str], Rule]] = {
    "bf16": _unquantised("bf16"), "fp16": _unquantised("fp16"), "fp32": _unquantised("fp32"),
    "fp8": _everywhere("fp8", fp8_tensor(1)), "mxfp8": _everywhere("mxfp8", MXFP8),
    "nvfp4": _everywhere("nvfp4", nvfp4()), "nvfp4-experts": _experts_only("nvfp4-experts", nvfp4()),
    "mxfp4": _everywhere("mxfp4", MXFP4),
    "int8": _everywhere("int8", INT8), "int4": _everywhere("int4", int_packed(4, 128, zeros=False)),
    "awq": _everywhere("awq", int_packed(4, 128, zeros=True)),
    "gptq": _everywhere("gptq", int_packed(4, 128, zeros=True, index=True)),
}  # fmt: skip

__all__ = ["scheme"]
