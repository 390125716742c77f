"""Malformed flags, profiles and names, each refused in one line: run inside this process, as there are many."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvplan import profiles
from kvplan.cli.app import MAX_LINE, main

Refuses = Callable[..., str]
NUMBERS = (
    "1e3", "0x10", "١٢٣", "9" * 99, "9^99", "", " ", "\n", "1\n2", "-0", "-5", "1,,2", ",", "1.5", "k", "1kk", "NaN",
    "inf", "1/0", "½", "128K\x1b[31m", "x" * 5000, "1" + "0" * 38 + "k", "１", "None", "[1]", "--", "0k", "1..2",
)  # fmt: skip
WORDS = ("", " ", "\x1b[31mred", "a\nb", "\u202eevil", "x" * 100_000, "\udcff", "../../etc/passwd", "%s%n", "{0}", "-")


@pytest.fixture
def refuses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refuses:
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> str:
        monkeypatch.setattr(sys, "argv", ["kvplan", *args])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert stop.value.code == 2, printed.out + printed.err
        assert printed.out == ""
        assert printed.err.startswith("kvplan: ") and printed.err.endswith("\n")
        assert printed.err[:-1].isprintable() and len(printed.err) < MAX_LINE + 20
        assert "bug in kvplan" not in printed.err
        assert list(tmp_path.iterdir()) == []
        return printed.err

    return run


@pytest.mark.parametrize("flag", ["context", "max-model-len", "snapshot-every", "gpu-memory", "weights"])
@pytest.mark.parametrize("value", NUMBERS)
def test_a_bad_number(refuses: Refuses, flag: str, value: str) -> None:
    assert f"--{flag}" in refuses("estimate", "llama-3.1-8b", f"--{flag}={value}")


@pytest.mark.parametrize("flag", ["tp", "pp", "dp", "nodes", "gpus", "snapshots", "max-num-seqs"])
@pytest.mark.parametrize("value", ["1e3", "0x10", "9" * 99, "", "-1", "1.5", "true", "\x1b[31m1", "9" * 12, "x" * 3000])
def test_a_bad_count(refuses: Refuses, flag: str, value: str) -> None:
    assert f"--{flag}" in refuses("estimate", "llama-3.1-8b", f"--{flag}={value}")


@pytest.mark.parametrize("flag", ["kv-cache-dtype", "mamba-ssm-dtype", "baseline", "gpu", "quantization", "engine"])
@pytest.mark.parametrize("value", WORDS)
def test_a_bad_word(refuses: Refuses, flag: str, value: str) -> None:
    memory = () if flag == "gpu" else ("--gpu-memory", "80GiB")
    refuses("estimate", "llama-3.1-8b", f"--{flag}={value}", *memory)


@pytest.mark.parametrize(
    "name",
    [
        *WORDS, "/dev/zero", "/dev/stdin", "/proc/self/mem", "/", "a/b/c", "org/name@", "org/name@a..b", "@",
        "https://", "https://huggingface.co/a", "https://example.com/a/b", "http://[::1", "file:///etc/passwd",
        "~nobody-here/x",
    ],
)  # fmt: skip
def test_a_bad_model(refuses: Refuses, name: str) -> None:
    refuses("estimate", name)


@pytest.mark.parametrize(
    "args",
    [
        ("--json", "--csv"), ("--csv", "--markdown"), ("--csv", "--explain"), ("--gpu", "H200:8", "--gpus", "4"),
        ("--context", "131,072"), ("--context", ",".join(map(str, range(1, 10_001)))), ("extra\x1b[31m",),
        ("--\x1b[31mflag",), ("--json=1",),
    ],
)  # fmt: skip
def test_a_contradiction(refuses: Refuses, args: tuple[str, ...]) -> None:
    refuses("estimate", "llama-3.1-8b", *args)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path)


PROFILES: dict[str, str | bytes | Callable[[Path], None]] = {
    "empty": "", "not TOML": "x", "twice": "a = 1\na = 2", "nested": "x = " + "[" * 100_000,
    "many parts": "a" + ".a" * 400_000,
    "a long number": "x = " + "9" * 5000, "no date": "x = 1979-99-99", "not UTF-8": b"\xff\xfe", "NUL": "\0",
    "5 MB": "x = '" + "y" * 5_000_000 + "'", "fifo": _fifo, "device": _device, "loop": _loop, "folder": Path.mkdir,
    "another schema": 'schema = "kvplan.gpu/9"\nname = "\\u001b[31m"',
}  # fmt: skip


@pytest.mark.parametrize("what", PROFILES)
@pytest.mark.parametrize("kind", ["models", "gpus"])
def test_a_bad_profile_of_ones_own(
    refuses: Refuses, kind: str, what: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
) -> None:
    home = tmp_path_factory.mktemp("own")
    monkeypatch.setenv("KVPLAN_HOME", str(home))
    (home / kind).mkdir()
    path, content = home / kind / "bad.toml", PROFILES[what]
    if callable(content):
        content(path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    _forget()
    try:
        assert "bad.toml" in refuses(kind, "show", "bad")
        with pytest.raises(SystemExit) as stop:
            monkeypatch.setattr(sys, "argv", ["kvplan", kind, "show", {"models": "kimi-k3", "gpus": "dgx-b300"}[kind]])
            main()
        assert stop.value.code in (None, 0)
    finally:
        monkeypatch.undo()
        _forget()


def _forget() -> None:
    from kvplan import gpu
    from kvplan.sources import bundled

    for cached in (profiles.paths, profiles.load, gpu._by_name, bundled._heads, bundled._names):
        cached.cache_clear()
