"""`kvplan agents`: what a deployment holds of agents that live for hours."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kvplan.cli import agents_failover, agents_page, agents_residency, agents_tiers, complete
from kvplan.cli.deployed import deployed
from kvplan.cli.launched import LaunchCommand, resolve_launch
from kvplan.errors import UsageError

_Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", autocompletion=complete.models, help="As for `kvplan estimate`.")
]
_Json = Annotated[bool, typer.Option("--json", help="One JSON document.")]


def _sessions(
    ctx: typer.Context,
    *,
    model: _Model = None,
    workload: Annotated[
        str, typer.Option(autocompletion=complete.workloads, help="A workload's name, or a trace: CSV or JSON lines.")
    ],
    weighting: Annotated[
        str, typer.Option(help="time: a context counts for as long as it stands; or request.")
    ] = "time",
    gap_cap: Annotated[float | None, typer.Option(help="Seconds that a pause counts for at most; 300.")] = None,
    risk: Annotated[str | None, typer.Option(help="Overflow in per cent, for example 50,10,5,1,0.1.")] = None,
    subagents: Annotated[bool, typer.Option("--subagents", help="Count a trace's sub-agents too.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    json: _Json = False,
    **flags: object,
) -> None:
    """Sessions at stated risks that the pool overflows, for contexts as long as the workload's are.

    An engine's own command line may follow, as for `kvplan estimate`.
    """
    from kvplan.agents.report import sessions_report
    from kvplan.agents.screen import show_sessions

    chosen, deployment, notes = resolve_launch(ctx, model, dict(flags))
    found = sessions_report(
        chosen,
        workload,
        flags=deployment,
        weighting=weighting,
        gap_cap_s=gap_cap,
        risk=risk,
        subagents=subagents,
        seed=seed,
        notes=notes,
    )
    show_sessions(found, as_json=json)
    raise typer.Exit(found.exit_code)


def _checkpoints(
    ctx: typer.Context,
    *,
    model: _Model = None,
    workload: Annotated[str, typer.Option(help="A trace that says what prompts share: agent sessions or Mooncake.")],
    block: Annotated[int, typer.Option(min=1, max=1 << 20, help="Tokens of the grid that tails stand on.")] = 256,
    prefill_tokens_per_s: Annotated[
        float | None,
        typer.Option("--prefill-tokens-per-s", "--prefill-rate", help="Of a replica, at every length."),
    ] = None,
    byte_price: Annotated[float | None, typer.Option(help="Of snapshots, per GB and hour.")] = None,
    gpu_price: Annotated[str | None, typer.Option(metavar="X/h", help="Of one GPU: 3.5/h, or B300=6/h.")] = None,
    json: _Json = False,
    **flags: object,
) -> None:
    """Snapshot policies replayed on a trace: hit rate, replayed tokens, bytes; the interval that pays."""
    from kvplan.agents.checkpoint_report import Prices, checkpoint_report, show_checkpoints

    chosen, deployment, notes = resolve_launch(ctx, model, dict(flags))
    prices = Prices(prefill_tokens_per_s, byte_price, gpu_price)
    found = checkpoint_report(chosen, workload, flags=deployment, block_tokens=block, prices=prices, notes=list(notes))
    show_checkpoints(found, as_json=json)


def _workflow(
    ctx: typer.Context,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The workflow: TOML, schema kvplan.workflow/1.")],
    model: _Model = None,
    json: _Json = False,
    **flags: object,
) -> None:
    """A tree of agents as bytes over time, its peak, what each branch costs, and how many fit."""
    from kvplan.agents.workflow_report import show_workflow_report, workflow_report

    chosen, deployment, notes = resolve_launch(ctx, model, dict(flags))
    found = workflow_report(chosen, file, flags=deployment, notes=list(notes))
    show_workflow_report(found, as_json=json)
    raise typer.Exit(found.exit_code)


_COMMANDS: dict[str, Callable[..., None]] = {
    "sessions": _sessions,
    "residency": agents_residency.residency,
    "checkpoints": _checkpoints,
    "tiers": agents_tiers.tiers,
    "failover": agents_failover.failover,
    "workflow": _workflow,
}


_PAGE = "MODEL"
"""What the page is called in its own help, as it has no name: it is what `kvplan agents MODEL` prints."""


class _PageCommand(LaunchCommand):
    """Its usage names MODEL once: where a command's name stands."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]"]


class _Late(TyperGroup):
    """Builds a command when it is asked for: each has every deployment flag, which costs what a start should not.

    What is no command is the page's: a model, or a flag before one.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else "--help"
        if first not in (*_COMMANDS, "-h", "--help"):
            near = get_close_matches(first, _COMMANDS, n=1, cutoff=0.75)
            if near and len(args) > 1 and not args[1].startswith("-"):
                raise UsageError(f"no command {first[:40]!r}; did you mean `kvplan agents {near[0]} {args[1][:40]}`?")
            args = [_PAGE, *args]
        left: list[str] = super().parse_args(ctx, args)
        return left

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = agents_page.page if cmd_name == _PAGE else _COMMANDS.get(cmd_name)
        if found is None:
            return None
        settings = {"help_option_names": ["-h", "--help"]}
        one = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=settings)
        one.command(cmd_name, cls=_PageCommand if cmd_name == _PAGE else LaunchCommand)(deployed(found))
        return typer.main.get_command(one)


app = typer.Typer(
    help="How many long-lived agents a deployment holds, and what they cost: `kvplan agents MODEL --workload W` on one "
    "page, the commands below in depth.",
    subcommand_metavar="MODEL | COMMAND [ARGS]...",
    no_args_is_help=True,
    cls=_Late,
)
