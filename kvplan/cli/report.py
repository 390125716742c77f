"""`kvplan report`: a deployment on paper."""

from typing import Annotated

import typer

from kvplan.cli import complete
from kvplan.cli.launched import resolve_each


def command(
    ctx: typer.Context,
    *,
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", autocompletion=complete.models, help="Up to six, as for `kvplan estimate`."),
    ] = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE.pdf", help="The PDF; the JSON lies beside it.")],
    png: Annotated[str | None, typer.Option(metavar="DIR", help="One picture a page too.")] = None,
    pages: Annotated[str | None, typer.Option(help="These pages alone, for example verdict,pool.")] = None,
    workload: Annotated[
        str | None,
        typer.Option(autocompletion=complete.workloads, help="Sessions of a workload by name, or of a trace."),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Lengths asked about: 128K = 131,072, 128k = 128,000.")] = None,
    baseline: Annotated[str | None, typer.Option(help="all-mla, all-gqa, ratio:R:1, none or a model.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the JSON too.")] = False,
    **flags: object,
) -> None:
    """Write a PDF of 4 to 8 pages on one deployment of up to six models, with every plotted number in a JSON.

    An engine's own command line may follow, as for `kvplan estimate`.
    """
    from pathlib import Path

    from kvplan.cases import product

    given = {name: value for name, value in (("context", context), ("baseline", baseline)) if value is not None} | flags
    columns = product(resolve_each(ctx, models, given), [])
    wanted = [name.strip() for name in pages.split(",")] if pages else None

    from kvplan.pages import deployment_report, write_report  # once it is clear that there is something to draw
    from kvplan.pages._screen import progress_line, say_written, typed

    with progress_line() as progress:
        report = deployment_report(columns, workload=workload, pages=wanted, command=typed(), progress=progress)
        paths = write_report(report, Path(out), Path(png) if png else None, progress)
    say_written(report, paths, as_json=json)
