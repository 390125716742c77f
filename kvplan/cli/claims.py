"""`kvplan claims`: what was published about these models' memory, re-derived."""

from typing import Annotated

import typer

from kvplan.cli import complete
from kvplan.cli.sentences import Sentences

app = typer.Typer(cls=Sentences, help="Published claims, re-derived, each with a verdict.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@app.command("list")
def list_command(json: Json = False) -> None:
    """Every claim in words; --json holds what was printed, where, and each basis."""
    from kvplan.claims import list_claims
    from kvplan.claims.screen import show_list

    show_list(list_claims(), json)


@app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(autocompletion=complete.claims, help="As `kvplan claims list` has it.")],
    json: Json = False,
) -> None:
    """One claim: its source, and every figure on every basis."""
    from kvplan.claims import find_claim, judge
    from kvplan.claims.screen import show_claim

    show_claim(judge(name.lower(), find_claim(name)), json)


@app.command("check")
def check_command(
    names: Annotated[
        list[str] | None, typer.Argument(autocompletion=complete.claims, help="These alone; every claim by default.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document with every intermediate.")] = False,
) -> None:
    """Judge every claim. Exit code: 0 each has the verdict its file expects, 1 one has not, 2 could not run."""
    from kvplan.claims import find_claim, judge, list_claims
    from kvplan.claims.screen import show_check
    from kvplan.errors import NO, YES

    claims = {name.lower(): find_claim(name) for name in names} if names else list_claims()
    judged = [judge(name, claim) for name, claim in claims.items()]
    show_check(judged, json, list(claims))
    raise typer.Exit(YES if all(one.as_expected for one in judged) else NO)


@app.command("report")
def report_command(
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE.pdf", help="The PDF; the JSON lies beside it.")],
    names: Annotated[
        list[str] | None, typer.Argument(autocompletion=complete.claims, help="These alone; every claim by default.")
    ] = None,
    png: Annotated[str | None, typer.Option(metavar="DIR", help="One picture a page too.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the JSON too.")] = False,
) -> None:
    """Every claim judged, on paper: a PDF, and a JSON with every number in it."""
    from pathlib import Path

    from kvplan.claims import find_claim, list_claims
    from kvplan.pages import claims_report, write_report
    from kvplan.pages._screen import progress_line, say_written, typed

    claims = {name.lower(): find_claim(name) for name in names} if names else list_claims()
    with progress_line() as progress:
        report = claims_report(claims, command=typed(), progress=progress)
        paths = write_report(report, Path(out), Path(png) if png else None, progress)
    say_written(report, paths, as_json=json)


@app.command("saving")
def saving_command(
    models: Annotated[
        list[str] | None, typer.Argument(autocompletion=complete.models, help="kimi-k3, kimi-linear and qwen3-next.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(autocompletion=complete.gpus, help="NAME:COUNT; the fewest H200 that hold the model.")
    ] = None,
    calibration: Annotated[str, typer.Option(help="A name, a .toml, or auto for the nearest.")] = "auto",
    json: Json = False,
) -> None:
    """What hybrids save and gain at each length: at 8K, memory that you were not short of."""
    from kvplan.claims.saving import HARDWARE, show_savings

    show_savings(models or list(HARDWARE), gpu, calibration, as_json=json)
