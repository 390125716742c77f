"""What a measured kernel's shape means: the axes that its time varies along, and the work of one call.

Names of kernels and of their shapes' keys are those of `kvplan_kernels`; bytes and FLOPs are its `traffic` functions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

Shape = Mapping[str, Any]
_KEY, _VALUE = 128, 128
"""Key and value width of a KDA head."""
EXPERT_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4 / 128**2, "mxfp4": 17 / 32, "int4": 0.5 + 2 / 32}
"""Bytes of an element of an expert's matrices with its scales, by the format that was measured."""


@dataclass(frozen=True, slots=True)
class Work:
    """The least that one call has to do. `serial` counts steps that wait for each other."""

    bytes: float
    flops: float = 0.0
    serial: float = 0.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """`axes` map a shape to coordinates in which time is nearly linear; never less time along any of them."""

    axes: Mapping[str, Callable[[Shape], float]]
    work: Callable[[Shape], Work]
    example: Callable[[Mapping[str, float]], dict[str, float]]
    """A shape at given coordinates: the inverse of `axes`."""
    defaults: Mapping[str, float | str]
    """Keys that a sample or a question may leave out."""


def _plain(*names: str) -> dict[str, Callable[[Shape], float]]:
    return {name: partial(_number, name) for name in names}


def _number(name: str, shape: Shape) -> float:
    return float(shape[name])


def _same(at: Mapping[str, float]) -> dict[str, float]:
    return dict(at)


def _kda_decode(shape: Shape) -> Work:
    rows, element = shape["batch"] * shape["heads"], 4 if shape["state"] == "fp32" else 2
    state = _KEY * _VALUE
    return Work(rows * (2 * state * element + 2 * (3 * _KEY + 2 * _VALUE) + 2), 7 * rows * state)


def _short_conv(shape: Shape) -> Work:
    width = 3 * _KEY * shape["heads"]
    return Work(2 * width * (8 * shape["batch"] + 4), 12 * shape["batch"] * width)


def _kda_prefill(shape: Shape) -> Work:
    tokens, heads = shape["sequences"] * shape["tokens"], shape["heads"]
    states = 2 * shape["sequences"] * heads * _KEY * _VALUE * 4
    moved = tokens * heads * (2 * (3 * _KEY + 2 * _VALUE) + 2) + states
    return Work(moved, 6 * tokens * heads * _KEY * _VALUE, shape["tokens"])


def _mla_decode(shape: Shape) -> Work:
    tokens, rows = shape["batch"] * shape["context"], shape["query_tokens"] * shape["heads"]
    element = 2 if shape["cache"] == "bf16" else 1
    return Work(tokens * 576 * element + 2 * shape["batch"] * rows * 1088, 2 * tokens * rows * 1088)


def _squared(shape: Shape) -> float:
    """Twice the pairs of a token and one before it."""
    return float(shape["tokens"]) ** 2


def _mla_prefill(shape: Shape) -> Work:
    heads, tokens = shape["heads"], shape["tokens"]
    return Work(4 * heads * tokens * 320, heads * tokens**2 * 320, tokens)


def _mla_prefix(shape: Shape) -> Work:
    heads, tokens, prefix = shape["heads"], shape["tokens"], shape["prefix"]
    return Work(2 * heads * (tokens + prefix) * 320, 2 * heads * tokens * prefix * 320, prefix)


def _gemm(shape: Shape) -> Work:
    tokens, size = shape["tokens"], shape["rows"] * shape["columns"]
    return Work(size * (1 if shape["format"] == "fp8" else 2), 2 * tokens * size)


def _grouped(shape: Shape) -> Work:
    size = shape["experts"] * shape["rows"] * shape["columns"]
    return Work(2 * size, 2 * shape["tokens_each"] * size)


def _experts(shape: Shape) -> Work:
    size = shape["experts"] * shape["rows"] * shape["columns"]
    return Work(EXPERT_BYTES[shape["format"]] * size, 2 * shape["tokens_each"] * size)


