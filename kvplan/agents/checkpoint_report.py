"""`kvplan agents checkpoints`: policies on a trace, with the bytes that they cost on this model."""

import dataclasses
from dataclasses import dataclass
from math import isfinite
from typing import Any

from kvplan.agents.branches import BlockOutcome, replay_blocks
from kvplan.agents.checkpoints import Economics, Outcome, Resumes, policies, replay, resumes_of
from kvplan.agents.columns import columns_of
from kvplan.agents.screen import document, warn
from kvplan.agents.traces import Trace, open_trace
from kvplan.capacity import evaluate
from kvplan.document import Assumption
from kvplan.errors import UsageError
from kvplan.ledger import Holding
from kvplan.model import Model
from kvplan.plan import settle
from kvplan.tables import Table, print_json, print_text
from kvplan.units import format_short

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

    prefill_rate: float | None = None
    """Tokens per second of one replica."""
    byte_price: float | None = None
    """Per GB (10^9) and hour, where snapshots are kept."""
    gpu_price: float | None = None
    """Per hour of one replica."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value > 0):
                raise UsageError(f"--{name.replace('_', '-')} {value}: a number above 0")


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
    opened = open_trace(trace)
    columns = columns_of(opened)
    linear = bool((columns.shared_tokens >= 0).any())
    outcomes = tuple(replay(columns, policy) for policy in policies(block_tokens)) if linear else ()
    resumes = resumes_of(columns) if linear else None
    size = opened.form.block_tokens
    blocks = {} if linear or size is None else {
        name: replay_blocks(opened, size, **how) for name, how in BLOCK_POLICIES.items()
    }  # fmt: skip
    if not linear and not blocks:
        raise UsageError(f"--workload {opened.path.name}: this trace does not say what prompts share")
    mean = round(float(columns.input_tokens.mean()))
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
        optimum_tokens=_optimum(resumes, mean, snapshot, prices),
        prices=prices,
        assumptions=(*notes, *_ASSUMED),
    )


def _optimum(resumes: Resumes | None, context_tokens: int, snapshot: int, prices: Prices) -> dict[str, float]:
    rate, byte, gpu = prices.prefill_rate, prices.byte_price, prices.gpu_price
    if (
        resumes is None
        or resumes.per_open_second is None
        or rate is None
        or byte is None
        or gpu is None
        or not snapshot
    ):
        return {}
    found = {}
    for name, share in (("mid_history", resumes.beyond_preamble), ("every_resume", 1.0)):
        one = Economics(
            context_tokens, snapshot, rate, byte / 1e9 / 3600, gpu / 3600, resumes.per_open_second, share
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
    return [*lines, "CAPACITY   infinite: a snapshot is there once it was made"]


def _table(report: CheckpointReport) -> Table:
    if report.blocks:
        found = [(name, f"{one.token_hit:.3f}", f"{one.snapshots:,}") for name, one in report.blocks.items()]
        return Table("POLICIES", ("", "token hit", "snapshots"), found)
    rate = report.prices.prefill_rate
    head = ("", "hit", "prefill", "replay", "snapshots", "bytes", *(("lost s",) if rate else ()))
    rows = [
        (
            one.policy.name, f"{one.token_hit:.3f}", f"{one.prefill_tokens:,.0f}", f"{one.replay_tokens:,.0f}",
            f"{one.snapshots:,.1f}", format_short(_bytes(report, one)),
            *((f"{one.replay_tokens / rate:.2f}",) if rate else ()),
        )
        for one in report.outcomes
    ]  # fmt: skip
    return Table("POLICIES: tokens a request, snapshots a session", head, rows)
