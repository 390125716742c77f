"""The bench without a GPU: what it writes, resumes, skips and says."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="kernel tests need torch (its CPU build will do) and triton")
from kvplan_kernels import bench, calibration, report, suites, table, timing  # noqa: E402
from kvplan_kernels import runner as running  # noqa: E402
from kvplan_kernels.case import Case, Traffic, Work  # noqa: E402


def sample(kernel: str, seconds: float, roof: str = "inplace", **shape: Any) -> dict[str, Any]:
    measured = {"median_s": seconds, "p10_s": seconds * 0.5, "p90_s": seconds * 1.5, "replays": 7}
    work = {"bytes": 4_000_000_000, "flops": 10**12, "roof": roof, "error": 1e-3, "tolerance": 1e-2}
    return {"owner": "kvplan", "kernel": kernel, **shape, **measured, **work}


def document() -> dict[str, Any]:
    roofs = [sample("move", 1e-3, how, how=how, megabytes=4000) for how in ("inplace", "copy", "read", "write")]
    decode = [sample("kda_decode", 2e-3, heads=96, batch=n, state="fp32", layout="vk") for n in (1, 8)]
    return {
        "device": {"name": 'a "card"', "driver": "1.2", "memory_bytes": 1 << 37, "multiprocessors": 132, "l2_bytes": 1},
        "versions": {"torch": "2", "triton": "3", "python": "3.12"},
        "source": {"date": "2026-01-01", "command": "x", "kind": "measured"},
        "conditions": [{"at": "start", "sm_clock_mhz": 1980.0}],
        "samples": [*roofs, sample("matmul", 2e-3, "matmul", size=8192), *decode],
    }


def test_a_calibration_survives_writing(tmp_path: Path) -> None:
    calibration.write(tmp_path / "deep" / "a.toml", document())
    back = calibration.read(tmp_path / "deep" / "a.toml")
    assert back.pop("schema") == calibration.SCHEMA
    assert back == document()
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.toml"]


def test_another_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('schema = "kvplan.gpu/1"\n')
    with pytest.raises(ValueError, match=r"kvplan\.gpu/1"):
        calibration.read(tmp_path / "a.toml")


def test_the_table_shares_the_measured_roofs() -> None:
    last = table.rows(document()["samples"])[-1]
    assert last[0] == "kda_decode (kvplan)"
    assert last[2] == "2.000 ms"
    assert last[-1] == "50%"  # 1e12 FLOPs at the product's best, 1e15 a second, take 1 ms; the bytes half of that
    assert table.text(document()["samples"]).count("\n") == len(document()["samples"])


def test_held_out_shapes_are_not_in_the_suite_they_test() -> None:
    full = {case.key for case in suites.cases("full")[suites.ROOFS :]}
    held = suites.cases("held-out")[suites.ROOFS :]
    assert not full & {case.key for case in held}
    assert sum(case.kernel.startswith(("kda", "mla")) for case in held) >= 40


def test_cases_and_samples_have_the_same_key() -> None:
    cases = suites.cases("full")
    assert len({case.key for case in cases}) == len(cases)
    case = next(case for case in cases if case.kernel == "kda_prefill")
    assert calibration.key(sample(case.kernel, 1.0, **case.shape)) == case.key


def test_every_suite_begins_with_the_roofs() -> None:
    for suite in suites.SECONDS:
        assert [c.kernel for c in suites.cases(suite)][:5] == ["move"] * 4 + ["matmul"]
    assert {c.kernel for c in suites.cases("quick", "mla_decode")} == {"move", "matmul", "mla_decode"}


def fake(name: str, error: float | Exception) -> Case:
    def prepare(_: torch.device) -> Work:
        if isinstance(error, Exception):
            raise error
        return Work([lambda: None], lambda: error, Traffic(1, 1), 1e-2)

    return Case(name, {"heads": 1}, prepare)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> running.Runner:
    monkeypatch.setattr(timing, "measure", lambda calls, ranks: timing.summary([1.0, 2.0, 3.0]))
    return running.Runner(tmp_path / "a.toml", {**document(), "samples": []}, 60.0)


def test_a_kernel_that_fails_its_check_is_not_timed(runner: running.Runner) -> None:
    runner.run(
        [fake("good", 1e-3), fake("wrong", 0.5), fake("nan", float("nan")), fake("big", torch.OutOfMemoryError())]
    )
    assert [s["kernel"] for s in calibration.read(runner.path)["samples"]] == ["good"]
    assert runner.failed == 2
    assert any("out of memory" in note.lower() or "OutOfMemory" in note for note in runner.notes)


def test_what_a_library_refuses_is_said_and_the_rest_goes_on(runner: running.Runner) -> None:
    runner.run([fake("odd", RuntimeError("no such shape\nand more")), fake("good", 1e-3)])
    assert [s["kernel"] for s in runner.document["samples"]] == ["good"]
    assert runner.failed == 1
    assert "no such shape" in runner.notes[0] and "\n" not in runner.notes[0]


def test_an_owner_that_does_not_import_is_skipped_and_said(runner: running.Runner) -> None:
    runner.run([fake("theirs", ImportError("needs another torch")), fake("good", 1e-3)])
    assert [s["kernel"] for s in runner.document["samples"]] == ["good"]
    assert runner.failed == 0
    assert "does not import (needs another torch)" in runner.notes[0]


def test_resume_measures_only_the_rest(runner: running.Runner) -> None:
    runner.run([fake("one", 1e-3)])
    runner.run([fake("one", RuntimeError("measured twice")), fake("two", 1e-3)])
    assert [s["kernel"] for s in runner.document["samples"]] == ["one", "two"]


def test_the_time_limit_leaves_the_rest_for_resume(runner: running.Runner) -> None:
    runner.limit_s = -1.0
    runner.run([fake("one", 1e-3)])
    assert runner.document["samples"] == []
    assert "--resume" in runner.notes[0]


WRITER = """
import sys
from pathlib import Path
from kvplan_kernels import calibration
path = Path(sys.argv[1])
try:
    with calibration.only_writer(path):
        print("writing", flush=True)
        sys.stdin.readline()
        calibration.write(path, {"source": {"command": "", "date": ""}})
