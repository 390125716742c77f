"""The pages in docs/commands: what --help says of a command, and examples with what they print.

    python scripts/command_pages.py [--check]

Rewrites the part of each page between `<!-- usage COMMAND -->` and `<!-- end -->` from the command itself, and the
output of every `$ kvplan …` in docs/ that stands in a ```console block. A command without a page
gets one to start from. With --check nothing is written, and the exit code is 1 where something would be. The examples
run in this process, in a copy of docs/examples; `> FILE` at the end of a line writes a file there.
"""

import argparse
import contextlib
import inspect
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from kvplan.cli import agents, estimate
from kvplan.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
COMMANDS = DOCS / "commands"
SHARED_PAGES = ("models", "gpus", "engines", "workloads", "claims", "calibrations")
"""Groups whose commands stand on one page."""
DEPLOYMENT = "deployment-flags"
OUTPUT = {"json", "csv", "markdown", "explain", "context", "baseline"}
"""Flags of `kvplan estimate` that are no deployment flags."""
CHECKED = ("tutorial.md", "glossary.md", "claims.md", "reading-a-boot-log.md")
"""Pages beside those of the commands."""
_USAGE = re.compile(r"<!-- usage ([a-z -]+) -->\n.*?<!-- end -->", re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^\$ (kvplan [^\n]*)\n", re.MULTILINE)


def commands() -> dict[str, Any]:
    """Every command by the words that name it."""
    return dict(_walk(get_command(app), ()))


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield " ".join(words), command
        return
    context = command.make_context("kvplan", [], resilient_parsing=True)
    if words == ("agents",):
        yield "agents", command.get_command(context, agents._PAGE)
    for name in command.list_commands(context):
        yield from _walk(command.get_command(context, name), (*words, name))


def page_of(command: str) -> Path:
    first = command.split()[0]
    return COMMANDS / f"{first if first in SHARED_PAGES else command.replace(' ', '-')}.md"


def deployment_flags() -> set[str]:
    names = set(inspect.signature(estimate.command).parameters)
    return names - OUTPUT - {"ctx", "model"}


def table(command: Any, kept: Any) -> list[str]:
    """What --help lists of the parameters that `kept` takes, as Markdown rows."""
    context = command.make_context(command.name, [], resilient_parsing=True)
    found = []
    for one in command.params:
        record = one.get_help_record(context)
        if record is not None and one.name != "help" and kept(one.name):
            flags, said = (" ".join(part.split()).replace("|", "\\|") for part in record)
            found.append(f"| `{flags}` | {said} |")
    return ["| | |", "|---|---|", *found] if found else []


def usage(name: str, command: Any) -> str:
    """The generated part of a page."""
    shared = deployment_flags()
    takes = shared <= {one.name for one in command.params}
    own = table(command, lambda flag: not (takes and flag in shared))
    lines = [f"<!-- usage {name} -->", inspect.cleandoc(command.help or ""), "", *own]
    if takes:
        lines += ["", f"Beside these, every [deployment flag]({DEPLOYMENT}.md)."]
    return "\n".join([*lines, "<!-- end -->"])


def deployment_page() -> str:
    """The flags that most commands share."""
    shared = deployment_flags()
    rows = table(commands()["estimate"], lambda flag: flag in shared)
    return "\n".join(["<!-- usage deployment flags -->", *rows, "<!-- end -->"])


def with_usage(text: str) -> str:
    """A page with its generated parts as the commands have them now."""
    known = commands()

    def fresh(match: "re.Match[str]") -> str:
        name = match[1]
        if name == "deployment flags":
            return deployment_page()
        return usage(name, known[name]) if name in known else match[0]

    return _USAGE.sub(fresh, text)


def run(line: str) -> str:
    """What `kvplan …` prints; with `> FILE` at its end nothing, as the file has it."""
    words = shlex.split(line)
    target = None
    if len(words) > 2 and words[-2] == ">":
        words, target = words[:-2], words[-1]
    out = io.StringIO()
    silent = contextlib.redirect_stderr(io.StringIO())
    with contextlib.redirect_stdout(out), silent, contextlib.suppress(SystemExit):
        app(words[1:], standalone_mode=False)
    if target is not None:
        Path(target).write_text(out.getvalue(), encoding="utf-8")
        return ""
    return out.getvalue()


def with_outputs(text: str) -> str:
    """A page with the output of every command in its console blocks as it is now. Run in a folder with the examples."""

    def fresh(match: "re.Match[str]") -> str:
        lines = _LINE.findall(match[1])
        return "```console\n" + "".join(f"$ {line}\n{run(line)}" for line in lines) + "```" if lines else match[0]

    return _CONSOLE.sub(fresh, text)


@contextlib.contextmanager
def examples() -> Iterator[None]:
    """A folder that holds a copy of docs/examples, as the current one."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "examples"
        shutil.copytree(DOCS / "examples", work)
        os.chdir(work)
        try:
            yield
        finally:
            os.chdir(before)


def start(name: str, command: Any) -> str:
    """A page to start from."""
    return f"# kvplan {name}\n\n<!-- usage {name} -->\n<!-- end -->\n"


def pages() -> list[Path]:
    """Every page with a generated part, or with examples that are kept as they print."""
    return sorted([*COMMANDS.glob("*.md"), *(DOCS / name for name in CHECKED if (DOCS / name).exists())])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    changed = []
    for name, command in commands().items():
        path = page_of(name)
        text = path.read_text() if path.exists() else ""
        if f"<!-- usage {name} -->" not in text:
            changed.append(path)
            if not check:
                path.write_text(f"{text}\n{start(name, command)}" if text else start(name, command), encoding="utf-8")
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"KVPLAN_HOME": home, "HF_HUB_OFFLINE": "1"}
        for path in pages():
            text = path.read_text(encoding="utf-8")
            with examples():
                now = with_outputs(with_usage(text))
            if now != text:
                changed.append(path)
                if not check:
                    path.write_text(now, encoding="utf-8")
    for path in dict.fromkeys(changed):
        print(f"{path.relative_to(ROOT)}: {'would change' if check else 'written'}")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
