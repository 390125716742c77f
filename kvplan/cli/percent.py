"""A percentage as people type it: `1` or `1%`."""

import typer


def percent(text: str) -> float:
    """The number in it. Raises typer.BadParameter, whose message names the flag."""
    try:
        return float(str(text).strip().removesuffix("%"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no percentage; write for example 1 or 1%") from None
