"""What a hybrid saves and gains at each length, beside the same model with its own attention in every layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvplan import __version__
from kvplan.baseline import make_baseline
from kvplan.capacity import evaluate
from kvplan.deployment import Deployment, gpu_and_count, make_deployment
from kvplan.errors import UsageError
from kvplan.gpu import Gpu, find_gpu
from kvplan.interval import Interval
from kvplan.latency import Clock, make_clock
from kvplan.latency.compare import times_faster
from kvplan.ledger import Holding
from kvplan.model import Model
from kvplan.sources import resolve
from kvplan.tables import Table, print_json, print_text, wrapped
from kvplan.units import format_short, format_tokens

CONTEXTS = tuple(1 << power for power in range(12, 21))
HARDWARE = {"kimi-k3": "h200:32", "kimi-linear": "h200:1", "qwen3-next": "h200:2"}
"""The fewest H200 that hold each, taken as one domain of fast links; K3 takes four nodes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One length. `alone` and `together`: how much faster one sequence, and the most that fit each, decode."""

    context_tokens: int
    bytes: int
    twin_bytes: int
    sequences: int
    twin_sequences: int
    alone: Interval | None
    together: Interval | None


def savings(name: str, gpu: str | None, calibration: str) -> tuple[Deployment, str, list[Row]]:
    """(deployment, the calibration's own words, a row per length up to the model's maximum).

    Raises UsageError for a model without a twin: no state, or no full attention.
    """
    model = resolve(name)
    deployment = make_deployment(gpu=gpu or HARDWARE.get(model.name, "h200:8"), calibration=calibration)
    baseline = make_baseline(model, None)
    if baseline is None:
        raise UsageError(f"{model.name} keeps the same in all its layers, so there is no twin to set beside it")
    twin = replace(model, name=f"{model.name} as {baseline.name}", blocks=baseline.blocks)
    profile = find_gpu(gpu_and_count(str(deployment.gpu))[0])
    clocks = make_clock(model, deployment, profile), make_clock(twin, deployment, profile)
    lengths = [tokens for tokens in CONTEXTS if tokens <= (model.max_context_tokens or CONTEXTS[-1])]
    rows = _rows(model, twin, deployment, profile, clocks, lengths)
    return deployment, clocks[0].assumptions[0].source, list(rows)


def _rows(
    model: Model, twin: Model, deployment: Deployment, gpu: Gpu, clocks: tuple[Clock, Clock], lengths: list[int]
) -> Iterator[Row]:
    held = [Holding(one.mixers(), clocks[0].dtypes) for one in (model, twin)]
    fits = [evaluate(one, deployment, gpu, lengths).capacity for one in (model, twin)]
    for own, other in zip(*fits, strict=True):
        tokens = own.context_tokens
        yield Row(
            tokens, held[0].bytes(tokens), held[1].bytes(tokens), own.sequences, other.sequences,
            _faster(clocks, (1, 1), tokens), _faster(clocks, (own.sequences, other.sequences), tokens),
        )  # fmt: skip


def _faster(clocks: tuple[Clock, Clock], sequences: tuple[int, int], tokens: int) -> Interval | None:
    """Tokens per second over the twin's; None where either holds nothing, or there are bounds alone."""
    if not all(sequences) or clocks[0].basis == "bounds":
        return None
    own, other = (clock.decode_terms(count, tokens) for clock, count in zip(clocks, sequences, strict=True))
    return times_faster(own, other).scaled(sequences[0] / sequences[1])


def show_savings(names: Sequence[str], gpu: str | None, calibration: str, *, as_json: bool) -> None:
    """The table of each model, on a screen or as one document."""
    found = {name: savings(name, gpu, calibration) for name in names}
    if as_json:
        print_json(_document(found, names, gpu, calibration))
        return
    for name, (deployment, says, rows) in found.items():
        lines = [f"{name} on {deployment.gpu} beside its own attention in every mixing layer; times {says}"]
        cells = [_cells(row) for row in rows]
        columns = ("context", "stores", "saving", "at once", "twin", "alone", "largest batches")
        print_text(lines, [Table("", columns, cells)])
        print()
    print(wrapped(
        "at once: sequences that fit, and of the twin; alone, largest batches: tokens per second over the twin's, for "
        "one sequence and for as many as fit each; the GPUs taken as one domain of fast links"
    ))  # fmt: skip


def _cells(row: Row) -> tuple[str, ...]:
    return (
        format_tokens(row.context_tokens), format_short(row.bytes),
        f"{1 - row.bytes / row.twin_bytes:.1%}", f"{row.sequences:,}", f"{row.twin_sequences:,}",
        _ratio(row.alone), _ratio(row.together),
    )  # fmt: skip


def _ratio(ratio: Interval | None) -> str:
    return "" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


def _document(
    found: dict[str, tuple[Deployment, str, list[Row]]], names: Sequence[str], gpu: str | None, calibration: str
) -> dict[str, Any]:
    tables = [
        {
            "model": name, "gpu": deployment.gpu, "times": says,
            "rows": [
                {
                    "context_tokens": row.context_tokens, "bytes": row.bytes, "twin_bytes": row.twin_bytes,
                    "saving": 1 - row.bytes / row.twin_bytes, "sequences": row.sequences,
                    "twin_sequences": row.twin_sequences, "faster_alone": _ends(row.alone),
                    "faster_at_largest_batches": _ends(row.together),
                }
                for row in rows
            ],
        }
        for name, (deployment, says, rows) in found.items()
    ]  # fmt: skip
    inputs = {"models": list(names), "gpu": gpu, "calibration": calibration}
    return {
        "schema": "kvplan.savings/1", "kvplan_version": __version__, "inputs": inputs,
        "assumptions": ["the twin has the model's own weights", "GPUs of one replica share one domain of fast links"],
        "models": tables,
    }  # fmt: skip


def _ends(ratio: Interval | None) -> dict[str, Any] | None:
    return None if ratio is None else {"value": ratio.value, "low": ratio.low, "high": ratio.high, "how": ratio.how}
