"""Where the output goes: closed, full or without Unicode; narrow terminals; names that would drive a terminal."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvplan.cli import complete
from kvplan.tables import WIDTH, Table, print_text
from kvplan.units import printable

ON_B300 = ("estimate", "kimi-k3", "--gpu", "B300:8", "--engine", "ideal")


def through_shell(tail: str, *args: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """The command with a redirection behind it."""
    line = " ".join((sys.executable, "-m", "kvplan", *args, tail))
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60, "check": False}
    return subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], env=os.environ | variables, **options)


@pytest.mark.parametrize("args", [("--help",), ("--version",), ("models", "list"), ("estimate", "kimi-k3", "--json")])
@pytest.mark.parametrize("tail", [">&-", "> /dev/full"])
def test_output_that_cannot_be_written_is_one_line(args: tuple[str, ...], tail: str) -> None:
    done = through_shell(tail, *args)
    assert done.returncode == 2
    assert done.stderr.startswith("kvplan: standard output")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("tail", ["2>&-", "2> /dev/full", ">&- 2>&-"])
def test_an_error_that_nobody_can_read_still_has_its_exit_code(tail: str) -> None:
    done = through_shell(tail, "estimate", "no-such-model")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_reader_that_leaves_ends_the_command_in_silence() -> None:
    for tail in ("| head -1", "| true"):
        done = through_shell(tail, "estimate", "kimi-k3", "--explain", "--gpu", "B300:8", "--engine", "ideal")
        assert (done.returncode, done.stderr) == (0, "")


def test_a_verdict_outlives_its_reader() -> None:
    """A gate whose output goes to `head` still says no: what is buffered is written when the answer is known."""
    done = through_shell("| true", "estimate", "kimi-k3", "--gpu", "H200", PYTHONUNBUFFERED="")
    assert (done.returncode, done.stderr) == (1, "")


def test_ascii_terminals_get_ascii() -> None:
    done = through_shell("", *ON_B300, "--explain", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "69 x 96 x 128 x 128 x 4 B" in done.stdout
    assert done.stdout.isascii()
    answer = through_shell("", *ON_B300, "--json", PYTHONIOENCODING="ascii").stdout
    assert answer.isascii()
    assert "×" in json.loads(answer)["ledger"][0]["formula"]


@pytest.mark.parametrize("folder", ["new\nline\x1b[31m", os.fsdecode(b"bad\xff"), "\u202eturned"])
@pytest.mark.parametrize("form", ["--explain", "--json", "--csv", "--markdown"])
def test_a_name_does_not_reach_the_terminal_raw(kvplan_process: Any, tmp_path: Path, folder: str, form: str) -> None:
    where = tmp_path / folder
    where.mkdir()
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"intermediate_size": 64, "vocab_size": 64, "torch_dtype": "bfloat16", "max_position_embeddings": 64}
    (where / "config.json").write_text(json.dumps(config))
    done = kvplan_process("estimate", str(where), form)
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace("\n", "").isprintable() or form == "--json"
    assert "\x1b" not in done.stdout


def test_printable() -> None:
    assert printable("a × b") == "a × b"
    assert printable("a\x1b[31m\n\u202e") == "a\\x1b[31m\\n\\u202e"


@pytest.mark.parametrize(
    "args",
    [
        ("estimate", "kimi-k3", "--snapshots", "2"),
        (*ON_B300, "--context", "8k,16k,32k,64k,128k,256k,512k"),
        ("estimate", "deepseek-v4-pro", "--gpu", "H200:8", "--engine", "ideal", "--snapshots", "3"),
        ("estimate", "kimi-k3", "--gpu", "H100:8", "--engine", "ideal"),
        ("estimate", "gpt-oss-120b", "--gpu", "H200:8", "--context", "8k,32k,128k"),
        ("models", "list"), ("models", "types"), ("gpus", "list"), ("--help",), ("estimate", "--help"),
    ],
)  # fmt: skip
def test_screens_are_at_most_eighty_columns(kvplan_process: Any, args: tuple[str, ...]) -> None:
    assert max(map(len, kvplan_process(*args).stdout.splitlines())) <= WIDTH


def test_a_wide_last_column_goes_on_below_and_products_stay_whole(capsys: pytest.CaptureFixture[str]) -> None:
    formula = "61 × (7168 × 16384) + 61 × (24576 × 1536), 8 bit"
    print_text([], [Table("", ("name", "= arithmetic"), [("x" * 50, formula)])])
    lines = capsys.readouterr().out.splitlines()
    assert [line[52:] for line in lines] == ["= arithmetic", "61 × (7168 × 16384) +", "61 × (24576 × 1536), 8 bit"]


def test_colour_follows_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("BYTES", ("context", "bytes"), [("128K", "4,073,250,816")])
    print_text(["first"], [table])
    assert "\x1b[" not in capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_text(["first"], [table])
    assert "\x1b[1m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    print_text(["first"], [table])
    drawn = capsys.readouterr().out
    assert "\x1b[" not in drawn
    assert "4,073,250,816" in drawn


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_no_terminal_is_too_narrow_for_a_number(columns: str, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)
    print_text([], [Table("", ("context", "kv", "exact bytes"), [("128K", "3.38 GiB", "4,073,250,816")] * 2)])
    assert capsys.readouterr().out.count("4,073,250,816") == 2


def test_the_shell_completes_names() -> None:
    assert "kimi-k3" in complete.models("Kimi-K")
    assert complete.gpus("b3") == ["b300"]
    assert "auto" in complete.gpus("")
    assert "ideal" in complete.engines("")
