"""`kvplan init`: a deployment file to start from."""

import inspect
from typing import Annotated, get_args

import typer

from kvplan.cli import complete


def helps() -> dict[str, str]:
    """The help of every flag of `kvplan estimate`, by the flag's name with underscores."""
    from kvplan.cli import estimate

    found = {}
    for name, one in inspect.signature(estimate.command).parameters.items():
        info = next((part for part in get_args(one.annotation)[1:] if hasattr(part, "help")), None)
        found[name] = (info.help if info is not None else None) or ""
    return found


def command(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", autocompletion=complete.models, help="Written into the file.")
    ] = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where to write it.")] = "deployment.toml",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
) -> None:
    """Write a deployment file with every key, commented out, for `kvplan estimate --deployment FILE`."""
    from pathlib import Path

    from kvplan.deployment_file import template
    from kvplan.errors import UsageError
    from kvplan.files import write_text

    path = Path(out)
    if path.exists() and not force:
        raise UsageError(f"{out}: there is such a file; --force replaces it, -o writes another")
    write_text(path, template(helps(), model), out)
    print(f"{out}: take the # off what you set, then: kvplan estimate --deployment {out}")
