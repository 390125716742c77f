"""`kvplan agents MODEL`: everything about a workload on a deployment, on one page."""

from typing import Annotated

import typer

from kvplan.cli.agents_tiers import GpuPrice, Json, Model, PrefillRate, Seed, TierFlags, Workload
from kvplan.cli.launched import resolve_launch


def page(
    ctx: typer.Context,
    *,
    model: Model = None,
    workload: Workload,
    risk: Annotated[str | None, typer.Option(help="Overflow in per cent, for example 50,10,5,1,0.1.")] = None,
    tier: TierFlags = None,
    gpu_price: GpuPrice = None,
    prefill_tokens_per_s: PrefillRate = None,
    knee: Annotated[bool, typer.Option(help="Simulate open sessions to find the knee: some seconds.")] = True,
    seed: Seed = 0,
    json: Json = False,
    **flags: object,
) -> None:
    """One page: sessions at stated risks, how many run and how many are found again, where idle ones live, what a
    failure costs, and whether this workload saves memory on this model at all.

    An engine's own command line may follow, as for `kvplan estimate`.
    """
    from kvplan.agents.page import PageOptions, agents_page
    from kvplan.agents.page_screen import show_page

    chosen, deployment, notes = resolve_launch(ctx, model, dict(flags))
    options = PageOptions(risk, tuple(tier or ()), gpu_price, prefill_tokens_per_s, knee, seed)
    found = agents_page(chosen, workload, flags=deployment, options=options, notes=list(notes))
    show_page(found, as_json=json)
    raise typer.Exit(found.exit_code)
