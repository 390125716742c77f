"""The `compressed-tensors` format of llm-compressor: groups of targets, each with its own number format."""

from typing import Any

from kvplan.errors import ConfigError
from kvplan.weights.formats import MXFP4, MXFP8, Format, fp8_block, fp8_row, fp8_tensor, int_packed, nvfp4
from kvplan.weights.patterns import Patterns
from kvplan.weights.rule import FIELD, LINEAR, Rule, integer, names, text

_CLASSES = frozenset({"Linear"})
_NOTE = "scales counted in the model's own 16-bit dtype, as llm-compressor writes them"


def compressed_tensors(q: dict[str, Any], plain: Format) -> Rule:
    """The rule of a compressed-tensors config. Raises ConfigError naming a group that is not modelled."""
    sparsity = q.get("sparsity_config")
    if isinstance(sparsity, dict) and sparsity.get("format") not in (None, "dense"):
        raise ConfigError(f"{FIELD}.sparsity_config: sparse checkpoints are not modelled; give --weights SIZE")
    groups = q.get("config_groups")
    if not isinstance(groups, dict) or not groups or not all(isinstance(group, dict) for group in groups.values()):
        raise ConfigError(f"{FIELD}.config_groups: expected an object of objects")
    linear: Format | None = None
    chosen: list[tuple[Patterns, Format]] = []
    for name, group in groups.items():
        where = f"{FIELD}.config_groups.{str(name)[:20]}"
        weights = group.get("weights")
        if weights is None:
            continue
        if not isinstance(weights, dict):
            raise ConfigError(f"{where}.weights: expected an object")
        format_ = _format(weights, group, text(group, "format", text(q, "format", "")), where)
        targets = names(group, "targets")
        if set(targets) & _CLASSES or not targets:
            linear = format_
        else:
            chosen.append((Patterns(targets, f"{where}.targets"), format_))
    formats = [linear, *(format_ for _, format_ in chosen)]
    half_scales = any(format_ and format_.name.startswith(("int", "fp8")) for format_ in formats)
    return Rule(
        linear.name if linear and not chosen else "compressed-tensors",
        plain,
        linear=linear,
        ignored=names(q, "ignore"),
        chosen=tuple(chosen),
        roles=LINEAR | {"head"},
        notes=(_NOTE,) if half_scales else (),
    )


def _format(weights: dict[str, Any], group: dict[str, Any], layout: str, where: str) -> Format:
    kind, bits = text(weights, "type", "int"), integer(weights, "num_bits", 8)
    strategy = text(weights, "strategy", "group" if weights.get("group_size") else "tensor")
    size = integer(weights, "group_size", 0, minimum=-1)
    static_input = isinstance(group.get("input_activations"), dict)
    if kind == "float" and bits == 4:
        micro = layout.startswith("mxfp4") or size == 32
        return MXFP4 if micro else nvfp4(size if size > 0 else 16, input_scale=static_input)
    if kind == "float" and bits == 8:
        return _fp8(weights, strategy, size, layout, where)
    if kind == "int" and bits in (2, 3, 4, 8):
        zeros = weights.get("symmetric") is False
        index = weights.get("actorder") in ("group", "dynamic") and size > 0
        packed = layout == "pack-quantized"
        return int_packed(bits, max(size, 0), zeros=zeros, index=index, shape_record=packed)
    raise ConfigError(f"{where}.weights: {bits}-bit {kind[:20]} is not modelled; give --weights SIZE")


def _fp8(weights: dict[str, Any], strategy: str, size: int, layout: str, where: str) -> Format:
    if layout.startswith("mxfp8") or size == 32:
        return MXFP8
    if strategy == "tensor":
        return fp8_tensor(1, scale_bytes=2)
    if strategy == "channel":
        return fp8_row(2)
    block = weights.get("block_structure")
    if strategy == "block" and isinstance(block, list) and len(block) == 2:
        rows, columns = (side if type(side) is int and side > 0 else 0 for side in block)
        if rows and columns:
            return fp8_block(rows, columns, scale_bytes=2)
    raise ConfigError(f"{where}.weights.strategy: {strategy[:20]!r} is not modelled for fp8; give --weights SIZE")
