"""The reports that ship are what their commands write today."""

import json
import math
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import kvplan.pages
from kvplan.cli.app import app
from kvplan.schemas import find_schema

REPORTS = Path(__file__).resolve().parent.parent.parent / "reports"
WRITTEN = sorted(path.parent for path in REPORTS.glob("*/report.json"))
MOST_BYTES = 1_500_000


class Made(Exception):
    """A report that was about to be written."""


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Paths at which two documents differ; the last digits of a fraction may."""
    if isinstance(one, dict) and isinstance(other, dict):
        found = [f"{where}.{key}" for key in one.keys() ^ other.keys()]
        return found + [
            line for key in one.keys() & other.keys() for line in differences(one[key], other[key], f"{where}.{key}")
        ]
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return [f"{where}: {len(one)} and {len(other)} entries"]
        return [
            line
            for place, pair in enumerate(zip(one, other, strict=True))
            for line in differences(*pair, f"{where}[{place}]")
        ]
    if isinstance(one, float) and isinstance(other, float):
        return [] if math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) else [f"{where}: {one} and {other}"]
    return [] if one == other and type(one) is type(other) else [f"{where}: {one!r} and {other!r}"]


@pytest.mark.parametrize("folder", WRITTEN, ids=lambda folder: folder.name)
def test_a_report_agrees_with_its_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = json.loads((folder / "report.json").read_text())
    words = shlex.split(written["command"])

    def keep(report: Any, *rest: Any) -> None:
        raise Made(report)

    monkeypatch.setattr(kvplan.pages, "write_report", keep)
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(Made) as caught:
        app(words[1:], standalone_mode=False)
    again = json.loads(json.dumps(caught.value.args[0].document()))
    assert differences(written, again) == []


@pytest.mark.parametrize("folder", WRITTEN, ids=lambda folder: folder.name)
def test_a_report_is_whole_and_small(folder: Path) -> None:
    written = json.loads((folder / "report.json").read_text())
    jsonschema.Draft202012Validator(find_schema("kvplan.report/1")).validate(written)
    assert 4 <= len(written["pages"]) <= 8
    pictures = [f"{place}-{page['name']}.png" for place, page in enumerate(written["pages"], 1)]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*pictures, "report.json", "report.pdf"])
    assert sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES


def test_the_index_shows_every_report_with_its_command() -> None:
    index = (REPORTS / "README.md").read_text()
    for folder in WRITTEN:
        assert f"\n{json.loads((folder / 'report.json').read_text())['command']}\n" in index
    links = re.findall(r"\]\(([^)]+)\)", index)
    assert len(links) > 30 and all((REPORTS / link).is_file() for link in links)
