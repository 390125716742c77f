"""Public traces, where the machine has them: they are never part of the project."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kvplan.agents.columns import Columns, read_columns
from kvplan.agents.request import Request
from kvplan.agents.traces import open_trace
from kvplan.cli.app import app

AGENTIC = "agentic_claude_code_requests.csv.gz"
_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "traces"


@pytest.fixture(scope="session")
def public_trace() -> Callable[[str], Path]:
    """The path of a public trace in $KVPLAN_TRACES; skips where it is not there."""

    def find(name: str) -> Path:
        path = Path(os.environ.get("KVPLAN_TRACES", _BESIDE)) / name
        if not path.is_file():
            pytest.skip(f"{name} is not here; KVPLAN_TRACES names its folder")
        return path

    return find


@pytest.fixture(scope="session")
def agentic(agentic_requests: list[Request]) -> Columns:
    """The main agents of the public coding-agent trace."""
    return read_columns(agentic_requests)


@pytest.fixture(scope="session")
def agentic_requests(public_trace: Callable[[str], Path]) -> list[Request]:
    return list(open_trace(public_trace(AGENTIC)))


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process: exit code, what it printed, what it said beside. Errors are raised."""

    def run(*words: str) -> tuple[int, str, str]:
        code = app(list(words), standalone_mode=False)
        said = capsys.readouterr()
        return code or 0, said.out, said.err

    return run
