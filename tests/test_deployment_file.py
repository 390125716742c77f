"""A deployment in a file says what the flags say; what it cannot mean is refused by key."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.cli import estimate
from kvplan.cli.deployed import _NOT_THEIRS
from kvplan.cli.init import helps
from kvplan.deployment import Deployment
from kvplan.deployment_file import read_deployment, template
from kvplan.errors import KvplanError, ProfileError, UsageError

K3 = 'model = "kimi-k3"\ngpu = "B300:8"\nkv_cache_dtype = "fp8"\ncontext = "128K,1M"\n'


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "deployment.toml"
        path.write_text(text)
        return str(path)

    return write


def test_a_file_is_what_its_flags_are(kvplan: Any, file: Any) -> None:
    typed = kvplan("estimate", "kimi-k3", "--gpu", "B300:8", "--kv-cache-dtype", "fp8", "--context", "128K,1M")
    assert typed.returncode == 0
    assert kvplan("estimate", "--deployment", file(K3)).stdout == typed.stdout


def test_what_is_typed_wins(kvplan: Any, kvplan_json: Any, file: Any) -> None:
    made = kvplan_json("estimate", "qwen3-next", "--deployment", file(K3), "--gpu", "H100:2", "--context", "8K")
    assert (made["model"]["name"], made["inputs"]["gpu"], made["inputs"]["context"]) == ("qwen3-next", "h100", [8192])
    assert made["inputs"]["kv_cache_dtype"] == "fp8"


@pytest.mark.parametrize(
    "words",
    [
        ("agents", "sessions", "--workload", "coding-agent"), ("frontier",), ("compare",),
        ("agents", "tiers", "--workload", "coding-agent", "--prefill-tokens-per-s", "20000"),
    ],
)  # fmt: skip
def test_other_commands_take_the_file(kvplan_json: Any, file: Any, words: tuple[str, ...]) -> None:
    found = kvplan_json(*words, "--deployment", file(K3.replace('context = "128K,1M"\n', "dcp = 8\n")))
    text = str(found)
    assert "kimi-k3" in text and "'dcp': 8" in text


def test_every_flag_is_a_key_and_every_key_a_flag() -> None:
    flags = set(inspect.signature(estimate.command).parameters) - (_NOT_THEIRS - {"context", "baseline"})
    assert flags - {"deployment"} == set(Deployment.model_fields)


def test_every_line_of_the_template_can_be_set(tmp_path: Path) -> None:
    text = template(helps(), "kimi-k3")
    keys = re.findall(r"^# ([a-z_]+) = (.*)$", text, re.MULTILINE)
    assert [key for key, _ in keys] != [] and {key for key, _ in keys} == set(Deployment.model_fields)
    path = tmp_path / "one.toml"
    for key, value in keys:
        path.write_text(f"{key} = {value}\n")
        assert list(read_deployment(path)[1]) == [key]
    path.write_text(text)
    assert read_deployment(path) == ("kimi-k3", {})
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kv-cache-dtype = "fp8"', "kv-cache-dtype: no such key; did you mean kv_cache_dtype?"),
        ("tpp = 4", "tpp: no such key; did you mean tp?"), ("[gpu]\nname = 1", "gpu: input should be a valid string"),
        ("zzzz = 1", "zzzz: no such key; `kvplan init` writes them all"),
        ('tp = "8"', "tp: input should be a valid integer"), ("tp = true", "tp: input should be a valid integer"),
        ("tp = 0", "tp: input should be greater than or equal to 1"), ('gpu = " "', "gpu is empty"),
        ('kv_cache_dtype = "q3"', "kv_cache_dtype: --kv-cache-dtype 'q3' is not modelled"), ("model = 3", "model: "),
        ("enforce_eager = 1", "enforce_eager: input should be a valid boolean"),
        ("tp = 1979-05-27", "tp: input should be a valid integer"), ('context = "8K,,1M"', "--context '8K,,1M' holds"),
        ("gpu_memory_utilization = nan", "finite number"), ('mamba_cache_mode = "x"', "mamba_cache_mode: "),
    ],
)  # fmt: skip
def test_what_a_file_cannot_mean_is_refused_by_key(text: str, said: str, file: Any) -> None:
    path = file(text + "\n")
    with pytest.raises(UsageError) as raised:
        read_deployment(Path(path))
    assert str(raised.value).startswith(path) and said in str(raised.value)


def test_files_that_are_none(kvplan: Any, tmp_path: Path, file: Any) -> None:
    with pytest.raises(UsageError, match="no such file; `kvplan init -o"):
        read_deployment(tmp_path / "none.toml")
    with pytest.raises(ProfileError, match="not valid TOML"):
        read_deployment(Path(file("tp = ")))
    done = kvplan("estimate", "--deployment", file(K3), "--", "vllm", "serve", "moonshotai/Kimi-K3")
    assert done.returncode == 2 and "give one" in done.stderr


@given(st.dictionaries(st.text(max_size=20), st.integers() | st.text(max_size=9) | st.booleans(), max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("any") / "deployment.toml"
    path.write_text("\n".join(f"{key} = {value!r}" for key, value in values.items()), encoding="utf-8")
    try:
        read_deployment(path)
    except KvplanError as error:
        assert str(error).startswith(str(path))


def test_init_writes_one_and_keeps_what_is_there(kvplan: Any, tmp_path: Path) -> None:
    first = kvplan("init", "kimi-k3", cwd=tmp_path)
    path = tmp_path / "deployment.toml"
    assert first.returncode == 0 and read_deployment(path) == ("kimi-k3", {})
    path.write_text("tp = 4\n")
    again = kvplan("init", cwd=tmp_path)
    assert again.returncode == 2 and "--force" in again.stderr and path.read_text() == "tp = 4\n"
    assert kvplan("init", "--force", cwd=tmp_path).returncode == 0
    assert read_deployment(path) == (None, {})
    assert [one.name for one in tmp_path.iterdir()] == ["deployment.toml"]
    assert kvplan("init", "-o", str(tmp_path / "no" / "such.toml")).returncode == 2
