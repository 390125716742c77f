"""Questions about agents, answered as documents: what was asked, what it rests on, and the figures."""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from kvplan.agents.columns import GAP_CAP_S, columns_of
from kvplan.agents.contexts import Contexts, Weighting, contexts_of_trace, contexts_of_workload
from kvplan.agents.fit import fit_workload
from kvplan.agents.pools import SessionPool, session_pool
from kvplan.agents.sessions import RISKS, Sessions, count_sessions
from kvplan.agents.traces import open_trace
from kvplan.agents.workload import Workload, find_workload, read_workload, to_toml
from kvplan.document import Assumption
from kvplan.errors import NO, YES, UsageError
from kvplan.files import write_text
from kvplan.model import Model
from kvplan.sources.strict import shown

MAX_GAP_S = 1e9


@dataclass(frozen=True, slots=True)
class SessionsReport:
    """`kvplan agents sessions`, schema `kvplan.sessions/1`."""

    inputs: dict[str, Any]
    pool: SessionPool
    workload: str
    source: str
    sessions: Sessions
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """0 where the pool holds a session at the least of the risks."""
        return YES if self.sessions.at_risk[-1].sessions else NO


def sessions_report(
    model: str | Model,
    workload: str,
    *,
    flags: dict[str, Any],
    weighting: str = "time",
    gap_cap_s: float | None = None,
    risk: str | None = None,
    subagents: bool = False,
    seed: int = 0,
    notes: list[Assumption] | None = None,
) -> SessionsReport:
    """Sessions of `workload` (a profile's name or a trace's path) on `model` under the flags of `kvplan estimate`."""
    if weighting not in get_args(Weighting):
        raise UsageError(f"--weighting {weighting[:40]!r}: use time or request")
    if gap_cap_s is not None and not 0 <= gap_cap_s <= MAX_GAP_S:
        raise UsageError(f"--gap-cap {gap_cap_s}: seconds, 0 to {MAX_GAP_S:,.0f}")
    risks = parse_risks(risk)
    chosen: Weighting = "time" if weighting == "time" else "request"
    contexts, name, source, warnings = read_contexts(workload, chosen, gap_cap_s, subagents)
    pool = session_pool(model, **flags)
    found = count_sessions(pool, contexts, risks, seed)
    asked = {
        "model": pool.model.name, "workload": workload, "weighting": weighting, "gap_cap_s": gap_cap_s,
        "risks": list(risks), "subagents": subagents, "seed": seed,
    }  # fmt: skip
    return SessionsReport(
        inputs=asked | flags,
        pool=pool,
        workload=name,
        source=source,
        sessions=found,
        assumptions=(*(notes or ()), *_rests_on(pool, seed), *found.assumptions),
        warnings=warnings,
    )


def _rests_on(pool: SessionPool, seed: int) -> tuple[Assumption, ...]:
    how: Literal["given", "derived"] = "given" if pool.pool_source == "given" else "derived"
    return (
        Assumption("pool_bytes", pool.pool_bytes, how, "per rank"),
        Assumption("seed", seed, "given", "of the draws; sessions are drawn apart from each other"),
    )


def parse_risks(text: str | None) -> tuple[float, ...]:
    """`50,10,0.1` per cent as shares, the largest first."""
    if text is None:
        return RISKS
    try:
        found = sorted({float(part) / 100 for part in text.split(",")}, reverse=True)
    except ValueError:
        found = [math.nan]
    if not all(0.0001 <= share <= 0.9999 for share in found) or len(found) > 20:
        raise UsageError(f"--risk {text[:40]!r}: up to 20 percentages from 0.01 to 99.99, for example 10,1,0.1")
    return tuple(found)


def read_contexts(
    workload: str, weighting: Weighting, gap_cap_s: float | None, subagents: bool
) -> tuple[Contexts, str, str, tuple[str, ...]]:
    """Contexts, the workload's name, its source and what the reader has to say."""
    profile = find_profile(workload)
    if profile is None:
        trace = open_trace(workload)
        columns = columns_of(trace, subagents=subagents)
        found = contexts_of_trace(columns, weighting, GAP_CAP_S if gap_cap_s is None else gap_cap_s)
        return found, trace.path.name, f"{trace.form.title}, {trace.requests:,} requests", tuple(trace.notes())
    if gap_cap_s is not None and gap_cap_s != profile.gap_cap_s:
        raise UsageError("--gap-cap needs a trace: a profile's table by time was made with its own cap")
    if subagents:
        raise UsageError("--subagents needs a trace: a profile is of main agents alone")
    return contexts_of_workload(profile, weighting), profile.name, profile.source.title, ()


def find_profile(workload: str) -> Workload | None:
    """A profile by name, or a TOML file; None where a trace's path was given."""
    if workload.lower().endswith(".toml") and os.path.exists(workload):
        return read_workload(Path(workload))
    return None if os.path.exists(workload) else find_workload(workload)


def fit_report(trace: str, name: str, *, subagents: bool, out: str | None) -> tuple[Workload, list[str]]:
    """The profile of a trace, written to `out` where that is given, and what the reader has to say."""
    opened = open_trace(trace)
    fitted = fit_workload(opened, name, subagents=subagents)
    if out is not None:
        write_text(Path(out), to_toml(fitted), shown(out))
    return fitted, opened.notes()
