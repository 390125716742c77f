"""The files of a report: the same bytes each time, whole or not there, and nothing heavy before they are asked for."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from here_kit import here
from kvplan.cases import product
from kvplan.errors import SourceError, UsageError
from kvplan.pages import Report, deployment_report, write_report
from kvplan.schemas import find_schema

FLAGS = {"gpu": "B300:8", "kv_cache_dtype": "fp8"}
COMMAND = "kvplan report kimi-k3 --gpu B300:8 --kv-cache-dtype fp8 -o report.pdf"


def make() -> Report:
    return deployment_report(product([("kimi-k3", FLAGS, ())], []), pages=["verdict", "pool"], command=COMMAND)


@pytest.fixture(scope="module")
def report() -> Report:
    return make()


@pytest.fixture(scope="module")
def small(report: Report) -> Report:
    """Its last page alone."""
    return replace(report, sheets=report.sheets[-1:])


@pytest.fixture(scope="module")
def written(report: Report, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The report on disk, each page as a picture too."""
    folder = tmp_path_factory.mktemp("written")
    return write_report(report, folder / "report.pdf", folder / "png")


def test_equal_reports_are_equal_to_the_byte(written: list[Path], tmp_path: Path) -> None:
    first, second = written, write_report(make(), tmp_path / "b" / "report.pdf", tmp_path / "b" / "png")
    assert [path.name for path in first] == [
        "report.pdf", "report.json", "1-verdict.png", "2-pool.png",
    ]  # fmt: skip
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert first[0].read_bytes()[:5] == b"%PDF-"
    assert b"CreationDate" not in first[0].read_bytes()
    assert first[2].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_json_holds_the_sheets(written: list[Path]) -> None:
    document = json.loads(written[1].read_text())
    jsonschema.Draft202012Validator(find_schema("kvplan.report/1")).validate(document)
    assert list(document)[:4] == ["schema", "kvplan_version", "inputs", "assumptions"]
    assert document["command"] == COMMAND
    assert [page["name"] for page in document["pages"]] == ["verdict", "pool"]
    assert document["inputs"]["models"][0]["context"] == [131_072, 1_048_576]
    assert {"name", "value", "kind", "source"} <= set(document["assumptions"][0])
    assert sorted(path.name for path in written[0].parent.iterdir()) == ["png", "report.json", "report.pdf"]


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


def test_places_that_cannot_be_written_to(small: Report, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"name a file that ends in \.pdf"):
        write_report(small, tmp_path / "report.txt")
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="file"):
        write_report(small, tmp_path / "file" / "report.pdf")
    (tmp_path / "folder.pdf").mkdir()
    with pytest.raises(SourceError, match=r"/folder\.pdf: not an ordinary file"):
        write_report(small, tmp_path / "folder.pdf")
    with pytest.raises(SourceError, match=r"/both\.pdf: "):
        write_report(small, tmp_path / "both.pdf", tmp_path / "both.pdf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.pdf"]


def test_a_link_keeps_leading_to_its_file(small: Report, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.pdf").symlink_to(tmp_path / "real" / "report.pdf")
    write_report(small, tmp_path / "link.pdf")
    assert (tmp_path / "link.pdf").is_symlink()
    assert (tmp_path / "real" / "report.pdf").read_bytes()[:5] == b"%PDF-"


def test_the_users_own_style_changes_nothing(small: Report, tmp_path: Path) -> None:
    import matplotlib

    first = write_report(small, tmp_path / "a.pdf")[0].read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "savefig.bbox": "tight", "lines.linewidth": 9}):
        assert write_report(small, tmp_path / "b.pdf")[0].read_bytes() == first
        assert matplotlib.rcParams["font.size"] == 30


def test_the_command(tmp_path: Path) -> None:
    words = ("report", "kimi-linear", "no-such-model", "--gpu", "H200", "-o", "out.pdf", "--png", "png")
    done = here(*words, "--pages", "verdict,pool,tiers", cwd=tmp_path)
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
def test_errors_are_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = here(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kvplan: ") and done.stderr.count("\n") == 1
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_engines_command_makes_a_report(tmp_path: Path) -> None:
    own = ("report", "--gpu", "H200:8", "-o", "x.pdf", "--pages", "verdict", "--json")
    done = here(*own, "--", "vllm", "serve", "moonshotai/Kimi-Linear-48B-A3B-Instruct", "-tp", "8", cwd=tmp_path)
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
