"""The `kvplan` command. Only typer and the standard library are imported until a command runs."""

import sys
from typing import Annotated, Any, NoReturn

import typer

from kvplan import __version__
from kvplan.cli import (
    agents,
    bench,
    calibrations,
    claims,
    compare,
    diff,
    engines,
    estimate,
    frontier,
    gpus,
    init,
    models,
    report,
    schema,
    streams,
    telling,
    verify,
    workloads,
)
from kvplan.cli.late import with_late
from kvplan.cli.launched import LaunchCommand
from kvplan.errors import COULD_NOT_RUN, YES, KvplanError

MAX_LINE = 500

_LATE = {"compare": compare.command, "report": report.command, "frontier": frontier.command}


class _Root(with_late(_LATE)):  # type: ignore[misc]
    """Takes --quiet and --verbose wherever they stand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        left: list[str] = super().parse_args(ctx, telling.in_front(args))
        return left


app = typer.Typer(
    name="kvplan",
    cls=_Root,
    invoke_without_command=True,
    help="How many long-lived AI agents fit on this hardware with this model, for how long, at what risk, and why.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("estimate", cls=LaunchCommand)(estimate.command)
app.command("verify", cls=LaunchCommand)(verify.command)
app.command("diff")(diff.command)
app.command("bench")(bench.command)
app.command("schema")(schema.command)
app.command("init")(init.command)
app.add_typer(models.app, name="models")
app.add_typer(gpus.app, name="gpus")
app.add_typer(engines.app, name="engines")
app.add_typer(workloads.app, name="workloads")
app.add_typer(agents.app, name="agents")
app.add_typer(claims.app, name="claims")
app.add_typer(calibrations.app, name="calibrations")


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
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No warnings, notes or progress; anywhere on the line.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Say what is read, asked and run; anywhere on the line.")
    ] = False,
) -> None:
    telling.begin(ctx, quiet=quiet, verbose=verbose)
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main() -> None:
    """Run the command line; every failure is one line on stderr and an exit code."""
    if not streams.prepare():
        _fail("standard output is closed, so there is nowhere to answer", COULD_NOT_RUN)
    code = YES
    try:
        code = app(prog_name="kvplan", standalone_mode=False)
        sys.stdout.flush()
    except KvplanError as error:
        _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group named alone; typer exports no name for it
            print(error)
            sys.exit(YES)
        _fail(_usage(error), COULD_NOT_RUN)
    except (KeyboardInterrupt, typer.Abort):
        streams.leave(130)
    except (OSError, SystemExit) as error:
        _stopped(error, code)
    except Exception as error:
        if "--verbose" in sys.argv:
            sys.excepthook(type(error), error, error.__traceback__)
        _fail(f"this is a bug in kvplan, please report it: {_where(error)}", COULD_NOT_RUN)
    sys.exit(code)


def _stopped(error: OSError | SystemExit, code: int) -> NoReturn:
    """A reader that has gone away ends the command in silence, with its verdict where that was reached before.

    Typer makes an exit of its own of that.
    """
    gone = isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError)
    if isinstance(error, SystemExit) and not gone:
        raise error
    streams.silence(sys.stdout)
    if gone:
        streams.leave(code)
    _fail(
        f"{getattr(error, 'filename', None) or 'standard output'}: {getattr(error, 'strerror', error)}", COULD_NOT_RUN
    )


def _usage(error: Any) -> str:
    """What was typed wrongly, and which help shows how it is right."""
    said: str = getattr(error, "format_message", error.__str__)().rstrip(".")
    path = getattr(getattr(error, "ctx", None), "command_path", None)
    return f"{said}; `{path} --help` shows what it takes" if path else said


def _where(error: Exception) -> str:
    """An unforeseen error with the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{place}"


def _fail(message: str, code: int) -> NoReturn:
    from kvplan.units import printable

    line = printable(" ".join(message.split()))
    streams.leave(code, f"kvplan: {line if len(line) <= MAX_LINE else f'{line[:MAX_LINE]} …'}\n")
