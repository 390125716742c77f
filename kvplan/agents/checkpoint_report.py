"""`kvplan agents checkpoints`: policies on a trace, with the bytes that they cost on this model."""

import dataclasses
import os
from dataclasses import dataclass
from math import isfinite
from typing import Any

from kvplan.agents.branches import BlockOutcome, replay_blocks
from kvplan.agents.checkpoint_flags import Advice, advise
from kvplan.agents.checkpoints import Economics, Outcome, Policy, Resumes, lost_s, policies, replay, resumes_of
from kvplan.agents.columns import Columns, columns_of
from kvplan.agents.idle import read_replica
from kvplan.agents.prefill import ConstantRate, Prefill, check_rate, find_prefill
from kvplan.agents.screen import document, warn
from kvplan.agents.tiers_report import gpu_price, price_assumption
from kvplan.agents.traces import Trace, open_trace
from kvplan.agents.workload import list_workloads
from kvplan.capacity import evaluate
from kvplan.deployment import Fleet
from kvplan.document import Assumption
from kvplan.errors import UsageError
from kvplan.gpu import Gpu
from kvplan.interval import Interval
from kvplan.ledger import Holding
from kvplan.model import Model
from kvplan.plan import settle
from kvplan.tables import Table, print_json, print_text
from kvplan.units import format_short

MOST_BYTE_PRICE = 1e6

BLOCK_POLICIES: dict[str, dict[str, Any]] = {
    "every token": {"everywhere": True},
    "prompt end": {"prompt_end": True},
    "prompt end, branch points": {"prompt_end": True, "branches": True},
    "every 8 blocks": {"every_blocks": 8},
    "every 16 blocks": {"every_blocks": 16},
}

_ASSUMED = (
    Assumption("capacity", None, "assumed", "infinite: a snapshot is there once it was made"),
    Assumption("decode_end", None, "assumed", "the template replays answers as they were"),
    Assumption("preamble", None, "assumed", "another session has left its snapshot before the first request"),
)


@dataclass(frozen=True, slots=True)
class Prices:
    """What the optimum interval needs beside the trace; None where it was not given."""

    prefill_tokens_per_s: float | None = None
    """Tokens per second of one replica."""
    byte_price: float | None = None
    """Per GB (10^9) and hour, where snapshots are kept."""
    gpu_price: str | None = None
    """Per hour of one GPU, as it is typed: 3.5/h, or B300=6/h."""

    def __post_init__(self) -> None:
        check_rate(self.prefill_tokens_per_s)
        if self.byte_price is not None and not (isfinite(self.byte_price) and 0 < self.byte_price <= MOST_BYTE_PRICE):
            raise UsageError(f"--byte-price {self.byte_price}: above 0, at most {MOST_BYTE_PRICE:,}")

    def replica_hour(self, gpu: Gpu | None, fleet: Fleet | None) -> float | None:
        """What all GPUs of a replica cost an hour. Raises UsageError where nothing says how many these are."""
        if self.gpu_price is None:
            return None
        if fleet is None:
            raise UsageError("--gpu-price is of one GPU and hour; name the GPUs of a replica, for example --gpu B300:8")
        return gpu_price(self.gpu_price, gpu) * fleet.layout.tp * fleet.layout.pp

    def assumptions(self, gpu: Gpu | None, fleet: Fleet | None) -> tuple[Assumption, ...]:
        """What was typed, in its unit."""
        found = []
        if self.byte_price is not None:
            found.append(Assumption("byte_price", self.byte_price, "given", "--byte-price, per GB (10^9) and hour"))
        if self.gpu_price is not None and fleet is not None:
            gpus = fleet.layout.tp * fleet.layout.pp
            found.append(price_assumption(self.gpu_price, gpu_price(self.gpu_price, gpu)))
            found.append(Assumption("replica_gpus", gpus, "derived", "what a replica costs an hour is their price"))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """`outcomes` where prompts continue one another, `blocks` where openings are shared; kvplan.checkpoints/1."""

    inputs: dict[str, Any]
    model: str
    trace: Trace
    snapshot_bytes: int
    state_dtype: str
    outcomes: tuple[Outcome, ...]
    blocks: dict[str, BlockOutcome]
    resumes: Resumes | None
    lost_s: dict[str, Interval]
    """Per policy: prefill seconds a request that replays take; empty where nothing says how fast a replica is."""
    advice: Advice | None
    optimum_tokens: dict[str, float]
    """For the measured share of resumes that need a snapshot in mid-history, and for all of them."""
    prices: Prices
    assumptions: tuple[Assumption, ...]


