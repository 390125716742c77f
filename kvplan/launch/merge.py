"""kvplan's own flags over those of an engine's command."""

from typing import Any

from kvplan.errors import UsageError
from kvplan.launch.reading import Launch


def with_own_flags(launch: Launch, model: str | None, own: dict[str, Any]) -> tuple[str, dict[str, Any], list[str]]:
    """(model, flags, notes): own flags win where both speak, and a note says so.

    Raises UsageError where neither names a model.
    """
    chosen = model or launch.model
    if chosen is None:
        raise UsageError(f"the {launch.engine} command names no model; write it before `--`")
    notes = list(launch.notes)
    if model and launch.model and model != launch.model:
        notes.append(f"the model is {model}, as given before `--`, not {launch.model}")
    flags = {"engine": launch.engine} | launch.flags
    for name, value in own.items():
        if name in flags and str(flags[name]) != str(value):
            theirs = f"--{launch.spelled[name]}" if name in launch.spelled else "the command's"
            notes.append(f"--{name.replace('_', '-')} {value} wins over {theirs} {flags[name]}")
    flags |= own
    notes += _idle_gpus(flags)
    return chosen, flags, notes


def _idle_gpus(flags: dict[str, Any]) -> list[str]:
    """A note where the command runs on fewer GPUs than were named: the rest is counted as further replicas."""
    count = str(flags.get("gpu") or "").partition(":")[2] or flags.get("gpus")
    if not str(count or "").isdecimal():
        return []
    inside = bool(flags.get("enable_dp_attention"))
    used = int(flags.get("tp") or 1) * int(flags.get("pp") or 1) * (1 if inside else int(flags.get("dp") or 1))
    named = int(str(count)) * int(flags.get("nodes") or 1)
    return [f"the command runs on {used} of {named} GPUs; the rest counts as replicas of it"] if used < named else []
