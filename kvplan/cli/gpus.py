"""`kvplan gpus`: the GPUs that kvplan knows by name."""

from typing import Annotated

import typer

from kvplan.cli import complete
from kvplan.cli.sentences import Sentences

app = typer.Typer(cls=Sentences, help="The GPUs that kvplan knows by name.", no_args_is_help=True)


@app.command("list")
def list_command(json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """Every bundled GPU, with its memory as the driver reports it."""
    from kvplan.gpu import list_gpus
    from kvplan.listings import gpu_row
    from kvplan.tables import print_rows

    print_rows("kvplan.gpus/1", "gpus", [gpu_row(gpu) for gpu in list_gpus()], json, hidden=("memory_bytes", "quality"))


@app.command("show")
def show_command(
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=complete.gpus, help="A name as people type it; case does not matter; auto asks the driver."
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """One GPU with the sources of its figures."""
    from kvplan.gpu import auto_gpu, find_gpu
    from kvplan.listings import show_gpu

    show_gpu(auto_gpu() if name.lower() == "auto" else find_gpu(name), as_json=json)
