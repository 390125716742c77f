"""`kvplan agents residency`: open sessions over a prefix cache."""

from typing import Annotated

import typer

from kvplan.cli import complete
from kvplan.cli.launched import resolve_launch


def residency(
    ctx: typer.Context,
    *,
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", autocompletion=complete.models, help="As for `kvplan estimate`.")
    ] = None,
    workload: Annotated[
        str, typer.Option(autocompletion=complete.workloads, help="A workload's name, or a trace: CSV or JSON lines.")
    ],
    sessions: Annotated[str | None, typer.Option(help="Open sessions to look at, for example 16,24,32.")] = None,
    eviction: Annotated[str, typer.Option(help="lru, superseded-first or session-pinned.")] = "lru",
    retention: Annotated[str, typer.Option(help="States that are kept: auto, sparse or dense.")] = "auto",
    keep: Annotated[float, typer.Option(help="Part of the unlimited hit rate that is left at the knee.")] = 0.9,
    hours: Annotated[float, typer.Option(help="Simulated time.")] = 3.0,
    runs: Annotated[int, typer.Option(help="Simulations of each number of sessions.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of sessions.")] = 0,
    gap_cap: Annotated[float, typer.Option(help="Seconds that a pause counts for at most.")] = 300.0,
    subagents: Annotated[bool, typer.Option("--subagents", help="Take a trace's sub-agents for sessions.")] = False,
    beyond: Annotated[bool, typer.Option("--beyond", help="Simulate past the knee too: no promise.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    **flags: object,
) -> None:
    """How many open sessions find their contexts again, by the engine's own blocks and states, and where that ends."""
    from kvplan.agents.residency_report import parse_options, residency_report
    from kvplan.agents.residency_screen import show_residency

    chosen, deployment, notes = resolve_launch(ctx, model, dict(flags))
    options = parse_options(
        sessions, eviction, retention, keep=keep, hours=hours, runs=runs, seed=seed, gap_cap_s=gap_cap,
        subagents=subagents, beyond=beyond,
    )  # fmt: skip
    found = residency_report(chosen, workload, flags=deployment, options=options, notes=list(notes))
    show_residency(found, as_json=json)
    raise typer.Exit(found.exit_code)
