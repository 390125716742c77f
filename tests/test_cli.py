"""What a user of the command line relies on: exit codes, streams, formats, and a start that feels instant."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEAVY = ("torch", "triton", "matplotlib", "rich", "numpy", "pydantic", "huggingface_hub")


def imported(*args: str) -> set[str]:
    """Which heavy libraries a command has loaded by the time it ends."""
    script = (
        "import sys\n"
        f"sys.argv = ['kvplan', *{list(args)!r}]\n"
        "from kvplan.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('\\nLOADED', *[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.rsplit("LOADED", 1)[1].split())


def test_help_loads_nothing_heavy() -> None:
    assert imported("--help") == set()
    assert imported("estimate", "--help") <= {"pydantic"}  # typer itself loads it to describe an option


def test_an_estimate_loads_only_pydantic() -> None:
    assert imported("estimate", "kimi-k3", "--gpu", "B300:8") == {"pydantic"}


def test_no_arguments_show_the_help(kvplan: Any) -> None:
    done = kvplan()
    assert done.returncode == 0
    assert "estimate" in done.stdout


@pytest.mark.parametrize("group", ["models", "gpus"])
def test_a_group_alone_shows_its_help(kvplan: Any, group: str) -> None:
    done = kvplan(group)
    assert (done.returncode, done.stderr) == (0, "")
    assert "  show " in done.stdout and "\n\nCommands:\n" in done.stdout


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("estimate", "kimi-k3"), 0),
        (("estimate", "kimi-k3", "--gpu", "B300:8", "--engine", "ideal"), 0),
        (("estimate", "kimi-k3", "--gpu", "B200:8", "--engine", "ideal"), 1),
        (("estimate", "no-such-model"), 2),
        (("estimate", "kimi-k3", "--gpu", "no-such-gpu"), 2),
        (("estimate", "kimi-k3", "--tp", "7"), 2),
        (("estimate", "kimi-k3", "--context", "2M"), 2),
        (("estimate", "kimi-k3", "--tp", "8", "--dcp", "16"), 2),
        (("estimate", "kimi-k3", "--kv-cache-dtype", "q3"), 2),
        (("estimate", "kimi-k3", "--engine", "nosuch"), 2),
        (("estimate", "kimi-k3", "--snapshots", "2", "--snapshot-every", "1000"), 2),
        (("estimate", "kimi-k3", "--nosuchflag"), 2),
        (("estimate",), 2),
        (("nosuch",), 2),
    ],
)
def test_exit_codes(kvplan: Any, args: tuple[str, ...], code: int) -> None:
    done = kvplan(*args)
    assert done.returncode == code, done.stderr
    if code == 2:
        assert done.stdout == ""
        assert done.stderr.startswith("kvplan: ")
        assert done.stderr.count("\n") == 1


def test_a_pipe_gets_plain_text(kvplan: Any) -> None:
    done = kvplan("estimate", "kimi-k3")
    assert "\x1b[" not in done.stdout
    assert "4,073,250,816" in done.stdout


def test_csv_and_markdown_hold_the_same_total(kvplan: Any) -> None:
    table = list(csv.DictReader(io.StringIO(kvplan("estimate", "kimi-k3", "--csv").stdout)))
    assert table[0]["total_bytes"] == "4073250816"
    assert "| 4,073,250,816 |" in kvplan("estimate", "kimi-k3", "--markdown").stdout


def test_explain_writes_the_arithmetic_out(kvplan: Any) -> None:
    assert "69 × 96 × 128 × 128 × 4 B" in kvplan("estimate", "kimi-k3", "--explain").stdout


def test_listings(kvplan_json: Any) -> None:
    models = kvplan_json("models", "list")["models"]
    assert len(models) >= 60
    assert {"kimi-k3", "deepseek-v4-pro", "qwen3-next"} <= {row["name"] for row in models}
    gpus = {row["name"].lower() for row in kvplan_json("gpus", "list")["gpus"]}
    assert len(gpus) >= 19
    assert kvplan_json("models", "show", "kimi-k3")["layers"]
    assert kvplan_json("gpus", "show", "h200")["memory_bytes"] > 0


def test_the_shell_completes(kvplan: Any) -> None:
    done = kvplan("--show-completion", "bash")
    assert "kvplan" in done.stdout or done.returncode == 2


def test_the_module_runs_from_anywhere(kvplan: Any, tmp_path: Path) -> None:
    assert json.loads(kvplan("estimate", "kimi-k3", "--json", cwd=tmp_path).stdout)["schema"] == "kvplan.plan/1"


def test_old_rules_are_warned_of(kvplan: Any) -> None:
    done = kvplan("estimate", "kimi-linear", "--gpu", "H200", "--engine-version", "0.13")
    assert done.returncode == 0
    assert "the rules of vLLM 0.13.0 are" in done.stderr and "days old" in done.stderr


@pytest.mark.parametrize("group", ["", "models", "engines", "gpus", "workloads"])
def test_help_cuts_no_sentence_short(kvplan: Any, group: str) -> None:
    shown = kvplan(*group.split(), "--help").stdout
    assert "..." not in shown.partition("Commands:")[2]
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("report", "kimi-linear"), "Missing option '--out' / '-o'; `kvplan report --help` shows what it takes"),
        (("nope",), "No such command 'nope'; `kvplan --help` shows what it takes"),
        (("agents", "workflow", "absent.toml", "kimi-k3"), "absent.toml: no such file"),
    ],
)
def test_an_error_says_what_to_do(kvplan: Any, args: tuple[str, ...], said: str) -> None:
    assert kvplan(*args).stderr == f"kvplan: {said}\n"


@pytest.mark.parametrize("risk", ["1", "1%", "1.0 %"])
def test_a_risk_is_a_percentage(kvplan_json: Any, risk: str) -> None:
    found = kvplan_json("frontier", "llama-3.1-8b", "--gpu", "H200:1", "--workload", "chat", "--risk", risk)
    assert found["inputs"]["risk"] == 0.01


def test_a_risk_of_words_is_refused(kvplan: Any) -> None:
    done = kvplan("frontier", "llama-3.1-8b", "--gpu", "H200:1", "--risk", "low")
    assert done.returncode == 2
    assert "--risk" in done.stderr and "write for example 1 or 1%" in done.stderr
