"""The reports: of deployments, of published claims, and of a search."""

from collections.abc import Callable, Sequence
from typing import Any

from kvplan.agents.frontier import Frontier
from kvplan.cases import Asked
from kvplan.claims import Claim, judge
from kvplan.pages._subject import read_subject
from kvplan.pages._write import Report, make_report


def _silent(label: str) -> None:
    pass


def deployment_report(
    columns: Sequence[Asked], *, workload: str | None = None, pages: list[str] | None = None, command: str = "",
    progress: Callable[[str], None] = _silent,
) -> Report:  # fmt: skip
    """A report on up to six models under their flags; `workload` is a profile's name or a trace's path."""
    subject = read_subject(columns, workload, progress)
    inputs: dict[str, Any] = {
        "models": [
            {"label": case.label, "model": case.model.name, **case.plan.inputs} for case in subject.cases
        ],
        "workload": workload,
    }  # fmt: skip
    return make_report("deployment", subject, command=command, inputs=inputs, pages=pages, progress=progress)


def frontier_report(found: Frontier, *, command: str = "") -> Report:
    """One page on a search, or on a deployment's users."""
    return make_report("frontier", found, command=command, inputs=found.inputs)


def claims_report(
    claims: dict[str, Claim], *, pages: list[str] | None = None, command: str = "",
    progress: Callable[[str], None] = _silent,
) -> Report:  # fmt: skip
    """A report on published claims, each judged."""
    judged = []
    for name, claim in claims.items():
        progress(f"claim {name}")
        judged.append(judge(name, claim))
    return make_report(
        "claims", judged, command=command, inputs={"names": list(claims)}, pages=pages, progress=progress
    )