def _streamed(shape: Shape) -> float:
    return float(2 * shape["positions"] * shape["rows"] * shape["columns"])


def _moved(shape: Shape) -> float:
    return float(shape["megabytes"] * 1e6 * (2 if shape["how"] in ("copy", "inplace") else 1))


def _collective(times: int) -> Kernel:
    """Messages of [tokens, hidden] in two bytes. A rank sends the part of it that is not its own, `times` over."""

    def message(shape: Shape) -> float:
        return 2.0 * float(shape["tokens"]) * float(shape["hidden"])

    def work(shape: Shape) -> Work:
        return Work(times * message(shape) * (shape["ranks"] - 1) / shape["ranks"])

    def example(at: Mapping[str, float]) -> dict[str, float]:
        return {"ranks": at["ranks"], "tokens": at["message"] / 2, "hidden": 1}

    return Kernel({**_plain("ranks"), "message": message}, work, example, {})


def _by_experts(work: Callable[[Shape], Work]) -> Kernel:
    """Products with the experts that are touched, each with as many tokens."""

    def elements(shape: Shape) -> float:
        return float(shape["experts"] * shape["rows"] * shape["columns"])

    def example(at: Mapping[str, float]) -> dict[str, float]:
        return {"tokens_each": at["tokens_each"], "experts": 1, "rows": at["elements"], "columns": 1}

    return Kernel({**_plain("tokens_each"), "elements": elements}, work, example, {})


KERNELS: dict[str, Kernel] = {
    "kda_decode": Kernel(_plain("heads", "batch"), _kda_decode, _same, {"layout": "vk"}),
    "short_conv": Kernel(_plain("heads", "batch"), _short_conv, _same, {}),
    "kda_prefill": Kernel(
        _plain("heads", "sequences", "tokens"), _kda_prefill, _same, {"gate": "fast", "snapshot_every": 0}
    ),
    "mla_decode": Kernel(_plain("heads", "batch", "context"), _mla_decode, _same, {"query_tokens": 1}),
    "mla_prefill": Kernel(
        {**_plain("heads"), "tokens squared": _squared},
        _mla_prefill,
        lambda at: {"heads": at["heads"], "tokens": at["tokens squared"] ** 0.5},
        {},
    ),
    "mla_prefix": Kernel(_plain("heads", "tokens", "prefix"), _mla_prefix, _same, {}),
    "gemm": Kernel(
        {**_plain("tokens"), "elements": lambda shape: float(shape["rows"] * shape["columns"])},
        _gemm,
        lambda at: {"tokens": at["tokens"], "rows": at["elements"], "columns": 1},
        {},
    ),
    "grouped_gemm": _by_experts(_grouped),
    "moe": _by_experts(_experts),
    "weights": Kernel(
        {"bytes": _streamed},
        lambda shape: Work(_streamed(shape)),
        lambda at: {"positions": 1, "experts": 1, "rows": at["bytes"] / 2, "columns": 1},
        {},
    ),
    "move": Kernel(
        {"bytes": _moved}, lambda shape: Work(_moved(shape)), lambda at: {"megabytes": at["bytes"] / 1e6}, {}
    ),
    "matmul": Kernel(
        {"flops": lambda shape: 2.0 * shape["size"] ** 3},
        lambda shape: Work(6 * shape["size"] ** 2, 2.0 * shape["size"] ** 3),
        lambda at: {"size": (at["flops"] / 2) ** (1 / 3)},
        {},
    ),
    "host_copy": Kernel(
        {"bytes": lambda shape: float(shape["bytes"])},
        lambda shape: Work(float(shape["bytes"])),
        _same,
        {},
    ),
}
KERNELS["experts"] = KERNELS["weights"]
for _name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
    KERNELS[_name] = _collective(2 if _name == "all_reduce" else 1)
