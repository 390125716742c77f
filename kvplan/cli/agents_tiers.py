"""`kvplan agents tiers`: where idle sessions should live."""

from typing import Annotated

import typer

from kvplan.cli import complete
from kvplan.cli.launched import resolve_launch

Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", autocompletion=complete.models, help="As for `kvplan estimate`.")
]
Workload = Annotated[
    str, typer.Option(autocompletion=complete.workloads, help="A workload's name, or a trace: CSV or JSON lines.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]
PrefillRate = Annotated[
    float | None,
    typer.Option("--prefill-tokens-per-s", help="Of a replica; published for K3 on 8 B300, needed elsewhere."),
]
Seed = Annotated[int, typer.Option(min=0, help="Of the draws.")]
TierFlags = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SIZE@RATE",
        help="A tier's size per node and bandwidth per link, for example dram=1.9TB@54GB/s; NAME=off; after a comma "
        "latency=, price= (per GB and hour), copies=rank or copies=one. Again for another tier.",
    ),
]
GpuPrice = Annotated[str | None, typer.Option(metavar="X/h", help="Of one GPU: 3.5/h, or B300=6/h; 4/h is assumed.")]


def tiers(
    ctx: typer.Context,
    *,
    model: Model = None,
    workload: Workload,
    tier: TierFlags = None,
    risk: Annotated[
        float | None, typer.Option(help="Per cent of overflow at which a tier's sessions count; 1.")
    ] = None,
    gpu_price: GpuPrice = None,
    states_per_session: Annotated[
        int, typer.Option(min=1, max=1 << 20, help="Saved states of a session in a host's slots (SGLang).")
    ] = 2,
    prefill_tokens_per_s: PrefillRate = None,
    seed: Seed = 0,
    json: Json = False,
    **flags: object,
) -> None:
    """Where idle sessions live: sessions a tier, resume times, reload or recompute, how long to hold, prices."""
    from kvplan.agents.tiers_report import TierOptions, tiers_report
    from kvplan.agents.tiers_screen import show_tiers

    chosen, deployment, notes = resolve_launch(ctx, model, dict(flags))
    options = TierOptions(tuple(tier or ()), risk, gpu_price, states_per_session, prefill_tokens_per_s, seed)
    found = tiers_report(chosen, workload, flags=deployment, options=options, notes=list(notes))
    show_tiers(found, as_json=json)
    raise typer.Exit(found.exit_code)
