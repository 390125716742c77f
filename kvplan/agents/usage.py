"""What a workload says about idle sessions: how long contexts are, how long pauses last, how much is reused."""

from dataclasses import dataclass

import numpy as np

from kvplan.agents.columns import GAP_CAP_S, Columns, Floats, columns_of
from kvplan.agents.contexts import Contexts, Weighting, contexts_of_trace, contexts_of_workload
from kvplan.agents.quantiles import midpoints
from kvplan.agents.report import find_profile
from kvplan.agents.traces import open_trace
from kvplan.agents.workload import Workload

POINTS = 8192
_CLASSES = {"tool": 1, "user": 0}


@dataclass(frozen=True, slots=True)
class Usage:
    """One workload, from a profile's tables or from a trace."""

    name: str
    source: str
    by_time: Contexts
    """Weighted by how long each stands; by request where nothing is timed."""
    by_request: Contexts
    pauses_s: dict[str, Floats]
    """Equally likely pauses, ascending, by what ends them: "tool" and "user", or "any" where the workload does not say.
    Empty without sessions."""
    reuse: float | None
    """Tokens that resumes share with the prompt before them, per token that is new; None where nothing says so."""
    has_sessions: bool
    warnings: tuple[str, ...] = ()

    @property
    def median_tokens(self) -> int:
        """Of a request: prompt and answer."""
        return int(self.by_request.tokens[len(self.by_request.tokens) // 2])


def read_usage(workload: str, weighting: Weighting = "time", gap_cap_s: float | None = None) -> Usage:
    """The profile of that name or file, or the trace of that path. Raises as `sessions_report` does."""
    profile = find_profile(workload)
    if profile is not None:
        return _of_profile(profile, weighting)
    trace = open_trace(workload)
    columns = columns_of(trace)
    cap = GAP_CAP_S if gap_cap_s is None else gap_cap_s
    return Usage(
        name=trace.path.name,
        source=f"{trace.form.title}, {trace.requests:,} requests",
        by_time=contexts_of_trace(columns, weighting, cap),
        by_request=contexts_of_trace(columns, "request"),
        pauses_s=_pauses_of_trace(columns),
        reuse=_reuse(columns),
        has_sessions=bool((columns.previous >= 0).any()),
        warnings=tuple(trace.notes()),
    )


def _of_profile(profile: Workload, weighting: Weighting) -> Usage:
    shares = midpoints(POINTS)
    found = {name: profile.table(f"{name}_pause_s") for name in _CLASSES}
    tables = {name: table.at(shares) for name, table in found.items() if table is not None}
    if set(tables) == {"user"} and profile.user_share is None:
        tables = {"any": tables["user"]}
    prompt, new = profile.table("input_tokens"), profile.table("new_tokens")
    return Usage(
        name=profile.name,
        source=profile.source.title,
        by_time=contexts_of_workload(profile, weighting),
        by_request=contexts_of_workload(profile, "request"),
        pauses_s=tables,
        reuse=max(0.0, prompt.mean / new.mean - 1) if prompt is not None and new is not None and new.mean else None,
        has_sessions=profile.requests > profile.sessions,
    )


def _pauses_of_trace(columns: Columns) -> dict[str, Floats]:
    again = (columns.previous >= 0) & np.isfinite(columns.pause_s)
    classes = {name: again & (columns.trigger == number) for name, number in _CLASSES.items()}
    if not any(mask.any() for mask in classes.values()):
        classes = {"any": again}
    return {name: np.sort(columns.pause_s[mask]) for name, mask in classes.items() if mask.any()}


def _reuse(columns: Columns) -> float | None:
    known = (columns.shared_tokens >= 0) & (columns.previous >= 0)
    shared = int(columns.shared_tokens[known].sum())
    new = int(columns.input_tokens[known].sum()) - shared
    return shared / new if known.any() and new > 0 else None
