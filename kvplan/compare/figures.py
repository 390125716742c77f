"""A comparison in exact figures, schema kvplan.compare/1."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvplan import __version__
from kvplan.cases import Asked, Case, Refused, read_cases
from kvplan.document import Times

SCHEMA = "kvplan.compare/1"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was asked, what could be worked out, and what was refused; in the order asked."""

    labels: tuple[str, ...]
    inputs: dict[str, Any]
    cases: tuple[Case, ...]
    refused: tuple[Refused, ...]

    @property
    def contexts(self) -> list[int]:
        """Every length that some column was worked out for, ascending."""
        return sorted({tokens for case in self.cases for tokens in case.contexts})

    def document(self) -> dict[str, Any]:
        shared = self.cases[0].plan.assumptions
        common = [one for one in shared if all(one in case.plan.assumptions for case in self.cases)]
        own = {
            case.label: [asdict(one) for one in case.plan.assumptions if one not in common] for case in self.cases
        }  # fmt: skip
        return {
            "schema": SCHEMA,
            "kvplan_version": __version__,
            "inputs": self.inputs,
            "assumptions": [asdict(one) for one in common],
            "columns": [figures_of(case) | {"assumptions": own[case.label]} for case in self.cases],
            "refused": [asdict(one) for one in self.refused],
        }


def compare(columns: Sequence[Asked], inputs: dict[str, Any]) -> Comparison:
    """Work every column out. Raises UsageError where none can be."""
    cases, refused = read_cases(columns)
    return Comparison(tuple(one.label for one in columns), inputs, tuple(cases), tuple(refused))


def figures_of(case: Case) -> dict[str, Any]:
    """One column in exact figures; a figure that does not apply is null."""
    made, last = case.plan, case.plan.per_sequence[-1]
    capacity = {row.context_tokens: row for row in made.capacity}
    ranks = {row.context_tokens: row for row in made.per_rank.sequences} if made.per_rank else {}
    return {
        "label": case.label,
        "model": made.model.name,
        "gpu": made.inputs["gpu"],
        "layout": made.per_rank.layout if made.per_rank else None,
        "engine": {"name": made.engine["name"], "rules_version": made.engine["rules_version"]} if made.engine else None,
        "layers": made.model.layers,
        "params_total": made.model.params_total,
        "params_active": made.model.params_active,
        "weights_bytes": made.model.weights_bytes,
        "max_context_tokens": made.model.max_context_tokens,
        "kv_cache_dtype": made.inputs["kv_cache_dtype"],
        "mamba_ssm_dtype": made.inputs["mamba_ssm_dtype"] if last.state_bytes else None,
        "bytes_per_token": last.bytes_per_token,
        "state_bytes": last.state_bytes + last.conv_bytes,
        "window_bytes": last.window_bytes,
        "baseline": last.baseline.name if last.baseline else None,
        "break_even_tokens": made.crossings.break_even_tokens,
        "weights_bytes_per_gpu": made.per_rank.weights_bytes if made.per_rank else None,
        "pool_bytes": made.pool.bytes if made.pool else None,
        "pool_low_bytes": made.pool.low_bytes if made.pool else None,
        "pool_high_bytes": made.pool.high_bytes if made.pool else None,
        "fits": made.verdict.fits if made.verdict else None,
        "contexts": [
            {
                "context_tokens": row.context_tokens,
                "total_bytes": row.total_bytes,
                "saving": row.saving,
                "rank_bytes": ranks[row.context_tokens].total_bytes if row.context_tokens in ranks else None,
                **_counts(capacity.get(row.context_tokens)),
                **_times(made.latency, row.context_tokens, fits=_fits(capacity.get(row.context_tokens))),
            }
            for row in made.per_sequence
        ],
    }


def _counts(row: Any) -> dict[str, Any]:
    names = ("sequences", "low", "high", "ideal", "deployment_sequences", "binds")
    return {name: getattr(row, name) if row is not None else None for name in names}


def _fits(row: Any) -> bool:
    return row is None or row.sequences > 0


def _times(part: Times | None, tokens: int, *, fits: bool) -> dict[str, Any]:
    """Milliseconds a token at the most sequences at once, seconds to the first token of a cold session.

    Null where not one sequence fits.
    """
    if not fits:
        return {"tpot_ms": None, "ttft_s": None}
    steps = [row for row in part.decode if row.context_tokens == tokens] if part else []
    firsts = [row for row in part.first_token if row.context_tokens == tokens] if part else []
    return {
        "tpot_ms": asdict(steps[-1].tpot_ms) if steps else None,
        "ttft_s": asdict(firsts[-1].cold_s) if firsts else None,
    }
