"""`kvplan calibrations`: what has been measured, on which GPU, with which versions."""

from typing import Annotated

import typer

from kvplan.cli.sentences import Sentences

app = typer.Typer(cls=Sentences, help="Measured kernel times by GPU.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@app.command("list")
def list_command(json: Json = False) -> None:
    """Every calibration, bundled and your own."""
    from kvplan.calibration import list_calibrations
    from kvplan.tables import print_rows

    print_rows("kvplan.calibrations/1", "calibrations", list_calibrations(), as_json=json)


@app.command("show")
def show_command(name: Annotated[str, typer.Argument(help="A name or a .toml file.")], json: Json = False) -> None:
    """One calibration: its device, its conditions and every sample."""
    from kvplan.calibration import find_calibration
    from kvplan.listings import show_calibration
    from kvplan_kernels import table

    document = find_calibration(name)
    show_calibration(name, document, table.HEAD, table.rows(document["samples"]), as_json=json)


@app.command("compare")
def compare_command(
    one: Annotated[str, typer.Argument(help="A name or a .toml file.")],
    other: Annotated[str, typer.Argument(help="Another.")],
    any_owner: Annotated[
        bool, typer.Option("--any-owner", help="Different owners' kernels beside each other, and why they may differ.")
    ] = False,
    beyond: Annotated[float, typer.Option(help="Show those that differ by more than so many percent.")] = 0.0,
    json: Json = False,
) -> None:
    """The shapes that both measured, with the second's time over the first's."""
    from kvplan.calibration import compare, find_calibration
    from kvplan.listings import show_comparison

    rows = compare(find_calibration(one), find_calibration(other), any_owner)
    show_comparison((one, other), rows, beyond, as_json=json)


@app.command("check")
def check_command(
    name: Annotated[str, typer.Argument(help="A name or a .toml file.")],
    against: Annotated[
        str | None, typer.Option(help="Samples to predict: a name or a .toml; NAME-held-out, else every third of NAME.")
    ] = None,
    json: Json = False,
) -> None:
    """How far times from a calibration can be trusted: samples it never saw, and times that others published.

    Exit code: 0 within the goals, 1 beyond them or a published time missed without a reason, 2 could not run.
    """
    from kvplan.errors import NO, YES
    from kvplan.trust import show_check

    raise typer.Exit(YES if show_check(name, against, as_json=json) else NO)


@app.command("precision")
def precision_command(
    name: Annotated[str, typer.Argument(help="A name or a .toml file.")] = "h200", json: Json = False
) -> None:
    """What a bf16 recurrent state costs in accuracy, measured over 1K to 1M tokens."""
    from kvplan.calibration import find_precision
    from kvplan.listings import show_precision
    from kvplan_kernels import table

    document = find_precision(name)
    show_precision(name, document, *table.precision(document["errors"]), as_json=json)


@app.command("import")
def import_command(
    source: Annotated[str, typer.Argument(help="Whose tables: aiconfigurator (the package aiconfigurator-core).")],
    system: Annotated[str, typer.Option(help="A system of theirs, such as h200_sxm.")],
    folder: Annotated[str | None, typer.Option("--from", help="Its folder systems/data, if not installed.")] = None,
    hidden: Annotated[int | None, typer.Option(help="Take GEMMs and experts of this width.", min=1)] = None,
    out: Annotated[str | None, typer.Option(help="The calibration to write; default in your data directory.")] = None,
    json: Json = False,
) -> None:
    """Published kernel times as a calibration labelled as theirs; what has no kernel of ours is refused by name."""
    from kvplan.published.aiconfigurator import save_import

    save_import(source, system, folder, hidden, out, as_json=json)
