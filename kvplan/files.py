"""Files that appear whole or not at all, whatever ends the command that writes them."""

import os
from contextlib import suppress
from pathlib import Path

from kvplan.errors import SourceError


def write_text(path: Path, text: str, what: str = "") -> None:
    """Put `text` in the place of `path` in one step; an error or Ctrl-C leaves what was there.

    A device or a pipe is written to as it is. Raises SourceError, beginning with `what` or the path.
    """
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        part.write_text(text, encoding="utf-8")
        os.replace(part, target)
    except (OSError, ValueError) as error:
        raise SourceError(f"{what or path}: {getattr(error, 'strerror', None) or error}") from None
    finally:
        with suppress(OSError, ValueError):
            part.unlink()