except ValueError as error:
    sys.exit(str(error))
"""


def test_one_bench_at_a_time_writes_a_file(tmp_path: Path) -> None:
    path, environment = tmp_path / "a.toml", {**os.environ, "PYTHONPATH": str(Path(bench.__file__).parents[1])}
    start = functools.partial(
        subprocess.Popen, [sys.executable, "-c", WRITER, str(path)], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    first = start()
    assert first.stdout and first.stdout.readline() == "writing\n"
    second = start()
    _, why = second.communicate()
    assert second.returncode == 1 and f"process {first.pid}" in why
    first.communicate("\n")
    assert first.returncode == 0 and calibration.read(path)["source"]["command"] == ""
    killed = start()
    assert killed.stdout and killed.stdout.readline() == "writing\n"
    killed.kill()
    killed.communicate()
    last = start()
    last.communicate("\n")
    assert last.returncode == 0
    assert [p.name for p in tmp_path.iterdir()] == ["a.toml"]


def test_no_device_is_exit_3_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert bench.main(["bench"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1


def test_usage_errors_are_exit_2() -> None:
    assert bench.main(["bench", "--suite", "no"]) == 2


def test_report_writes_the_table(tmp_path: Path) -> None:
    calibration.write(tmp_path / "a.toml", document())
    assert report.write(tmp_path / "a.toml", tmp_path / "out") == 0
    assert "| kda_decode (kvplan) |" in (tmp_path / "out" / "table.md").read_text()


def test_quantiles() -> None:
    assert json.dumps([timing.quantile([3.0, 1.0, 2.0], share) for share in (0.0, 0.5, 0.75)]) == "[1.0, 2.0, 2.5]"


def test_a_report_on_nothing_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = str(tmp_path / "absent.toml")
    assert bench.main(["report", absent, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{absent}: No such file or directory\n"
