"""The command line in the process of the tests: what a user sees, without the second that a new process takes."""

import contextlib
import io
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from kvplan.cli.app import main


def here(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> "CompletedProcess[str]":
    """Run `kvplan WORDS`; the standard streams are text, as where they are piped. `env` replaces the environment."""
    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    typed = mock.patch.object(sys, "argv", ["kvplan", *words])
    around = contextlib.nullcontext() if env is None else mock.patch.dict(os.environ, env, clear=True)
    with typed, around, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            os.chdir(cwd or before)
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        finally:
            os.chdir(before)
    return CompletedProcess(list(words), code, out.getvalue(), err.getvalue())
