"""What is said about agents."""

from typing import Any

from kvplan.agents.account import Account
from kvplan.agents.branches import BlockOutcome
from kvplan.agents.cache_content import ContentOutcome
from kvplan.agents.checkpoint_flags import Advice
from kvplan.agents.checkpoints import Outcome, Resumes
from kvplan.agents.failover import Loss, Promise
from kvplan.agents.frontier import Frontier
from kvplan.agents.knee import Knee, Row
from kvplan.agents.saving import Compared
from kvplan.agents.sessions import AtRisk, Sessions
from kvplan.agents.tiers import BreakEven, TierRow
from kvplan.agents.tiers_report import HostSplit
from kvplan.agents.workload import Workload
from kvplan.engines.base import Reuse
from kvplan.interval import Interval
from kvplan.schemas.build import Endless, Fields, Map, Maybe
from kvplan.schemas.common import ENGINE, Document

_POOL = {"bytes": int, "source": str, "replicas": int}
_WORKLOAD = {"name": str, "source": str}
_USED = _WORKLOAD | {"reuse": Any}
_SESSIONS = Fields(Sessions, without=("assumptions",))
_LOSS = Fields(Loss, more=(("tier", str | None),))
_COMPARED = Fields(Compared, more=(("saving", float), ("more_bytes", float | int)))
_BASIS = {"median": _COMPARED, "mean": _COMPARED, "break_even_tokens": int | None, "share_of_requests_below": float}

DOCUMENTS = {
    "kvplan.frontier/1": Document("frontier", Fields(Frontier), whole=True),
    "kvplan.agents/1": Document(
        "agents MODEL",
        {
            "engine": ENGINE, "pool": _POOL, "workload": _USED, "sessions": Endless(_SESSIONS),
            "stated": Endless(AtRisk),
            "residency": {"knee": Maybe(Endless(Knee)), "reason": str | None}, "snapshots": Maybe(Advice),
            "idle": {
                "tier": str | None, "context_tokens": int, "recompute_s": Maybe(Endless(Interval)),
                "tiers": [Endless(TierRow)],
            },
            "failover": {"losses": [Endless(_LOSS)], "promised_after_one_gpu": Endless(Promise)},
            "saving": Maybe(
                {"twin": str, "median_tokens": int, "saves": bool, "model": Endless(_BASIS), "rank": Maybe(_BASIS)}
            ),
            "warnings": [str],
        },
    ),
    "kvplan.sessions/1": Document(
        "agents sessions",
        {"engine": ENGINE, "pool": _POOL, "workload": _WORKLOAD, "sessions": _SESSIONS, "warnings": [str]},
    ),
    "kvplan.tiers/1": Document(
        "agents tiers",
        {
            "engine": ENGINE, "workload": _USED, "context_tokens": int, "risk": float, "pool_share": float | None,
            "best": str | None, "tiers": [Endless(TierRow)], "break_even": [Endless(BreakEven)],
            "host_split": Maybe(HostSplit), "warnings": [str],
        },
    ),
    "kvplan.failover/1": Document(
        "agents failover",
        {
            "engine": ENGINE, "workload": _WORKLOAD, "replicas": int, "replicas_that_die_together": int,
            "sessions_per_replica": int, "risk": float, "context_tokens": int, "unit": str, "promised": Promise,
            "promises": [Promise], "losses": [_LOSS], "warnings": [str],
        },
    ),
    "kvplan.residency/1": Document(
        "agents residency",
        {
            "engine": ENGINE, "pool": {"units": str, "capacity": int, "replicas": int},
            "cache": Maybe(Fields(Reuse, without=("assumptions",))), "workload": _WORKLOAD,
            "knee": Maybe(Endless(Knee)), "rows": [Endless(Row)], "pools": [ContentOutcome], "warnings": [str],
        },
    ),
    "kvplan.checkpoints/1": Document(
        "agents checkpoints",
        {
            "model": {"name": str, "snapshot_bytes": int, "state_dtype": str},
            "policies": [Fields(Outcome, more=(("session_bytes", int),))], "block_policies": Map(BlockOutcome),
            "resumes": Maybe(Resumes), "lost_s": Map(Interval), "advice": Maybe(Advice),
            "optimum_interval_tokens": dict[str, float], "warnings": [str],
        },
    ),
    "kvplan.workflow_plan/1": Document(
        "agents workflow",
        {
            "workflow": {"name": str}, "whole": Account, "per_rank": Maybe(Account), "pool_bytes": int | None,
            "fits": int | None,
        },
    ),
    "kvplan.workloads/1": Document(
        "workloads list",
        {
            "workloads": [
                {
                    "name": str, "requests": int, "sessions": int, "context_p50": int, "context_p99": int,
                    "licence": str, "title": str, "source": str,
                }
            ]
        },
    ),
    "kvplan.workload/1": Document(
        "workloads show, workloads fit", Fields(Workload, without=("schema",), more=(("warnings", [str]),))
    ),
}  # fmt: skip
