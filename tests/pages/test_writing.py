"""The files of a report: the same bytes each time, whole or not there, and nothing heavy before they are asked for."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kvplan.cases import product
from kvplan.errors import SourceError, UsageError
from kvplan.pages import Report, deployment_report, write_report
from kvplan.schemas import find_schema

FLAGS = {"gpu": "B300:8", "kv_cache_dtype": "fp8"}
COMMAND = "kvplan report kimi-k3 --gpu B300:8 --kv-cache-dtype fp8 -o report.pdf"


def make() -> Report:
    return deployment_report(product([("kimi-k3", FLAGS, ())], []), pages=["verdict", "bytes", "pool"], command=COMMAND)


@pytest.fixture(scope="module")
def report() -> Report:
    return make()


def test_equal_reports_are_equal_to_the_byte(report: Report, tmp_path: Path) -> None:
    first = write_report(report, tmp_path / "a" / "report.pdf", tmp_path / "a" / "png")
    second = write_report(make(), tmp_path / "b" / "report.pdf", tmp_path / "b" / "png")
    assert [path.name for path in first] == [
        "report.pdf", "report.json", "1-verdict.png", "2-bytes.png", "3-pool.png",
    ]  # fmt: skip
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert first[0].read_bytes()[:5] == b"%PDF-"
    assert b"CreationDate" not in first[0].read_bytes()
    assert first[2].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_json_holds_the_sheets(report: Report, tmp_path: Path) -> None:
    write_report(report, tmp_path / "report.pdf")
    document = json.loads((tmp_path / "report.json").read_text())
    jsonschema.Draft202012Validator(find_schema("kvplan.report/1")).validate(document)
    assert list(document)[:4] == ["schema", "kvplan_version", "inputs", "assumptions"]
    assert document["command"] == COMMAND
    assert [page["name"] for page in document["pages"]] == ["verdict", "bytes", "pool"]
    assert document["inputs"]["models"][0]["context"] == [131_072, 1_048_576]
    assert {"name", "value", "kind", "source"} <= set(document["assumptions"][0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.pdf"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_leaves_what_was_there(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    out = tmp_path / "report.pdf"
    out.write_text("the one before")

    def interrupted(label: str) -> None:
        if label == report.sheets[-1].page.title:
            raise error

    with pytest.raises(error):
        write_report(report, out, tmp_path / "png", interrupted)
    assert out.read_text() == "the one before"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["report.pdf"]


def test_places_that_cannot_be_written_to(report: Report, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"name a file that ends in \.pdf"):
        write_report(report, tmp_path / "report.txt")
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="file"):
        write_report(report, tmp_path / "file" / "report.pdf")
    (tmp_path / "folder.pdf").mkdir()
    with pytest.raises(SourceError, match=r"folder\.pdf"):
        write_report(report, tmp_path / "folder.pdf")


def test_the_users_own_style_changes_nothing(report: Report, tmp_path: Path) -> None:
    import matplotlib

    first = write_report(report, tmp_path / "a.pdf")[0].read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "savefig.bbox": "tight", "lines.linewidth": 9}):
        assert write_report(report, tmp_path / "b.pdf")[0].read_bytes() == first
        assert matplotlib.rcParams["font.size"] == 30


def test_the_command(kvplan: Any, tmp_path: Path) -> None:
    words = ("report", "kimi-linear", "no-such-model", "--gpu", "H200", "-o", "out.pdf", "--png", "png")
    done = kvplan(*words, "--pages", "verdict,pool,tiers", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[0].split(",")[0]) == (0, "out.pdf: 2 pages")
    assert "kvplan: note: left out: Where idle sessions can wait" in done.stderr
    assert "kvplan: warning: no-such-model is not in the report: " in done.stderr
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        "1-verdict.png", "2-pool.png", "out.json", "out.pdf",
    ]  # fmt: skip
    assert json.loads((tmp_path / "out.json").read_text())["command"].startswith("kvplan report kimi-linear")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report", "kimi-k3", "--gpu", "B300:8"), "--out"),
        (("report", "--gpu", "B300:8", "-o", "x.pdf"), "name a model"),
        (("report", "kimi-k3", "-o", "x.pdf"), "name the GPUs"),
    ],
)
def test_errors_are_one_line(kvplan: Any, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = kvplan(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kvplan: ") and done.stderr.count("\n") == 1
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_engines_command_makes_a_report(kvplan: Any, tmp_path: Path) -> None:
    own = ("report", "--gpu", "H200:8", "-o", "x.pdf", "--pages", "verdict", "--json")
    done = kvplan(*own, "--", "vllm", "serve", "moonshotai/Kimi-Linear-48B-A3B-Instruct", "-tp", "8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "x.json").read_text())
    assert document["inputs"]["models"][0]["tp"] == 8


def test_matplotlib_comes_with_a_report_alone() -> None:
    script = (
        "import sys\nfrom kvplan.cli.app import main\nsys.argv = ['kvplan', 'report', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint('LOADED', 'matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED False"
