"""Shared by every test: no network, no user profiles, no cache of this machine."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from here_kit import here

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("KVPLAN_HOME", str(home / "kvplan"))
    for name in ("HF_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kvplan_process() -> Run:
    """Run the command line as a user would: a process of its own, its output piped."""

    def run(*args: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "kvplan", *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)

    return run


@pytest.fixture
def kvplan(kvplan_process: Run) -> Run:
    """The same inside this process, which takes a tenth of the time; with input of its own, in one of its own."""

    def run(*args: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        return here(*args, **options) if options.keys() <= {"cwd", "env"} else kvplan_process(*args, **options)

    return run


@pytest.fixture
def kvplan_json(kvplan: Run) -> Callable[..., Any]:
    """Run a command with --json and parse what it prints."""

    def run(*args: str) -> Any:
        done = kvplan(*args, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    return run
