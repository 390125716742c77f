"""The `kvplan` command. Only typer and the standard library are imported until a command runs."""

import os
import sys
from typing import Annotated

import typer

from kvplan import __version__
from kvplan.cli import estimate, gpus, models
from kvplan.cli.launched import LaunchCommand
from kvplan.errors import COULD_NOT_RUN, KvplanError

app = typer.Typer(
    name="kvplan",
    invoke_without_command=True,
    help="How many long-lived AI agents fit on this hardware with this model, for how long, at what risk, and why.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("estimate", cls=LaunchCommand)(estimate.command)
app.add_typer(models.app, name="models")
app.add_typer(gpus.app, name="gpus")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"kvplan {__version__}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main() -> None:
    """Run the command line; every failure is one line on stderr and an exit code."""
    try:
        sys.exit(app(standalone_mode=False))
    except KvplanError as error:
        _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        _fail(getattr(error, "format_message", error.__str__)(), COULD_NOT_RUN)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)


def _fail(message: str, code: int) -> None:
    line = " ".join(message.split())
    print(f"kvplan: {line}", file=sys.stderr)
    sys.exit(code)
