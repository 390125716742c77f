"""`kvplan agents failover`: what a failure costs, and what may be promised."""

from typing import Annotated

import typer

from kvplan.cli.agents_tiers import Json, Model, PrefillRate, Seed, TierFlags, Workload
from kvplan.cli.launched import resolve_launch


def failover(
    ctx: typer.Context,
    *,
    model: Model = None,
    workload: Workload,
    spare: Annotated[int, typer.Option(min=0, help="Failures that the promise has to survive.")] = 1,
    spare_unit: Annotated[str, typer.Option(help="Of what: gpu, node or replica.")] = "gpu",
    risk: Annotated[
        float | None, typer.Option(help="Per cent of overflow that a replica's sessions may have; 1.")
    ] = None,
    tier: TierFlags = None,
    prefill_tokens_per_s: PrefillRate = None,
    seed: Seed = 0,
    json: Json = False,
    **flags: object,
) -> None:
    """Sessions lost with a GPU, a node or a replica, how long they take to come back, and what may be promised."""
    from kvplan.agents.failover_report import FailoverOptions, failover_report
    from kvplan.agents.failover_screen import show_failover

    chosen, deployment, notes = resolve_launch(ctx, model, dict(flags))
    options = FailoverOptions(spare, spare_unit, risk, tuple(tier or ()), prefill_tokens_per_s, seed)
    found = failover_report(chosen, workload, flags=deployment, options=options, notes=list(notes))
    show_failover(found, as_json=json)
    raise typer.Exit(found.exit_code)
