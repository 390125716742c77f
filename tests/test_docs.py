"""The documentation says what the commands do: every command has a page, every option is on it, examples print that."""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvplan.architectures._registry import LAYERS, WEIGHTS
from kvplan.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("command_pages", ROOT / "scripts" / "command_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


command_pages = _load()
PAGES = command_pages.pages()
ANY_PAGE = sorted([*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SKILL.md"))])


@pytest.mark.parametrize("name", command_pages.commands())
def test_a_page_has_the_options_of_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = command_pages.page_of(name)
    assert page.exists(), "run scripts/command_pages.py"
    section = re.search(rf"<!-- usage {name} -->\n(.*?)<!-- end -->", page.read_text(), re.DOTALL)
    assert section is not None, f"{page.name} has no part for {name}"
    words = ["agents", "MODEL"] if name == "agents" else name.split()
    command_pages.app([*words, "--help"], standalone_mode=False)
    text = re.split(
        r"^[A-Z][\w.-]* ?[oO]?ptions:$|^Options:$", capsys.readouterr().out, maxsplit=1, flags=re.MULTILINE
    )[1]
    shown = re.findall(r"^  (-[^\n]*?)(?:  |$)", text, re.MULTILINE)
    offered = {flag for row in shown for flag in re.findall(r"--[a-z][a-z0-9-]*", row)} - {"--help"}
    listed = set(re.findall(r"--[a-z][a-z0-9-]*", " ".join(re.findall(r"^\| `([^`]*)`", section[1], re.MULTILINE))))
    if "deployment-flags.md" in section[1]:
        shared = (DOCS / "commands" / "deployment-flags.md").read_text()
        listed |= set(re.findall(r"--[a-z][a-z0-9-]*", " ".join(re.findall(r"^\| `([^`]*)`", shared, re.MULTILINE))))
    assert listed == offered


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_what_the_commands_say_now(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    with command_pages.examples():
        assert command_pages.with_outputs(command_pages.with_usage(text)) == text


def test_every_page_is_about_a_command() -> None:
    names = {command_pages.page_of(name).name for name in command_pages.commands()}
    found = {path.name for path in (DOCS / "commands").glob("*.md")}
    assert found - names == {"README.md", "deployment-flags.md"}
    index = (DOCS / "commands" / "README.md").read_text()
    assert {path for path in names if f"({path})" not in index} == set()


@pytest.mark.parametrize("page", ANY_PAGE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in link:
            assert (page.parent / link).exists(), link


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_api_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    found = blocks("docs/api.md", "python")
    assert len(found) >= 3
    for code in found:
        exec(compile(code, "docs/api.md", "exec"), scope)


def test_a_family_is_added_as_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/adding-an-architecture.md, walked through: refused, then read, planned and tested."""
    module, test = blocks("docs/adding-an-architecture.md", "python")
    (tmp_path / "config.json").write_text(blocks("docs/adding-an-architecture.md", "json")[0])
    words = ["estimate", str(tmp_path / "config.json"), "--context", "1000"]
    with pytest.raises(ConfigError, match="model_type: 'example_hybrid' is not modelled"):
        command_pages.app(words, standalone_mode=False)
    try:
        exec(compile(module, "example.py", "exec"), {"__name__": "kvplan.architectures.example"})
        command_pages.app(words, standalone_mode=False)
        assert blocks("docs/adding-an-architecture.md", "text")[0] in capsys.readouterr().out
        scope: dict[str, Any] = {}
        exec(compile(test, "test_example.py", "exec"), scope)
        run = [value for name, value in scope.items() if name.startswith("test_")]
        assert len(run) == 2
        for one in run:
            one()
    finally:
        LAYERS.pop("example_hybrid", None)
        WEIGHTS.pop("example_hybrid", None)


def test_the_skill_file_has_what_an_agent_looks_for() -> None:
    text = (ROOT / "SKILL.md").read_text()
    head = re.match(r"---\nname: ([a-z0-9-]{1,64})\ndescription: ([^\n]{50,1024})\n---\n", text)
    assert head is not None and head[1] == "kvplan"
    for line in blocks("SKILL.md", "bash"):
        for command in re.findall(r"^kvplan ([^\n#]*)", line, re.MULTILINE):
            name = " ".join(shlex.split(command)[:2])
            known = command_pages.commands()
            assert name in known or name.split()[0] in known, command


BLOCKS = {
    page: [line for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
           for line in block.splitlines() if line.startswith("kvplan ")]
    for page in sorted(DOCS.rglob("*.md"))
}  # fmt: skip


@pytest.mark.parametrize("page", [page for page, lines in BLOCKS.items() if lines], ids=lambda page: page.stem)
def test_what_a_page_says_to_type_runs(page: Path, tmp_path: Path) -> None:
    """In order and as pasted, beside the examples; a valid no is an answer. A report takes seconds: tests/pages."""
    shutil.copytree(DOCS / "examples", tmp_path, dirs_exist_ok=True)
    for line in BLOCKS[page]:
        if line.startswith("kvplan report"):
            continue
        command = line.replace("kvplan ", f"{shlex.quote(sys.executable)} -m kvplan ", 1)
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1, 4), f"{line}\n{done.stderr}"
    if page in PAGES:
        return  # what its consoles show is compared above
    for command, output in re.findall(r"^```console\n\$ kvplan ([^\n]+)\n(.*?)^```", page.read_text(), re.M | re.S):
        words = [sys.executable, "-m", "kvplan", *shlex.split(command)]
        assert subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False).stdout == output