def checkpoint_report(
    model: str | Model, trace: str, *, flags: dict[str, Any], block_tokens: int, prices: Prices, notes: list[Assumption]
) -> CheckpointReport:
    """Replay every policy on the trace. Raises UsageError where the trace says nothing about shared prefixes."""
    read, deployment, gpu, contexts = settle(model, **flags)
    now = evaluate(read, deployment, gpu, contexts)
    snapshot = Holding(read.mixers(), now.dtypes).snapshot_bytes()
    opened = _trace(trace)
    columns = columns_of(opened)
    linear = bool((columns.shared_tokens >= 0).any())
    resumes = resumes_of(columns) if linear else None
    mean = round(float(columns.input_tokens.mean()))
    optimum = _optimum(resumes, mean, snapshot, prices, prices.replica_hour(gpu, now.fleet))
    advice = advise(now, optimum, mean, snapshot)
    asked = _on_grid(policies(block_tokens), advice)
    outcomes = tuple(replay(columns, policy) for policy in asked) if linear else ()
    blocks = {} if linear else _by_blocks(opened)
    prefill, rests_on = _prefill(read, flags, prices.prefill_tokens_per_s, now.pool is not None)
    return CheckpointReport(
        inputs={
            "model": read.name,
            "workload": trace,
            "block_tokens": block_tokens,
            **dataclasses.asdict(prices),
            **flags,
        },
        model=read.name,
        trace=opened,
        snapshot_bytes=snapshot,
        state_dtype=str(now.dtypes.state),
        outcomes=outcomes,
        blocks=blocks,
        resumes=resumes,
        lost_s=_lost(columns, outcomes, prefill),
        advice=advice,
        optimum_tokens=optimum,
        prices=prices,
        assumptions=(*notes, *rests_on, *prices.assumptions(gpu, now.fleet), *_ASSUMED),
    )


def _trace(path: str) -> Trace:
    if not os.path.exists(path) and path in {one.name for one in list_workloads()}:
        raise UsageError(f"--workload {path}: a profile's percentiles do not say what prompts share; give a trace")
    return open_trace(path)


def _by_blocks(trace: Trace) -> dict[str, BlockOutcome]:
    size = trace.form.block_tokens
    if size is None:
        raise UsageError(f"--workload {trace.path.name}: this trace does not say what prompts share")
    return {name: replay_blocks(trace, size, **how) for name, how in BLOCK_POLICIES.items()}


def _on_grid(known: tuple[Policy, ...], advice: Advice | None) -> tuple[Policy, ...]:
    """Tails where this engine's own states can stand as well."""
    grid = advice.grid_tokens if advice else None
    if grid is None or any(policy.tail_block_tokens == grid and policy.tails == 2 for policy in known):
        return known
    return (*known, Policy(f"tails /{grid:,} + preamble", tails=2, tail_block_tokens=grid, preamble=True))


def _prefill(
    model: Model, flags: dict[str, Any], tokens_per_s: float | None, placed: bool
) -> tuple[Prefill | None, tuple[Assumption, ...]]:
    """A stated rate, or what is known of the replica where GPUs are named; nothing else."""
    if tokens_per_s is not None:
        rate = Interval(tokens_per_s, tokens_per_s, tokens_per_s, "assumed")
        given = Assumption("prefill_tokens_per_s", tokens_per_s, "given", "--prefill-tokens-per-s, at every length")
        return ConstantRate(rate), (given,)
    found = find_prefill(read_replica(model, **flags), None) if placed else None
    return found or (None, ())


def _lost(columns: Columns, outcomes: tuple[Outcome, ...], prefill: Prefill | None) -> dict[str, Interval]:
    return {} if prefill is None else {one.policy.name: lost_s(columns, one.policy, prefill) for one in outcomes}


