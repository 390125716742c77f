"""`kvplan diff`: two plans against each other."""

from typing import Annotated

import typer


def command(
    before: Annotated[str, typer.Argument(metavar="A.json", help="A plan, as `kvplan estimate --json` writes it.")],
    after: Annotated[str, typer.Argument(metavar="B.json", help="The plan to compare it with.")],
    fail_if_capacity_drops: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Exit with 1 where a context loses more, for example 10%.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="One row per figure that differs.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="GitHub-flavoured Markdown.")] = False,
) -> None:
    """What differs between two plans: inputs, bytes, pool, engine figures and the rule behind them, capacity.

    Exit code: 0 done, 1 capacity drops by more than the given share at some context, 2 could not run.
    """
    from kvplan.diff import compare, read_plan
    from kvplan.diff.screen import show_diff
    from kvplan.diff.share import parse_share
    from kvplan.show import output_form

    form = output_form(json=json, csv=csv, markdown=markdown, explain=False)
    limit = None if fail_if_capacity_drops is None else parse_share(fail_if_capacity_drops, "--fail-if-capacity-drops")
    found = compare(read_plan(before), read_plan(after), (before, after), limit)
    show_diff(found, form)
    raise typer.Exit(found.exit_code)
