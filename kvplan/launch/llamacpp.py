"""What llama-server's flags mean where they need more than another name."""

from typing import TYPE_CHECKING, Any

from kvplan.launch.numbers import absent, whole

if TYPE_CHECKING:
    from kvplan.launch.reading import Reading


def translate(values: dict[str, Any], into: "Reading") -> None:
    """llama-server's flags → kvplan's."""
    named = values.pop("model", None)
    repo = values.pop("hf-repo", None)
    file = values.pop("hf-file", None)
    for flag in ("model-url", "flash-attn", "batch-size"):
        values.pop(flag, None)
    if named:
        into.model = str(named)
    elif repo:
        into.model = str(repo).partition(":")[0]
        into.served = str(file or repo)
    _offload(values.pop("gpu-layers", None), into)
    into.set("tp", 1, "split-mode")
    for flag in ("ctx-size", "parallel", "ubatch-size"):
        if not absent(values.get(flag)):
            values[flag] = whole(values[flag], flag)
    if values.get("parallel") == -1:
        values.pop("parallel")
    if values.get("ctx-size"):
        slots = 1 if values.get("kv-unified") else values.get("parallel") or 1
        into.set("max_model_len", max(1, values["ctx-size"] // slots), "ctx-size")
    into.rest({flag: value for flag, value in values.items() if not absent(value)})


def _offload(layers: Any, into: "Reading") -> None:
    """Everyone writes 99 or more for "all of them"; fewer may leave layers in host memory."""
    if absent(layers) or str(layers).lower() == "all" or not -1 < whole(layers, "gpu-layers") < 99:
        return
    into.unmodelled("gpu-layers", "layers beyond it stay in host memory")
