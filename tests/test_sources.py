"""Model arguments: paths of every kind, bundled profiles, and inputs that are hostile or broken."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvplan import profiles
from kvplan.errors import ConfigError, KvplanError, ProfileError, SourceError
from kvplan.sources import bundled, list_models, resolve

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "torch_dtype": "bfloat16",
}  # fmt: skip


def refusal(argument: str) -> str:
    """The one line that a refused argument gives."""
    with pytest.raises(KvplanError) as caught:
        resolve(argument)
    said = str(caught.value)
    assert said.isprintable() and len(said) < 500
    return said


def config(folder: Path, text: str | bytes | None = None, name: str = "config.json") -> str:
    path = folder / name
    if isinstance(text, bytes):
        path.write_bytes(text)
    else:
        path.write_text(json.dumps(CONFIG) if text is None else text)
    return str(path)


def test_a_path_to_a_config(tmp_path: Path) -> None:
    model = resolve(config(tmp_path))
    assert (model.name, model.snapshot, model.tensors) == (tmp_path.name, None, ())


def test_a_folder_that_holds_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(tmp_path)
    assert resolve(str(tmp_path)).snapshot == str(tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    assert resolve(tmp_path.name).name == tmp_path.name
    monkeypatch.chdir(tmp_path)
    assert resolve(".").name == tmp_path.name
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert resolve(f"~/{tmp_path.name}/config.json").name == tmp_path.name


def test_a_folder_with_a_models_name_and_no_config_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kimi-k3").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve("kimi-k3").name == "kimi-k3"
    assert "holds no config.json" in refusal("./kimi-k3")
    (tmp_path / "other").mkdir()
    assert "the directory other holds no config.json" in refusal("other")


def test_the_quantisation_of_a_sidecar(tmp_path: Path) -> None:
    config(tmp_path)
    sidecar = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    config(tmp_path, json.dumps(sidecar), "hf_quant_config.json")
    model = resolve(str(tmp_path))
    assert (model.quantization["quant_method"], model.kv_cache_dtype) == ("modelopt", "fp8")


@pytest.mark.parametrize("name", ["kimi-k3", "Kimi-K3", "moonshotai/Kimi-K3", "MOONSHOTAI/kimi-k3"])
def test_a_bundled_profile(name: str) -> None:
    model = resolve(name)
    assert (model.name, model.published.params_total) == ("kimi-k3", 2_779_931_837_184)
    assert model.layer_counts() == {"kda": 69, "mla": 24}


def test_a_hub_address_of_a_bundled_profile() -> None:
    assert resolve("https://huggingface.co/moonshotai/Kimi-K3").name == "kimi-k3"
    assert resolve("https://huggingface.co/moonshotai/Kimi-K3/blob/main/config.json").name == "kimi-k3"
    assert "at v2 is neither bundled nor cached" in refusal("https://hf.co/moonshotai/Kimi-K3/tree/v2")


def test_a_revision_is_not_the_bundled_one() -> None:
    assert "at abc is neither bundled nor cached" in refusal("moonshotai/Kimi-K3@abc")


def test_every_bundled_model_can_be_listed() -> None:
    rows = {row["name"]: row for row in list_models()}
    assert rows["kimi-k3"]["hf_id"] == "moonshotai/Kimi-K3"
    assert all(row["source"] and row["date"] for row in rows.values())


def test_an_unknown_name_says_what_is_near() -> None:
    assert "did you mean kimi-k3" in refusal("kimi-k33")
    assert "`kvplan models list`" in refusal("nothing-like-it")


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for a profile of the user's own, named `mine`."""
    (tmp_path / "models").mkdir()
    monkeypatch.setenv("KVPLAN_HOME", str(tmp_path))
    caches = (profiles.paths, profiles.load, bundled._heads, bundled._names)
    for cached in caches:
        cached.cache_clear()
    yield tmp_path / "models" / "mine.toml"
    for cached in caches:
        cached.cache_clear()


GOOD = """schema = "kvplan.model/1"
name = "mine"
hf_id = "acme/mine"
aliases = ["my-model"]
[source]
origin = "here"
date = "2026-01-01"
[published]
checkpoint_bytes = 1000
source = "a page"
[config]
model_type = "llama"
hidden_size = 64
num_hidden_layers = 1
num_attention_heads = 4
num_key_value_heads = 2
"""


