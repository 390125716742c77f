"""README's commands print what README shows."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
SHOWN = re.findall(r"^\$ (kvplan [^\n]+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
FIRST = re.search(
    r"&& \.venv/bin/(kvplan [^\n]+)\n```\n<!-- output -->\n```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL
)
assert FIRST is not None, "README does not show the output of its first command"


@pytest.mark.parametrize(("command", "output"), [FIRST.groups(), *SHOWN])
def test_readme_shows_what_the_command_prints(kvplan_process: Any, command: str, output: str) -> None:
    assert kvplan_process(*shlex.split(command)[1:]).stdout == output


def test_readme_names_the_test_command_that_ci_runs() -> None:
    match = re.search(r"<!-- test -->\n```bash\n([^\n]+)\n```", README)
    assert match is not None
    assert "pytest" in match[1]
