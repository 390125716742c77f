"""Standard output and error as they may be found: closed, full, a pipe that nobody reads, or without Unicode."""

import codecs
import os
import sys
from contextlib import suppress
from typing import NoReturn, TextIO

_PLAIN = {"×": "x", "…": "...", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")", "−": "-", "→": "->"}


def prepare() -> bool:
    """Make both streams writable whatever their encoding. False where standard output is closed."""
    codecs.register_error("kvplan", _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="kvplan")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (it stays open as long as the process)
    return sys.stdout is not None


def leave(code: int, last_words: str = "") -> NoReturn:
    """Say `last_words` on standard error, as far as it takes them, and exit with `code`."""
    try:
        sys.stderr.write(last_words)
        sys.stderr.flush()
    except (OSError, ValueError):
        silence(sys.stderr)
    sys.exit(code)


def silence(stream: TextIO) -> None:
    """Let what the stream still holds go nowhere, so that the interpreter's last flush finds nothing wrong."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _plain(error: UnicodeError) -> tuple[str, int]:
    """What stands in for characters that a stream cannot write."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(_PLAIN.get(char) or ascii(char)[1:-1] for char in bad), error.end
