"""`kvplan compare`: models or GPUs side by side."""

from typing import Annotated

import typer

from kvplan.cli import complete
from kvplan.cli.launched import resolve_each


def command(
    ctx: typer.Context,
    *,
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", autocompletion=complete.models, help="One or more, as for `kvplan estimate`."),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Lengths asked about: 128K = 131,072, 128k = 128,000.")] = None,
    baseline: Annotated[str | None, typer.Option(help="all-mla, all-gqa, ratio:R:1, none or a model.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated rows.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown tables.")] = False,
    **flags: object,
) -> None:
    """Several models, or several GPUs (--gpu B300:8,H200:8), side by side; flags hold for all of them.

    What cannot be worked out stays in the table with its reason. Exit code: 0 done, 2 nothing could be worked out.
    """
    from kvplan.cases import gpus_named, product
    from kvplan.compare import compare
    from kvplan.compare.screen import show_comparison
    from kvplan.show import output_form

    form = output_form(json=json, csv=csv, markdown=markdown, explain=False)
    own = {name: value for name, value in (("context", context), ("baseline", baseline)) if value is not None}
    gpus = gpus_named(str(flags.pop("gpu"))) if "gpu" in flags else []
    read = resolve_each(ctx, models, own | flags)
    inputs = (
        {"models": [name if isinstance(name, str) else name.name for name, _, _ in read], "gpu": gpus} | own | flags
    )
    show_comparison(compare(product(read, gpus), inputs), form)
