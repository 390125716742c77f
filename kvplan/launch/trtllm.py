"""What the flags of trtllm-serve mean where they need more than another name."""

from typing import TYPE_CHECKING, Any

from kvplan.launch.numbers import absent
from kvplan.launch.shared import layout, model_name, weights_dtype

if TYPE_CHECKING:
    from kvplan.launch.reading import Reading


def translate(values: dict[str, Any], into: "Reading") -> None:
    """Flags and YAML keys of trtllm-serve → kvplan's."""
    model_name(values, into, "model")
    layout(values, into, tp="tensor-parallel-size", dp="data-parallel-size")
    weights_dtype(values, into)
    into.rest({flag: value for flag, value in values.items() if not absent(value)})
