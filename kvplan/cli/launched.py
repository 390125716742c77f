"""A command that takes an engine's command line after `--` in place of its own flags."""

import sys
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from kvplan.errors import UsageError

if TYPE_CHECKING:
    from kvplan.document import Assumption
    from kvplan.model import Model

_KEY = "kvplan.engine_words"
_COMMANDS = ("vllm serve", "sglang serve", "llama-server", "trtllm-serve")
_ENGINES = ("vLLM", "SGLang", "llama.cpp", "TensorRT-LLM")
_OUTPUT = ("json", "csv", "markdown", "explain")


class LaunchCommand(TyperCommand):
    """Keeps the words after `--` aside, so that MODEL and the flags before it are parsed as ever."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options: an engine's own, whose help begins with its name, under that name."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Output": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            flags, words = record
            engine = next((name for name in _ENGINES if words.startswith((f"{name}: ", f"{name}'s "))), "")
            plain = "Output" if param.name in (*_OUTPUT, "help") else "Options"
            group = "Arguments" if param.param_type_name == "argument" else f"{engine} options" if engine else plain
            groups.setdefault(group, []).append((flags, words.removeprefix(f"{engine}: ")))
        for name in sorted(groups, key=lambda name: name == "Output"):
            if groups[name]:
                with formatter.section(name):
                    formatter.write_dl(groups[name])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else None
        engine = next((name for name in _COMMANDS if f" {name} " in f" {' '.join(args)} "), None)
        if place is None and engine is not None:
            raise UsageError(f"write `--` before the engine's command: … -- {engine} …")
        ctx.meta[_KEY] = None if place is None else args[place + 1 :]
        own: list[str] = super().parse_args(ctx, args if place is None else args[:place])
        return own


def engine_words(ctx: Any) -> list[str] | None:
    """The words after `--`; None without one."""
    words: list[str] | None = ctx.meta.get(_KEY)
    return words


def resolve_launch(
    ctx: Any, model: str | None, flags: dict[str, Any]
) -> tuple["str | Model", dict[str, Any], list["Assumption"]]:
    """(model, flags, assumptions) with the engine's command, or --deployment, under what was typed; warnings go to
    stderr.

    Raises UsageError where no model is named.
    """
    words, file = engine_words(ctx), flags.get("deployment")
    flags = {name: value for name, value in flags.items() if name != "deployment"}
    if words is None and file is not None:
        model, flags = _with_file(ctx, str(file), model, flags)
    if words is None:
        if model is None:
            raise UsageError("name a model, or write an engine's command after `--`, for example `-- vllm serve MODEL`")
        return model, flags, []
    if file is not None:
        raise UsageError("--deployment and an engine's command both say how the model is served; give one")
    from kvplan.document import Assumption
    from kvplan.launch import parse_command, with_own_flags
    from kvplan.units import printable

    launch = parse_command(words)
    name, merged, notes = with_own_flags(launch, model, flags)
    chosen, sized, how = (name, {}, None) if model else _served_model(name, launch.served or name, merged)
    merged |= sized
    notes += [how] if how else []
    command = f"the {launch.engine} command"
    for kind, texts in (("warning", launch.warnings), ("note", notes)):
        for text in texts:
            print(f"kvplan: {kind}: {printable(text)}", file=sys.stderr)
    unmodelled = [Assumption("not_modelled", text, "assumed", command) for text in launch.warnings]
    return chosen, merged, unmodelled + [Assumption("launch", text, "given", command) for text in notes]


def _with_file(ctx: Any, path: str, model: str | None, typed: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """What was typed over what the file says, as far as this command has such flags."""
    from pathlib import Path

    from kvplan.deployment_file import read_deployment

    named, written = read_deployment(Path(path))
    known = {one.name for one in ctx.command.params}
    return model or named, {name: value for name, value in written.items() if name in known} | typed


def resolve_each(
    ctx: Any, models: list[str] | None, flags: dict[str, Any]
) -> list[tuple["str | Model", dict[str, Any], list["Assumption"]]]:
    """The same for several models under the same flags; without any, for the one of the engine's command."""
    return [resolve_launch(ctx, name, flags) for name in models] if models else [resolve_launch(ctx, None, flags)]


def _served_model(name: str, served: str, flags: dict[str, Any]) -> tuple["str | Model", dict[str, Any], str | None]:
    """(model, flags that size its weights, what is to be said). A path of another machine, or a format that is nowhere
    here, is read as the bundled model that it is made of. Raises SourceError as for any other name."""
    from kvplan.errors import SourceError
    from kvplan.launch.served import weights_named
    from kvplan.sources import resolve
    from kvplan.sources.spellings import bundled_like

    try:
        return resolve(name), {}, None
    except SourceError:
        found = bundled_like([name])
        if found is None:
            raise
    sized, how = weights_named(served, found[0], flags)
    return found[0], sized, f"{served} is not here and is read as {found[0].name}: {how}"
