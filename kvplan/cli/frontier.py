"""`kvplan frontier`: what it takes to hold a load of sessions, and what a deployment holds at each context."""

from typing import TYPE_CHECKING, Annotated

import typer

from kvplan.cli import complete
from kvplan.cli.percent import percent

if TYPE_CHECKING:
    from kvplan.agents.frontier import Frontier

_Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", autocompletion=complete.models, help="As for `kvplan estimate`.")
]


def command(
    ctx: typer.Context,
    *,
    model: _Model = None,
    sessions: Annotated[int | None, typer.Option(min=1, max=1 << 30, help="Sessions open at once.")] = None,
    risk: Annotated[
        float, typer.Option(parser=percent, metavar="PERCENT", help="Risk that a replica's pool overflows: 1 or 1%.")
    ] = 1.0,
    spare: Annotated[int, typer.Option(min=0, max=1 << 16, help="Groups that may be lost without losing any.")] = 0,
    gpu_price: Annotated[
        str | None, typer.Option(metavar="X/h", help="Of each GPU and hour: 3.5/h, or H200=3.5/h,B300=6/h.")
    ] = None,
    workload: Annotated[
        str, typer.Option(autocompletion=complete.workloads, help="A workload's name, or a trace: CSV or JSON lines.")
    ] = "coding-agent",
    max_gpus: Annotated[int, typer.Option(min=1, max=1 << 20, help="Of one kind, where --gpu gives no count.")] = 256,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE.pdf", help="Draw it too: a PDF, and a JSON beside it.")
    ] = None,
    png: Annotated[str | None, typer.Option(metavar="DIR", help="With -o: a picture too.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Say how many configurations took how long.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated rows.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown tables.")] = False,
    **flags: object,
) -> None:
    """The cheapest GPUs, layout and settings that hold --sessions; without it, users × context of one deployment.

    Every deployment flag that is typed is kept fixed; --gpu A,B:8 names the kinds to search and how many there are.

    Exit code: 0 held, 1 nothing searched holds the load, 2 could not run.
    """
    from time import perf_counter

    from kvplan.agents.frontier import deployed_users, frontier
    from kvplan.agents.frontier_screen import show_frontier
    from kvplan.agents.options import ask
    from kvplan.cli.launched import resolve_launch
    from kvplan.show import output_form

    form = output_form(json=json, csv=csv, markdown=markdown, explain=False)
    started = perf_counter()
    chosen, deployment, notes = resolve_launch(ctx, model, dict(flags))
    asked = ask(sessions, risk, spare, gpu_price, max_gpus, seed)
    made = (frontier if sessions else deployed_users)(chosen, workload, asked, flags=deployment, notes=notes)
    show_frontier(made, form, seconds=perf_counter() - started if count else None)
    if out is not None:
        _draw(made, out, png)
    raise typer.Exit(made.exit_code)


def _draw(made: "Frontier", out: str, png: str | None) -> None:
    import sys
    from pathlib import Path

    from kvplan.pages import frontier_report, write_report
    from kvplan.pages._screen import typed

    for path in write_report(frontier_report(made, command=typed()), Path(out), Path(png) if png else None):
        print(f"kvplan: wrote {path}", file=sys.stderr)
