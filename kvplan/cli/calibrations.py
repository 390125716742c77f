"""`kvplan calibrations`: what has been measured, on which GPU, with which versions."""

from typing import Annotated

import typer

app = typer.Typer(help="Measured kernel times by GPU.", no_args_is_help=True)
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
    json: Json = False,
) -> None:
    """The shapes that both measured, with the second's time over the first's."""
    from kvplan.calibration import compare, find_calibration
    from kvplan.tables import print_rows

    rows = compare(find_calibration(one), find_calibration(other))
    if not json:
        rows = [
            row | {name: f"{row[name]:.3e}" for name in ("first_s", "second_s")} | {"ratio": f"{row['ratio']:.3f}"}
            for row in rows
        ]
    print_rows("kvplan.calibration_comparison/1", "shapes", rows, as_json=json)
