"""A command that takes an engine's command line after `--` in place of its own flags."""

import sys
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from kvplan.errors import UsageError

if TYPE_CHECKING:
    from kvplan.document import Assumption

_KEY = "kvplan.engine_words"


class LaunchCommand(TyperCommand):
    """Keeps the words after `--` aside, so that MODEL and the flags before it are parsed as ever."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else None
        ctx.meta[_KEY] = None if place is None else args[place + 1 :]
        own: list[str] = super().parse_args(ctx, args if place is None else args[:place])
        return own


def resolve_launch(
    ctx: Any, model: str | None, flags: dict[str, Any]
) -> tuple[str, dict[str, Any], list["Assumption"]]:
    """(model, flags, assumptions) with the engine's command under kvplan's own flags; warnings go to stderr.

    Raises UsageError where no model is named.
    """
    words = ctx.meta.get(_KEY)
    if words is None:
        if model is None:
            raise UsageError("name a model, or write an engine's command after `--`, for example `-- vllm serve MODEL`")
        return model, flags, []
    from kvplan.document import Assumption
    from kvplan.launch import parse_command, with_own_flags

    launch = parse_command(words)
    chosen, merged, notes = with_own_flags(launch, model, flags)
    command = f"the {launch.engine} command"
    for text in launch.warnings:
        print(f"kvplan: warning: {text}", file=sys.stderr)
    for text in notes:
        print(f"kvplan: note: {text}", file=sys.stderr)
    unmodelled = [Assumption("not_modelled", text, "assumed", command) for text in launch.warnings]
    return chosen, merged, unmodelled + [Assumption("launch", text, "given", command) for text in notes]
