"""What `kvplan models` and `kvplan gpus` say on a screen."""

import dataclasses
from collections import Counter
from typing import Any

from kvplan import __version__
from kvplan.calibration import beyond
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


def show_comparison(names: tuple[str, str], rows: list[dict[str, Any]], percent: float, *, as_json: bool) -> None:
    """Two calibrations at the shapes that both have; of those that differ by more than `percent`, why, counted."""
    shown = beyond(rows, percent / 100) if percent else rows
    if as_json:
        inputs = {"first": names[0], "second": names[1], "beyond_percent": percent}
        head = {"schema": "kvplan.calibration_comparison/1", "kvplan_version": __version__, "inputs": inputs}
        print_json(head | {"assumptions": [], "shapes_compared": len(rows), "shapes": shown})
        return
    lines = [f"SHAPES     {len(rows)} in both; {len(beyond(rows, 0.1))} differ by more than 10 %"]
    reasons = Counter(f"{row['second_owner']}: {row['why']}" for row in beyond(rows, 0.1) if "why" in row)
    lines += [f"{f'{count}':<10} {why}" for why, count in reasons.most_common()]
    why = "; whose the second is, and why it may differ" if shown and "why" in shown[0] else ""
    body = []
    for row in shown:
        times = (f"{row['first_s'] * 1e6:,.2f}", f"{row['second_s'] * 1e6:,.2f}", f"{row['ratio']:.3f}")
        body.append((*times, f"{row['kernel']}; {row['second_owner']}: {row['why']}" if why else row["kernel"]))
    print_text(lines, [Table("", ("first us", "second us", "ratio", f"kernel{why}"), body)])


def show_precision(
    name: str, document: dict[str, Any], columns: list[str], rows: list[list[str]], *, as_json: bool
) -> None:
    """Relative errors of output and state against the exact recurrence."""
    if as_json:
        print_json(document | {"kvplan_version": __version__, "inputs": {"study": name}, "assumptions": []})
        return
    study = document["study"]
    lines = [
        f"DEVICE     {document['device']['name']}, {document['source']['date']}, our kernels",
        "ERRORS     output / state, relative to the recurrence in fp64 on the same bf16 inputs",
        "ROUNDING   a bf16 state is rounded to nearest even where it is stored: at every token in decode, after every "
        f"{study['prefill_call_tokens']:,} tokens in prefill",
        "INPUTS     independent normal data; gates: fast e^-3 a token; in half of the channels, slow e^-0.001, still "
        "e^-0.00001",
    ]
    print_text(lines, [Table("", tuple(columns), [tuple(row) for row in rows])])
