"""`kvplan workloads`: how agents and chats use a model, bundled or measured on a trace."""

from typing import Annotated

import typer

from kvplan.cli import complete
from kvplan.cli.sentences import Sentences

app = typer.Typer(
    cls=Sentences, help="How agents and chats use a model: bundled profiles, and traces.", no_args_is_help=True
)
_Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


@app.command("list")
def list_command(json: _Json = False) -> None:
    """Every bundled workload."""
    from kvplan.agents.screen import workload_rows
    from kvplan.agents.workload import list_workloads
    from kvplan.tables import print_rows

    print_rows("kvplan.workloads/1", "workloads", workload_rows(list_workloads()), json, hidden=("source", "title"))


@app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(autocompletion=complete.workloads, help="A bundled workload.")],
    json: _Json = False,
) -> None:
    """One workload: its percentile tables and where they come from."""
    from kvplan.agents.screen import show_workload
    from kvplan.agents.workload import find_workload

    show_workload(find_workload(name), {"name": name}, [], as_json=json)


@app.command("fit")
def fit_command(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="CSV or JSON lines, gzipped or not.")],
    name: Annotated[str, typer.Option(help="The profile's name.")] = "fitted",
    out: Annotated[str | None, typer.Option(help="Write the profile to this TOML file.")] = None,
    subagents: Annotated[bool, typer.Option("--subagents", help="Count sub-agents too.")] = False,
    json: _Json = False,
) -> None:
    """Measure a trace: the same tables as a bundled workload has. Rows that are no requests are counted and named."""
    from kvplan.agents.report import fit_report
    from kvplan.agents.screen import show_workload

    fitted, notes = fit_report(trace, name, subagents=subagents, out=out)
    show_workload(fitted, {"trace": trace, "name": name, "subagents": subagents}, notes, as_json=json)
