"""The wheel works where nothing but its own dependencies is installed, outside the checkout, and without torch."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _run(*command: str | Path, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_fresh_environment_plans_from_the_wheel(tmp_path: Path) -> None:
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("kvplan_hybrid-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    tools = tmp_path / "env" / "bin"
    _run(tools / "pip", "install", "--quiet", wheel, cwd=tmp_path)
    plan = json.loads(_run(tools / "kvplan", "estimate", "kimi-k3", "--context", "128K", "--json", cwd=tmp_path))
    assert plan["per_sequence"][0]["total_bytes"] == 4_073_250_816
    assert "h200" in _run(tools / "kvplan", "gpus", "list", cwd=tmp_path)
    installed = _run(tools / "pip", "list", "--format=freeze", cwd=tmp_path).lower()
    assert not any(name in installed for name in ("torch", "triton", "pytest", "ruff"))
    size = sum(
        path.lstat().st_size for path in (tmp_path / "env").rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert size < 270 * 10**6
