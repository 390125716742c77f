"""Commands that take every deployment flag of `kvplan estimate` beside their own."""

import inspect
from collections.abc import Callable
from typing import Any

from kvplan.cli import estimate

_NOT_THEIRS = {"ctx", "model", "context", "baseline", "json", "csv", "markdown", "explain"}


def deployed(own: Callable[..., None]) -> Callable[..., None]:
    """`own(ctx, model, its flags, **flags)` as a command: `flags` are the deployment flags that were given."""
    shared = inspect.signature(estimate.command).parameters
    theirs = {name: one for name, one in shared.items() if name not in _NOT_THEIRS}
    mine = [one for one in inspect.signature(own).parameters.values() if one.kind is not one.VAR_KEYWORD]

    def command(**given: Any) -> None:
        flags = {name: given.pop(name) for name in theirs}
        own(**given, **{name: value for name, value in flags.items() if value is not None})

    ordered = [one.replace(kind=one.KEYWORD_ONLY) for one in (*mine, *theirs.values())]
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in ordered}
    command.__doc__ = own.__doc__
    return command
