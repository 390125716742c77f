"""The frontier on paper: every number on it is the search's own, and it needs something to draw."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.agents.frontier import Frontier, deployed_users, frontier
from kvplan.agents.options import ask
from kvplan.errors import UsageError
from kvplan.pages import frontier_report, write_report


@pytest.fixture(scope="module")
def found() -> Frontier:
    asked = ask(8, 1.0, 1, "H200=3.5/h,B300=6/h", 16, 0)
    return frontier("kimi-linear", "chat", asked, flags={"gpu": "H200,B300"})


def test_the_page_shows_the_search(found: Frontier, tmp_path: Path) -> None:
    write_report(frontier_report(found, command="kvplan frontier"), tmp_path / "f.pdf", tmp_path)
    page: dict[str, Any] = json.loads((tmp_path / "f.json").read_text())["pages"][0]["numbers"]
    prices = {"h200": 3.5, "b300": 6.0}
    assert {one["gpu"] for one in page["options"]} == set(prices)
    for one, option in zip(page["options"], found.by_gpu, strict=True):
        assert one["cost"] == one["gpus"] * prices[one["gpu"]] and one["sessions"] == option.sessions >= 8
    assert found.users is not None
    assert [row["alike"] for row in page["users"]] == [row.alike for row in found.users.rows]
    assert (tmp_path / "1-frontier.png").stat().st_size > 10_000


def test_one_deployment_has_users_and_no_prices(tmp_path: Path) -> None:
    users = deployed_users("kimi-linear", "chat", ask(None, 1.0, 0, None, 16, 0), flags={"gpu": "H200"})
    report = frontier_report(users, command="kvplan frontier")
    assert report.sheets[0].numbers["options"] == [] and report.sheets[0].numbers["users"]
    write_report(report, tmp_path / "f.pdf")


def test_nothing_held_is_no_page() -> None:
    never = frontier("kimi-k3", "coding-agent", ask(8, 1.0, 0, None, 2, 0), flags={"gpu": "L4:2"})
    with pytest.raises(UsageError, match="nothing that was searched holds the load"):
        frontier_report(never)
