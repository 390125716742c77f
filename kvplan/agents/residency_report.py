"""`kvplan agents residency`: how many open sessions find their contexts again, and where that ends: the knee."""

import dataclasses
from dataclasses import dataclass
from math import isfinite
from typing import Any

from kvplan.agents.cache_content import ContentOutcome, replay_content
from kvplan.agents.cache_store import EVICTIONS, Eviction
from kvplan.agents.columns import GAP_CAP_S, columns_of, read_columns
from kvplan.agents.generate import generate
from kvplan.agents.knee import Knee, Loop, Row, find_knee, rows_of
from kvplan.agents.pools import SessionPool, pool_of
from kvplan.agents.report import find_profile
from kvplan.agents.residency import MOST_REQUESTS, Conversation, conversations
from kvplan.agents.traces import Trace, open_trace
from kvplan.capacity import evaluate
from kvplan.document import Assumption
from kvplan.engines.base import Reuse
from kvplan.errors import NO, YES, UsageError
from kvplan.model import Model
from kvplan.plan import settle

MADE_SESSIONS = 400
"""Sessions that are made up from a profile; a simulation goes through them again where it needs more."""
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Pools that a trace without sessions is replayed in, in parts of the deployment's."""


@dataclass(frozen=True, slots=True)
class ResidencyOptions:
    """What is asked beside the deployment, under the names of the flags."""

    sessions: tuple[int, ...] = ()
    eviction: Eviction = "lru"
    retention: str = "auto"
    """sparse, dense, or the deployment's own."""
    keep: float = 0.9
    """The knee: where less than this part of the hit rate without limits is left."""
    hours: float = 3.0
    runs: int = 2
    seed: int = 0
    gap_cap_s: float = GAP_CAP_S
    subagents: bool = False
    beyond: bool = False
    """Simulate past the knee too."""

    def __post_init__(self) -> None:
        if self.eviction not in EVICTIONS:
            raise UsageError(f"--eviction {self.eviction[:40]!r}: use {', '.join(EVICTIONS)}")
        if self.retention not in ("auto", "sparse", "dense"):
            raise UsageError(f"--retention {self.retention[:40]!r}: use auto, sparse or dense")
        ranges = (("keep", 0.01, 1.0), ("hours", 0.01, 1000.0), ("runs", 1, 100), ("gap_cap_s", 0, 1e9))
        for name, low, high in ranges:
            value = getattr(self, name)
            if not (isfinite(value) and low <= value <= high):
                raise UsageError(f"--{name.removesuffix('_s').replace('_', '-')} {value:g}: from {low:g} to {high:g}")
        if len(self.sessions) > 20 or not all(1 <= count <= 1 << 20 for count in self.sessions):
            raise UsageError("--sessions: up to 20 whole numbers above 0, for example 16,24,32")


