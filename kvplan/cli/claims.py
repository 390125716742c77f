"""`kvplan claims`: what was published about these models' memory, re-derived."""

from typing import Annotated

import typer

from kvplan.cli import complete

app = typer.Typer(help="Published claims, re-derived, each with a verdict.", no_args_is_help=True)

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
