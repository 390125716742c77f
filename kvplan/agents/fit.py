"""A workload profile measured on a trace."""

from dataclasses import asdict
from pathlib import Path
from statistics import NormalDist

import numpy as np

from kvplan.agents.columns import GAP_CAP_S, Columns, Floats, Ints, columns_of
from kvplan.agents.quantiles import PERCENTS, Quantiles, measure
from kvplan.agents.traces import Trace
from kvplan.agents.workload import Origin, Workload, parse_workload

_USER, _TOOL = 0, 1


def fit_workload(trace: Trace, name: str, *, subagents: bool = False, origin: Origin | None = None) -> Workload:
    """The tables of a trace: main agents alone unless `subagents`. Raises SourceError where no request is in it."""
    columns = columns_of(trace, subagents=subagents)
    return workload_of(columns, name, f"measured on {trace.path.name}", origin or _unnamed(trace.path))


def _unnamed(path: Path) -> Origin:
    return Origin(title=path.name, url="", date="", licence="unknown", note="fitted by `kvplan workloads fit`")


def workload_of(columns: Columns, name: str, title: str, origin: Origin) -> Workload:
    """The tables of these requests; those that need sessions or times are absent where there are none."""
    known = (columns.trigger >= 0) & ~columns.first
    held = columns.held_ms()
    served = np.nan_to_num(columns.service_s, nan=0.0).sum() * 1000
    user = (columns.trigger == _USER) & ~columns.first
    document = {
        "schema": "kvplan.workload/1",
        "name": name,
        "title": title,
        "requests": len(columns.stream),
        "sessions": columns.sessions,
        "percents": PERCENTS,
        "tables": {key: asdict(found) for key, found in _tables(columns).items() if found is not None},
        "user_share": round(float(user.sum() / known.sum()), 4) if known.any() else None,
        "session_share": _session_share(columns),
        "duty": round(float(served / held.sum()), 4) if columns.timed and served else None,
        "session_s": float(f"{held.sum() / 1000 / columns.sessions:.4g}") if columns.timed and served else None,
        "gap_cap_s": GAP_CAP_S if columns.timed else None,
        "source": origin.model_dump(),
    }
    return parse_workload(document, f"--name {name[:60]}")


def _tables(columns: Columns) -> dict[str, Quantiles | None]:
    continued = ~columns.first
    paused = columns.pause_s[continued & np.isfinite(columns.pause_s)]
    known = (columns.trigger >= 0) & continued
    return {
        "context_tokens": measure(columns.context_tokens),
        "context_tokens_by_time": measure(columns.context_tokens, columns.held_ms()) if columns.timed else None,
        "input_tokens": measure(columns.input_tokens),
        "output_tokens": measure(columns.output_tokens),
        "new_tokens": measure((columns.input_tokens - columns.shared_tokens)[continued & (columns.shared_tokens >= 0)]),
        "service_s": measure(columns.service_s[np.isfinite(columns.service_s)]),
        "tool_pause_s": _pauses(columns, _TOOL) if known.any() else None,
        "user_pause_s": _pauses(columns, _USER) if known.any() else measure(paused),
        "requests_per_session": measure(np.bincount(columns.stream)) if continued.any() else None,
        "session_peak_tokens": measure(_peaks(columns)) if continued.any() else None,
        "preamble_tokens": measure(columns.preamble_tokens[columns.first & (columns.preamble_tokens >= 0)]),
    }


def _pauses(columns: Columns, trigger: int) -> Quantiles | None:
    return measure(columns.pause_s[(columns.trigger == trigger) & ~columns.first & np.isfinite(columns.pause_s)])


def _peaks(columns: Columns) -> Ints:
    peaks: Ints = np.zeros(int(columns.stream.max()) + 1, dtype=np.int64)
    np.maximum.at(peaks, columns.stream, columns.context_tokens)
    return peaks


def normal_scores(values: Ints) -> Floats:
    """Ranks as a normal distribution has them; equal values share the middle of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = (np.cumsum(counts) - counts / 2) / len(values)
    normal = NormalDist()
    scores = np.array([normal.inv_cdf(share) for share in middle])
    found: Floats = scores[inverse]
    return found


def _session_share(columns: Columns) -> float:
    """Variance of the conversations' mean scores over that of all scores."""
    scores = normal_scores(columns.context_tokens)
    sizes = np.bincount(columns.stream)
    if sizes.max() < 2 or scores.var() == 0:
        return 0.0
    means = np.bincount(columns.stream, weights=scores) / sizes
    return round(float(np.clip((sizes * (means - scores.mean()) ** 2).sum() / (len(scores) * scores.var()), 0, 1)), 4)
