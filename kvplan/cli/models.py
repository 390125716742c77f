"""`kvplan models`: the bundled models, and what a config is read as."""

from typing import Annotated

import typer

from kvplan.cli import complete
from kvplan.cli.sentences import Sentences

app = typer.Typer(cls=Sentences, help="The models that kvplan knows by name.", no_args_is_help=True)


@app.command("list")
def list_command(json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """Every bundled model, with its source."""
    from kvplan.sources import list_models
    from kvplan.tables import print_rows

    print_rows("kvplan.models/1", "models", list_models(), json, hidden=("source", "date"))


@app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(autocompletion=complete.models, help="As for `kvplan estimate`.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """One model: its layers, dimensions, weights and where they come from."""
    from kvplan.listings import show_model
    from kvplan.sources import resolve

    show_model(resolve(name), as_json=json)


@app.command("types")
def types_command(json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """Every `model_type` of a config.json that can be read."""
    from kvplan.architectures import known_model_types
    from kvplan.tables import print_rows

    rows = [{"model_type": model_type} for model_type in known_model_types()]
    print_rows("kvplan.model_types/1", "model_types", rows, json)