@dataclass(frozen=True, slots=True)
class ResidencyReport:
    """Schema `kvplan.residency/1`. `knee` where the workload has sessions, `contents` where prompts share blocks."""

    inputs: dict[str, Any]
    pool: SessionPool
    reuse: Reuse | None
    workload: str
    source: str
    knee: Knee | None
    rows: tuple[Row, ...]
    contents: tuple[ContentOutcome, ...]
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 where at least one session is found again, or the trace has none."""
        return YES if self.knee is None or self.knee.sessions else NO


def parse_options(sessions: str | None, eviction: str, retention: str, **numbers: Any) -> ResidencyOptions:
    """The options as they are typed. Raises UsageError naming the flag."""
    try:
        counts = tuple(int(part) for part in sessions.split(",")) if sessions is not None else ()
    except ValueError:
        raise UsageError(f"--sessions {str(sessions)[:40]!r}: whole numbers, for example 16,24,32") from None
    chosen: Any = eviction
    return ResidencyOptions(counts, chosen, retention, **numbers)


def residency_report(
    model: str | Model, workload: str, *, flags: dict[str, Any], options: ResidencyOptions, notes: list[Assumption]
) -> ResidencyReport:
    """Open sessions of `workload` (a profile's name or a trace's path) on `model` under the flags of `estimate`.

    Raises UsageError where nothing is found again whatever the pool, and where the workload does not say what prompts
    share or how long pauses are.
    """
    read, deployment, gpu, contexts = settle(model, **flags)
    limit = deployment.max_model_len or contexts[-1]
    now = evaluate(read, deployment, gpu, [limit])
    pool = pool_of(read, now, limit)
    assert now.pool is not None and now.share is not None, "pool_of refuses without"
    reuse = now.engine.reuse(now.share, now.pool.bytes, now.deployment, limit)
    reuse = _retained(reuse, options.retention)
    trace = None if find_profile(workload) is not None else open_trace(workload)
    asked = {"model": read.name, "workload": workload, **dataclasses.asdict(options), **flags}
    head = (asked, pool, reuse, trace.path.name if trace else workload)
    if trace is not None and trace.form.block_tokens is not None and not _continues(trace, options):
        contents = _contents(trace, reuse)
        source = f"{trace.form.title}, {trace.requests:,} requests"
        return ResidencyReport(*head, source, None, (), contents, (*notes, *_whole(reuse)), tuple(trace.notes()))
    sessions, source = _sessions(workload, trace, options, limit)
    loop = Loop(sessions, pool, reuse, options.eviction, options.hours, options.runs, options.seed)
    knee = find_knee(loop, options.keep)
    rows = rows_of(loop, knee, options.sessions, options.beyond)
    said = (*(trace.notes() if trace else ()), *_too_short(loop, options))
    return ResidencyReport(*head, source, knee, rows, (), (*notes, *_rests_on(reuse, options, loop)), said)


def _too_short(loop: Loop, options: ResidencyOptions) -> tuple[str, ...]:
    """What begins all at once has to end before hit rates are those of sessions of all ages."""
    if loop.cut:
        return (f"simulations ended at {MOST_REQUESTS:,} requests, before the {options.hours:g} h of --hours",)
    whole_s = float(loop.load.rest_s.sum()) / loop.load.sessions
    if options.hours * 3600 >= whole_s:
        return ()
    return (
        f"--hours {options.hours:g} is shorter than a session, {whole_s / 3600:.2g} h on average: all of them are "
        "young and small, and more seem to be found again than are",
    )


def _retained(reuse: Reuse | None, asked: str) -> Reuse | None:
    if reuse is None or asked == "auto":
        return reuse
    if not reuse.state_units:
        raise UsageError(f"--retention {asked}: this pool keeps no states in blocks, so there is nothing to thin out")
    return dataclasses.replace(reuse, retention_tokens=0 if asked == "sparse" else None)


def _continues(trace: Trace, options: ResidencyOptions) -> bool:
    """Whether prompts of a trace with blocks also continue one another as sessions."""
    return bool((columns_of(trace, subagents=options.subagents).shared_tokens >= 0).any())


def _contents(trace: Trace, reuse: Reuse | None) -> tuple[ContentOutcome, ...]:
    if reuse is None:
        raise UsageError("this trace has no sessions, and this engine's blocks are not modelled; use vllm or sglang")
    size = trace.form.block_tokens or 0
    requests = list(trace)
    if not any(request.blocks for request in requests):
        raise UsageError("the prompts of this trace have no block hashes; residency needs what they share")
    return tuple(
        replay_content(requests, size, reuse, None if scale is None else int(reuse.capacity * scale))
        for scale in (*SCALES, None)
    )


def _sessions(
    workload: str, trace: Trace | None, options: ResidencyOptions, limit: int
) -> tuple[list[Conversation], str]:
    if trace is not None:
        columns = columns_of(trace, subagents=options.subagents)
        found = conversations(columns, options.gap_cap_s, limit)
        return found, f"{trace.form.title}, {trace.requests:,} requests"
    profile = find_profile(workload)
    assert profile is not None, "a workload is a trace or a profile"
    if profile.table("requests_per_session") is None:
        raise UsageError(f"workload {profile.name} has no conversations to come back to; use a trace or coding-agent")
    if options.subagents:
        raise UsageError("--subagents needs a trace: a profile is of main agents alone")
    columns = read_columns(generate(profile, MADE_SESSIONS, options.seed))
    return conversations(columns, options.gap_cap_s, limit), f"{profile.source.title}, sessions made up from it"


def _whole(reuse: Reuse | None) -> tuple[Assumption, ...]:
    return reuse.assumptions if reuse is not None else ()


def _rests_on(reuse: Reuse | None, options: ResidencyOptions, loop: Loop) -> tuple[Assumption, ...]:
    found = [
        Assumption("closed_loop", None, "assumed", "a session that ends makes room for another; all begin at once"),
        Assumption("service_s", None, "assumed", "misses do not make a service longer"),
        Assumption("answers", None, "assumed", "answers are new text to the next prompt"),
        Assumption("sharing", None, "assumed", "sessions share nothing, not even tools"),
        Assumption("gap_cap_s", options.gap_cap_s, "assumed", f"a pause counts for at most {options.gap_cap_s:g} s"),
    ]
    if options.eviction != "lru":
        why = f"{options.eviction}, as a rule that could be: engines evict what was used longest ago"
        found.append(Assumption("eviction", options.eviction, "assumed", why))
    if reuse is None:
        found.append(Assumption("whole_sessions", None, "assumed", "a context is kept whole or not at all"))
    if loop.scaled:
        why = f"pools for more than {loop.most_clients} sessions are simulated in proportion"
        found.append(Assumption("scaled_clients", loop.most_clients, "assumed", why))
    return (*found, *_whole(reuse))
