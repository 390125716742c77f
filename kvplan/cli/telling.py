"""What is said on standard error beside the answer: less with --quiet, more with --verbose, and that work goes on."""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePath
from typing import Any, TextIO

from kvplan.errors import UsageError

WORDS = ("--quiet", "--verbose")
SILENT_S = 1.0
"""A command that takes no longer shows nothing."""
_ERASE = "\r\x1b[K"
_CODE = (".py", ".pyc", ".pyi", ".so", ".pth")
_verbose = False


def in_front(args: list[str]) -> list[str]:
    """`args` with --quiet and --verbose first, wherever they stood before a `--`."""
    end = args.index("--") if "--" in args else len(args)
    own, rest = args[:end], args[end:]
    return [one for one in own if one in WORDS] + [one for one in own if one not in WORDS] + rest


def begin(ctx: Any, *, quiet: bool, verbose: bool) -> None:
    """Set up what the flags ask for until the command ends. Raises UsageError where they contradict each other."""
    if quiet and verbose:
        raise UsageError("--quiet and --verbose contradict each other; give one")
    if quiet:
        ctx.call_on_close(_hush())
    elif verbose:
        ctx.call_on_close(_follow())
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        ctx.call_on_close(Working().close)


def _hush() -> Callable[[], None]:
    """No warnings, notes or progress. An error is said after the command has ended, and so on the real stream."""
    real, sys.stderr = sys.stderr, open(os.devnull, "w")  # noqa: SIM115  (it is closed when the command ends)

    def restore() -> None:
        sys.stderr.close()
        sys.stderr = real

    return restore


def _follow() -> Callable[[], None]:
    """Say what is read, written, asked and run, and at the end how long it took."""
    global _verbose
    if not _verbose:
        sys.addaudithook(_heard)  # it stays for good, and is silent unless _verbose
    _verbose, started, said = True, time.perf_counter(), _SAID
    said.clear()

    def end() -> None:
        global _verbose
        _verbose = False
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        _say(f"{time.perf_counter() - started:.2f} s, {peak / 1e6:,.0f} MB at its peak")

    return end


_SAID: set[str] = set()


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if not _verbose:
        return
    with suppress(Exception):
        if event == "open" and isinstance(args[0], (str, bytes, os.PathLike)):
            path = os.fsdecode(args[0])
            if not path.endswith(_CODE) and not path.startswith((sys.prefix, sys.base_prefix, "/proc", "/dev", "/usr")):
                _once(f"{'writes' if (args[2] or 0) & (os.O_WRONLY | os.O_RDWR) else 'reads'} {path}")
        elif event == "socket.getaddrinfo":
            _once(f"asks {args[0]}")
        elif event == "subprocess.Popen":
            _once(f"runs {PurePath(os.fsdecode(args[0])).name}")


def _once(text: str) -> None:
    if text not in _SAID:
        _SAID.add(text)
        _say(text)


def _say(text: str) -> None:
    from kvplan.units import printable

    with suppress(OSError, ValueError):
        sys.stderr.write(f"kvplan: {printable(text)}\n")


class _Watched:
    """A stream that ends the line about work before anything else is written."""

    def __init__(self, stream: TextIO, end: Callable[[], None]) -> None:
        self._stream, self._end = stream, end

    def write(self, text: str) -> int:
        self._end()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Working:
    """`working … 3 s` on a terminal, from the first second until something is printed or the command ends."""

    def __init__(self) -> None:
        self._streams = sys.stdout, sys.stderr
        self._over = threading.Event()
        self._shown = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        watched: Any = [_Watched(stream, self.end) for stream in self._streams]
        sys.stdout, sys.stderr = watched
        self._thread.start()

    def _run(self) -> None:
        started, error = time.monotonic(), self._streams[1]
        wait = SILENT_S
        while not self._over.wait(wait):
            with suppress(OSError, ValueError):
                error.write(f"{_ERASE}kvplan: working … {time.monotonic() - started:.0f} s")
                error.flush()
            self._shown, wait = True, 0.5

    def end(self) -> None:
        """Take the line away."""
        if self._over.is_set():
            return
        self._over.set()
        self._thread.join()
        if self._shown:
            with suppress(OSError, ValueError):
                self._streams[1].write(_ERASE)
                self._streams[1].flush()

    def close(self) -> None:
        """Give the streams back too. Not while something is printed: `print` holds on to the stream it began with."""
        self.end()
        sys.stdout, sys.stderr = self._streams
