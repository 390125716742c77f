"""Several files that appear together or not at all."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvplan.errors import SourceError
from kvplan.sources.strict import reason, shown


@contextmanager
def replacing() -> Iterator[Callable[[Path], Path]]:
    """A function from a file to the hidden one beside it that is written first.

    At the end of the block each takes its file's place; an error or Ctrl-C before that leaves nothing behind.
    Raises SourceError where a folder cannot be written to.
    """
    parts: dict[Path, Path] = {}

    def part_of(path: Path) -> Path:
        parts[path] = path.with_name(f".{path.name}.{os.getpid()}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return parts[path]

    try:
        yield part_of
        for path, part in parts.items():
            os.replace(part, path)
    except OSError as error:
        raise SourceError(f"{shown(Path(error.filename or '.'))}: {reason(error)}") from None
    finally:
        for part in parts.values():
            with suppress(OSError):
                part.unlink()
