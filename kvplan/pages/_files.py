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

    At the end of the block each takes its file's place, and where that is a link that of the file it leads to; an error
    or Ctrl-C before that leaves nothing behind. Raises SourceError, naming the file, where one cannot be written.
    """
    parts: dict[Path, Path] = {}
    made: list[Path] = []

    def part_of(path: Path) -> Path:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            raise SourceError(f"{shown(path)}: not an ordinary file")
        made.extend(one for one in target.parents if not one.exists())
        target.parent.mkdir(parents=True, exist_ok=True)
        parts[target] = target.with_name(f".{target.name}.{os.getpid()}")
        parts[target].touch()
        return parts[target]

    try:
        yield part_of
        for path, part in parts.items():
            os.replace(part, path)
    except OSError as error:
        file = Path(error.filename or ".")
        named = next((path for path, part in parts.items() if part == file), file)
        raise SourceError(f"{shown(named)}: {reason(error)}") from None
    finally:
        for part in parts.values():
            with suppress(OSError):
                part.unlink()
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