def _optimum(
    resumes: Resumes | None, context_tokens: int, snapshot: int, prices: Prices, replica_hour: float | None
) -> dict[str, float]:
    rate, byte = prices.prefill_tokens_per_s, prices.byte_price
    if (
        resumes is None
        or resumes.per_open_second is None
        or rate is None
        or byte is None
        or replica_hour is None
        or not snapshot
    ):
        return {}
    found = {}
    for name, share in (("mid_history", resumes.beyond_preamble), ("every_resume", 1.0)):
        one = Economics(
            context_tokens, snapshot, rate, byte / 1e9 / 3600, replica_hour / 3600, resumes.per_open_second, share
        ).optimum_tokens()
        if isfinite(one):
            found[name] = one
    return found


def show_checkpoints(report: CheckpointReport, *, as_json: bool) -> None:
    warn(report.trace.notes())
    if as_json:
        print_json(document("kvplan.checkpoints/1", report.inputs, report.assumptions, _body(report)))
        return
    print_text(_lines(report), [_table(report)])


def _body(report: CheckpointReport) -> dict[str, Any]:
    rows = [dataclasses.asdict(one) | {"session_bytes": _bytes(report, one)} for one in report.outcomes]
    return {
        "model": {"name": report.model, "snapshot_bytes": report.snapshot_bytes, "state_dtype": report.state_dtype},
        "policies": rows,
        "block_policies": {name: dataclasses.asdict(one) for name, one in report.blocks.items()},
        "resumes": None if report.resumes is None else dataclasses.asdict(report.resumes),
        "lost_s": {name: dataclasses.asdict(one) for name, one in report.lost_s.items()},
        "advice": None if report.advice is None else dataclasses.asdict(report.advice),
        "optimum_interval_tokens": report.optimum_tokens,
        "warnings": report.trace.notes(),
    }


def _bytes(report: CheckpointReport, outcome: Outcome) -> int:
    return round(outcome.snapshots * report.snapshot_bytes)


def _lines(report: CheckpointReport) -> list[str]:
    size, resumes = report.snapshot_bytes, report.resumes
    lines = [
        f"{report.model} on {report.trace.path.name}: what saved states are worth",
        f"SNAPSHOT   {size:,} bytes of the whole model ({report.state_dtype} state)"
        if size
        else "SNAPSHOT   the model keeps no state: every token of a prefix can be resumed from",
    ]
    if resumes is not None:
        lines.append(
            f"RESUMES    {resumes.resumes:,}; {resumes.rewinds:.2%} go back more than 512 tokens, "
            f"{resumes.beyond_preamble:.2%} to a place after the preamble"
        )
    for name, tokens in report.optimum_tokens.items():
        why = "if all resumes needed one" if name == "every_resume" else "for the share that goes back into the history"
        lines.append(f"INTERVAL   {tokens:,.0f} tokens between periodic snapshots cost least {why}")
    if report.advice is not None:
        told = " ".join(report.advice.flags) or "none"
        lines += [f"FLAGS      {told}", f"WHY        {report.advice.engine}: {report.advice.reason}"]
    return [*lines, "CAPACITY   infinite: a snapshot is there once it was made"]


def _table(report: CheckpointReport) -> Table:
    if report.blocks:
        found = [(name, f"{one.token_hit:.3f}", f"{one.snapshots:,}") for name, one in report.blocks.items()]
        return Table("POLICIES", ("", "token hit", "snapshots"), found)
    lost = report.lost_s
    head = ("", "hit", "prefill", "replay", "snapshots", "bytes", *(("lost s",) if lost else ()))
    rows = [
        (
            one.policy.name, f"{one.token_hit:.3f}", f"{one.prefill_tokens:,.0f}", f"{one.replay_tokens:,.0f}",
            f"{one.snapshots:,.1f}", format_short(_bytes(report, one)),
            *((f"{lost[one.policy.name].value:.2f}",) if lost else ()),
        )
        for one in report.outcomes
    ]  # fmt: skip
    return Table("POLICIES: tokens a request, snapshots a session", head, rows)
