"""`kvplan agents workflow`: a workflow's memory on a model, and how many of it a pool holds."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvplan.agents.account import Account, account
from kvplan.agents.screen import document
from kvplan.agents.workflow import Workflow, parse_workflow
from kvplan.capacity import evaluate
from kvplan.document import Assumption
from kvplan.errors import NO, YES
from kvplan.ledger import Holding
from kvplan.model import Model
from kvplan.plan import settle
from kvplan.profiles import load
from kvplan.tables import Table, print_json, print_text
from kvplan.units import format_gib, format_short


@dataclass(frozen=True, slots=True)
class WorkflowReport:
    """Schema `kvplan.workflow_plan/1`. `rank` and what follows are None without a deployment that has a pool."""

    inputs: dict[str, Any]
    model: str
    workflow: Workflow
    whole: Account
    rank: Account | None
    pool_bytes: int | None
    fits: int | None
    """Workflows of one replica that all reach their peak at once, in bytes alone."""
    assumptions: tuple[Assumption, ...]

    @property
    def exit_code(self) -> int:
        return NO if self.fits == 0 else YES


def workflow_report(model: str | Model, path: str, *, flags: dict[str, Any], notes: list[Assumption]) -> WorkflowReport:
    """The workflow in a TOML file. Raises ProfileError for what is no workflow."""
    workflow = parse_workflow(load(Path(path)), path)
    read, deployment, gpu, contexts = settle(model, **flags)
    now = evaluate(read, deployment, gpu, contexts)
    whole = account(workflow, Holding(read.mixers(), now.dtypes))
    rank, pool = None, now.pool
    if pool is not None and now.share is not None:
        rank = max((account(workflow, one) for one in now.share.holdings()), key=lambda one: one.peak.bytes)
    return WorkflowReport(
        inputs={"model": read.name, "workflow": path, **flags},
        model=read.name,
        workflow=workflow,
        whole=whole,
        rank=rank,
        pool_bytes=max(0, pool.bytes) if pool else None,
        fits=max(0, pool.bytes) // rank.peak.bytes if pool and rank and rank.peak.bytes else None,
        assumptions=(
            *notes,
            Assumption("unit", "bytes", "assumed", "blocks, pages and slots of an engine hold fewer"),
            Assumption("growth", "even", "assumed", "an agent's context grows evenly over the time that it works"),
        ),
    )


def show_workflow_report(report: WorkflowReport, *, as_json: bool) -> None:
    if as_json:
        body = {
            "workflow": {"name": report.workflow.name},
            "whole": dataclasses.asdict(report.whole),
            "per_rank": None if report.rank is None else dataclasses.asdict(report.rank),
            "pool_bytes": report.pool_bytes,
            "fits": report.fits,
        }
        print_json(document("kvplan.workflow_plan/1", report.inputs, report.assumptions, body))
        return
    print_text(_lines(report), _tables(report.whole))


def _lines(report: WorkflowReport) -> list[str]:
    whole = report.whole
    lines = [
        f"{report.workflow.name} on {report.model}: {format_gib(whole.peak.bytes)} at its peak",
        f"PEAK       {whole.peak.bytes:,} bytes of the whole model, {whole.peak.at_s:,.0f} s after the start; at most "
        f"{whole.most_agents:,} agents at once",
        f"HELD       {whole.byte_seconds / 10**9:,.1f} GB·s over {whole.seconds:,.0f} s",
    ]
    if report.pool_bytes == 0:
        lines.append("FITS       none: the weights leave nothing for a cache")
    elif report.rank is not None and report.fits is not None and report.pool_bytes is not None:
        lines.append(
            f"FITS       {report.fits:,} at once on a replica: {format_gib(report.rank.peak.bytes)} each of "
            f"{format_gib(report.pool_bytes)} a rank, bytes alone; an engine's blocks and slots hold fewer"
        )
    return lines


def _tables(whole: Account) -> list[Table]:
    branches = [
        (
            one.name,
            f"{one.count:,}",
            format_short(one.most_bytes),
            f"{one.most_bytes:,}",
            f"{one.byte_seconds / 10**9:,.1f}",
        )
        for one in whole.branches
    ]
    found = [Table("BRANCHES: what an agent keeps of its own", ("", "count", "most", "bytes", "GB·s"), branches)]
    if len(whole.moments) <= 40:
        rows = [(f"{one.at_s:,.0f}", f"{one.agents:,}", f"{one.bytes:,}") for one in whole.moments]
        found.append(Table("OVER TIME, before and after each turn", ("second", "agents", "bytes"), rows))
    return found
