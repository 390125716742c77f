"""Public boot logs: what kvplan recomputes from them is what their engines printed."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kvplan.logs import open_log, read_log
from kvplan.verify import verify_log

LOGS = Path(__file__).parent / "golden" / "logs"
CASES = tomllib.loads((LOGS / "index.toml").read_text(encoding="utf-8"))["log"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_engine_printed_what_is_computed(case: dict[str, Any], tmp_path: Path) -> None:
    with open_log(str(LOGS / f"{case['name']}.log")) as stream:
        facts = read_log(stream)
    assert facts.engine == case["engine"]
    assert facts.version == case.get("version")
    model = case.get("model")
    if "config" in case:
        (tmp_path / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
        model = str(tmp_path)
    report, _, _ = verify_log(facts, model=model)
    found = {row.what: row for row in report.lines}
    for what, printed in case["exact"].items():
        row = found[what]
        assert (row.printed, row.computed, row.verdict) == (printed, printed, "exact"), what
    differing = [row for row in report.lines if row.verdict == "differs" and row.what != "weights"]
    assert len(differing) >= case.get("differs", 0)
    if "differs" not in case:
        assert differing == []
    said = " ".join(report.warnings)
    assert all(text in said for text in case.get("warnings", [])), said