def test_a_profile_of_the_users_own(profile: Path) -> None:
    profile.write_text(GOOD)
    for name in ("mine", "Acme/Mine", "MY-MODEL"):
        assert resolve(name).published.checkpoint_bytes == 1000


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("kvplan.model/1", "kvplan.model/2", "expected 'kvplan.model/1'"),
        ("aliases", "aliasses", "unknown key aliasses; did you mean 'aliases'?"),
        ("origin", "orign", "unknown key source.orign; did you mean 'origin'?"),
        ("checkpoint_bytes = 1000", "checkpoint_bytes = -1", "published.checkpoint_bytes"),
        ("checkpoint_bytes = 1000", 'checkpoint_bytes = "1 GB"', "published.checkpoint_bytes"),
        ("[source]", "[[source]]", "source is not a table"),
        ("[config]", "[nonsense]", "unknown key nonsense"),
        ("hidden_size = 64", "hidden_size = -64", "hidden_size"),
        ('model_type = "llama"', 'model_type = "lama"', "did you mean 'llama'?"),
    ],
)
def test_a_malformed_profile(profile: Path, old: str, new: str, words: str) -> None:
    profile.write_text(GOOD.replace(old, new, 1))
    assert words in refusal("mine")


def test_a_profile_that_is_not_toml(profile: Path) -> None:
    profile.write_text("[")
    with pytest.raises(ProfileError, match="not valid TOML"):
        resolve("mine")


DEEP = '{"a":' * 100_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"), ("{", "not valid JSON"), (json.dumps(CONFIG)[:-20], "not valid JSON"),
        ("[]", "not a JSON object"), ("null", "not a JSON object"), ('"kimi"', "not a JSON object"),
        ('{"model_type": NaN}', "NaN is not a number"), ('{"a": -Infinity}', "-Infinity is not a number"),
        ('{"a": 1e999}', "1e999 is too large"), ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        (DEEP, "nested too deeply"), ("[" * 100_000, "nested too deeply"), ('{"a": "\\ud800"}', "not UTF-8"),
        (b'{"a": "\xff"}', "not UTF-8"), (b"\xef\xbb\xbf{}", "not valid JSON"), ("{}".encode("utf-16"), "not UTF-8"),
        (b"\0" * 100, "not valid JSON"), ("{}", "model_type"), ('{"model_type": []}', "model_type"),
        ('{"model_type": "llama", "hidden_size": {}}', "is missing"),
        ('{"model_type": "\\u001b[31mred"}', "is not modelled"),
    ],
)  # fmt: skip
def test_a_config_that_is_none(text: str | bytes, words: str, tmp_path: Path) -> None:
    assert words in refusal(config(tmp_path, text))
    assert words in refusal(str(tmp_path))


def test_a_config_of_200_megabytes(tmp_path: Path) -> None:
    with open(tmp_path / "config.json", "wb") as file:
        file.truncate(200 << 20)
    assert "larger than 16 MiB" in refusal(str(tmp_path))


def test_links_that_go_in_circles(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(tmp_path / "other.json")
    (tmp_path / "other.json").symlink_to(tmp_path / "config.json")
    (tmp_path / "folder").symlink_to(tmp_path / "folder")
    for name in ("", "config.json", "folder", "folder/config.json"):
        assert "too many levels of symbolic links" in refusal(str(tmp_path / name))


def test_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(tmp_path / "gone")
    assert "no such file" in refusal(str(tmp_path / "config.json"))
    assert "no such file" in refusal(str(tmp_path))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert "not an ordinary file" in refusal(str(tmp_path))
    assert "not an ordinary file" in refusal(str(tmp_path / "config.json"))


def test_devices_and_folders_in_place_of_files(tmp_path: Path) -> None:
    assert "not an ordinary file" in refusal("/dev/zero")
    (tmp_path / "config.json").mkdir()
    assert "not an ordinary file" in refusal(str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read(tmp_path: Path) -> None:
    os.chmod(config(tmp_path), 0)
    assert "permission denied" in refusal(str(tmp_path))
    os.chmod(tmp_path, 0)
    assert "permission denied" in refusal(str(tmp_path))


@pytest.mark.parametrize(
    "argument",
    ["", " ", "\0", "a\0b", "x" * 300, "x" * 5000, "x/" * 300, "\n", "a\nb", "../..", "/", "a/b/c", "--help", "a@b@c",
     "a/..", "../a", "org/../x", "org/a--b", "http://", "https://[", "file:///etc/passwd", "ftp://huggingface.co/a/b",
     "https://huggingface.co/a/b/c", "https://huggingface.co.evil.com/a/b", "\x1b[31m", "\ud800", "é/é", "org/\ud800"],
)  # fmt: skip
def test_arguments_that_name_nothing(argument: str) -> None:
    assert refusal(argument)


def test_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    assert "give the directory" in refusal(str(tmp_path / "model.safetensors"))
    (tmp_path / "params.json").write_text("{}")
    assert "params.json is Mistral's own format" in refusal(str(tmp_path))
    assert "no such file" in refusal(str(tmp_path / "missing.json"))
    assert "no such file" in refusal(str(tmp_path / "model.safetensors" / "config.json"))


def test_errors_have_the_right_kind(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        resolve(str(tmp_path / "missing.json"))
    with pytest.raises(ConfigError):
        resolve(config(tmp_path, '{"model_type": "unheard-of"}'))
