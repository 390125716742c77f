"""The precision study's exact recurrence and its paths, on few tokens."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="kernel tests need torch (its CPU build will do) and triton")
from kvplan_kernels import bench, calibration, kda_prefill, precision  # noqa: E402
from kvplan_kernels.case import relative_error  # noqa: E402

HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(precision, "HEADS", 1)
    monkeypatch.setattr(precision, "CALL", 8)


@pytest.mark.parametrize("gate", precision.GATES)
def test_exact_is_the_plain_recurrence_in_fp64(small, gate):
    x = precision.inputs(2, gate, HERE)
    state = torch.randn(1, 128, 128, dtype=torch.float64)
    want, states = kda_prefill.reference(*x[:5], state.clone(), x.A_log, x.dt_bias, precision.LOWER_BOUND)
    got = precision.exact(x, state)
    assert relative_error(got, want) < 1e-13
    assert relative_error(state, states[-1]) < 1e-13


def test_a_bf16_state_shows_and_an_fp32_state_does_not(small, monkeypatch):
    monkeypatch.setattr(precision, "GATES", {"slow": (-9.0, 0.0)})
    rows = precision.study(HERE, lengths=(2, 4), window=2, say=lambda _: None)
    error = {(r["path"], r["state"], r["tokens"]): (r["output_error"], r["state_error"]) for r in rows}
    assert len(error) == len(rows) == 8
    assert all(max(error["decode", "fp32", n]) < 1e-6 for n in (2, 4))
    assert all(1e-3 < error["decode", "bf16", n][1] < 1e-2 for n in (2, 4))
    assert all(max(error["prefill", "fp32", n]) < 2e-3 for n in (2, 4))
    assert error["prefill", "bf16", 4][1] > error["prefill", "fp32", 4][1]


def test_the_study_is_reported(tmp_path: Path) -> None:
    rows = [
        {"gate": "slow", "path": "decode", "state": s, "tokens": n, "output_error": 1e-3, "state_error": 2e-3}
        for s in ("fp32", "bf16")
        for n in (1024, 4096)
    ]
    head = {"device": {"name": "A GPU", "driver": "1"}, "versions": {"torch": "2"}}
    source = {"command": "x", "date": "2026-01-01", "kind": "measured"}
    study = {"heads": 2, "head_dim": 128, "window_tokens": 1024, "prefill_call_tokens": 8192}
    document = {**head, "source": source, "study": study, "errors": rows}
    calibration.write(tmp_path / "p.toml", document, calibration.PRECISION_SCHEMA)
    assert bench.main(["report", str(tmp_path / "p.toml"), "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "precision.md").read_text()
    assert "| slow | 4,096 | 1.0e-03 / 2.0e-03 | 1.0e-03 / 2.0e-03 |" in text
