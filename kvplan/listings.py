"""What `kvplan models` and `kvplan gpus` say on a screen."""

import dataclasses
from typing import Any

from kvplan import __version__
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.tables import Table, print_json, print_text
from kvplan.units import format_gib


def show_model(model: Model, *, as_json: bool) -> None:
    """A model's layers, dimensions and provenance."""
    groups: dict[tuple[Any, ...], int] = {}
    for mixer in model.mixers():
        key = (mixer.kind, *(f"{name} {value}" for name, value in dataclasses.asdict(mixer).items()))
        groups[key] = groups.get(key, 0) + 1
    layers = [{"kind": key[0], "count": count, "dimensions": list(key[1:])} for key, count in groups.items()]
    facts: dict[str, Any] = {
        "name": model.name,
        "model_type": model.model_type,
        "architecture": model.architecture,
        "dtype": model.dtype,
        "max_context_tokens": model.max_context_tokens,
        "state_dtype": model.state_dtype,
        "kv_cache_dtype": model.kv_cache_dtype,
        "num_experts": model.num_experts,
        "experts_per_token": model.experts_per_token,
        "source": dataclasses.asdict(model.source),
        "published": dataclasses.asdict(model.published),
        "weights_missing": model.weights_missing,
        "defaults": list(model.defaults),
        "unread": list(model.unread),
    }
    if as_json:
        head = {
            "schema": "kvplan.model/1",
            "kvplan_version": __version__,
            "inputs": {"model": model.name},
            "assumptions": [],
        }
        print_json(head | facts | {"layers": layers})
        return
    rows = [(name, _flat(value)) for name, value in facts.items() if value not in (None, "", [], 0)]
    kinds = [(str(layer["count"]), layer["kind"], ", ".join(layer["dimensions"])) for layer in layers]
    print_text([], [Table("", ("field", "value"), rows), Table("LAYERS", ("count", "kind", "dimensions"), kinds)])


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        parts = {key: _flat(item) for key, item in value.items() if item not in (None, "")}
        return "; ".join(
            item if key in ("title", "url", "note", "origin") else f"{key} {item}" for key, item in parts.items()
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def gpu_row(gpu: Gpu) -> dict[str, Any]:
    """One line of `kvplan gpus list`."""
    return {
        "name": gpu.name,
        "memory_bytes": gpu.memory_bytes,
        "memory": format_gib(gpu.memory_bytes),
        "quality": gpu.memory_quality,
        "bandwidth_gb_per_s": gpu.bandwidth_bytes_per_s // 10**9,
        "aliases": list(gpu.aliases),
    }


def show_gpu(gpu: Gpu, *, as_json: bool) -> None:
    """A GPU with the source of each figure."""
    facts = gpu.model_dump(mode="json", by_alias=True)
    if as_json:
        head = {"schema": "kvplan.gpu/1", "kvplan_version": __version__, "inputs": {"gpu": gpu.name}, "assumptions": []}
        print_json(facts | head)
        return
    sources = [(f"source of {name}", _flat(value)) for name, value in facts.pop("source").items()]
    del facts["schema"]
    rows = [(name, _flat(value)) for name, value in facts.items() if value is not None]
    print_text([], [Table("", ("field", "value"), rows + sources)])


def show_calibration(
    name: str, document: dict[str, Any], columns: list[str], samples: list[list[str]], *, as_json: bool
) -> None:
    """Device, versions and conditions, then one row per sample."""
    if as_json:
        head = {"kvplan_version": __version__, "inputs": {"calibration": name}, "assumptions": []}
        print_json(document | head)
        return
    facts = [
        (f"{part} {key}", _flat(value))
        for part in ("device", "versions", "source")
        for key, value in document[part].items()
    ]
    facts += [("condition", _flat(row)) for row in document.get("conditions", [])]
    body = [tuple(row) for row in samples]
    print_text([], [Table("", ("field", "value"), facts), Table("SAMPLES", tuple(columns), body)])
