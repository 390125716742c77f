"""Commands that are built when they are asked for: each has every deployment flag, which a start should not pay for."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from kvplan.cli.deployed import deployed
from kvplan.cli.launched import LaunchCommand
from kvplan.cli.sentences import Sentences


def with_late(commands: dict[str, Callable[..., None]]) -> type[TyperGroup]:
    """A group that has these commands beside its own."""

    class Group(Sentences):
        def list_commands(self, ctx: Any) -> list[str]:
            own = super().list_commands(ctx)
            return [*own, *(name for name in commands if name not in own)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in commands:
                return super().get_command(ctx, cmd_name)
            settings = {"help_option_names": ["-h", "--help"]}
            one = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=settings)
            one.command(cmd_name, cls=LaunchCommand)(deployed(commands[cmd_name]))
            return typer.main.get_command(one)

    return Group
