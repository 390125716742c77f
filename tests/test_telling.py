"""What stands on standard error beside the answer, and that no command leaves half a file behind."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kvplan.cli import telling
from kvplan.errors import SourceError
from kvplan.files import write_text

OLD = ("estimate", "kimi-linear", "--gpu", "H200", "--engine-version", "0.13")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("place", [0, 1, 3, len(OLD)])
def test_quiet_and_verbose_stand_anywhere(kvplan_process: Any, place: int) -> None:
    plain = kvplan_process(*OLD)
    assert "days old" in plain.stderr
    quiet = kvplan_process(*OLD[:place], "--quiet", *OLD[place:])
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, plain.stdout, "")
    verbose = kvplan_process(*OLD[:place], "--verbose", *OLD[place:])
    assert verbose.stdout == plain.stdout
    assert "models/kimi-linear.toml" in verbose.stderr and "days old" in verbose.stderr
    assert "MB at its peak" in verbose.stderr.splitlines()[-1]


def test_quiet_still_says_what_went_wrong(kvplan_process: Any) -> None:
    done = kvplan_process("estimate", "no-such-model", "--quiet")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kvplan: no-such-model:") and done.stderr.count("\n") == 1
    both = kvplan_process("--verbose", "gpus", "list", "--quiet")
    assert both.returncode == 2 and "contradict" in both.stderr


def test_words_of_an_engine_are_left_alone() -> None:
    words = ["estimate", "--gpu", "H200", "--verbose", "--", "vllm", "serve", "m", "--quiet"]
    assert telling.in_front(words) == ["--verbose", "estimate", "--gpu", "H200", "--", "vllm", "serve", "m", "--quiet"]


def test_a_pipe_sees_no_progress(kvplan_process: Any) -> None:
    done = kvplan_process("frontier", "kimi-linear", "--sessions", "4", "--gpu", "h100")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_sees_that_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    out, error = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", error)
    monkeypatch.setattr(telling, "SILENT_S", 0.05)
    working = telling.Working()
    time.sleep(0.3)
    assert "kvplan: working … 0 s" in error.getvalue()
    print("the answer")
    assert error.getvalue().endswith("\r\x1b[K") and out.getvalue() == "the answer\n"
    said = error.getvalue()
    time.sleep(0.1)
    working.close()
    assert error.getvalue() == said and sys.stdout is out and sys.stderr is error


def test_a_quick_command_shows_nothing_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    error = Terminal()
    monkeypatch.setattr(sys, "stderr", error)
    telling.Working().close()
    assert error.getvalue() == ""


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.toml"
    write_text(path, "old")
    (tmp_path / "link.toml").symlink_to(path)
    write_text(tmp_path / "link.toml", "new")
    assert path.read_text() == "new" and (tmp_path / "link.toml").is_symlink()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "half")
    assert path.read_text() == "new"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file.toml", "link.toml"]
    with pytest.raises(SourceError, match="here: "):
        write_text(tmp_path / "no" / "such", "x", "here")
    write_text(Path("/dev/null"), "x")


def test_no_command_writes_a_file_in_place() -> None:
    """Every file is written through `write_text`, `replacing` or the calibration's own `write`."""
    root = Path(__file__).resolve().parent.parent / "kvplan"
    allowed = {"files.py", "pages/_write.py"}
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(word in path.read_text(encoding="utf-8") for word in (".write_text(", ".write_bytes(", '"wb"'))
    }
    assert found <= allowed


def test_ctrl_c_ends_a_command_in_silence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kvplan", "frontier", "kimi-k3", "--sessions", "64"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    time.sleep(2.0)
    running.send_signal(signal.SIGINT)
    out, error = running.communicate(timeout=30)
    assert (running.returncode, out, error) == (130, "", "")
    assert list(tmp_path.iterdir()) == []
