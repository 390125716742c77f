"""Malformed and hostile inputs: one clear line on stderr, exit code 2, nothing printed, nothing written."""

import copy
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
    "max_position_embeddings": 131072,
}  # fmt: skip


def config(**changes: Any) -> str:
    """The config of Llama 3.1 8B with some fields changed; a field set to `...` is left out."""
    changed = copy.deepcopy(LLAMA) | changes
    return json.dumps({key: value for key, value in changed.items() if value is not ...})


CONFIGS: dict[str, str | bytes] = {
    "truncated JSON": config()[:100],
    "empty file": "",
    "not JSON": "model_type: llama",
    "not an object": "[1, 2]",
    "a bare number": "42",
    "invalid UTF-8": b"\xff\xfe{}",
    "nested ten thousand deep": "[" * 10_000 + "]" * 10_000,
    "NaN in a size": config(hidden_size=float("nan")),
    "a string for a number": config(num_hidden_layers="32"),
    "a list for a number": config(num_attention_heads=[32]),
    "a boolean for a number": config(num_key_value_heads=True),
    "a negative size": config(num_hidden_layers=-1),
    "zero layers": config(num_hidden_layers=0),
    "a huge number of layers": config(num_hidden_layers=10**18),
    "a huge head": config(head_dim=10**30),
    "a fraction of a head": config(head_dim=127.5),
    "missing depth": config(num_hidden_layers=...),
    "missing model_type": config(model_type=...),
    "unknown model_type": config(model_type="llama-from-tomorrow"),
    "model_type is a list": config(model_type=["llama"]),
    "unknown activation dtype": config(torch_dtype="float7"),
    "a cache sharing key that Llama does not have": config(num_kv_shared_layers=8),
    "linear layers in Llama": config(layer_types=["linear_attention"] * 32),
    "a sliding window in Llama": config(sliding_window=4096),
    "text_config is a string": config(text_config="llama"),
    "quantization_config is a list": config(quantization_config=[4]),
    "unknown quantization": config(quantization_config={"quant_method": "from-tomorrow"}),
    "a 200 MB file": b'{"model_type": "' + b"x" * 200_000_000 + b'"}',
}


def refuses(kvplan: Any, *args: str, cwd: Path) -> str:
    before = sorted(cwd.rglob("*"))
    done = kvplan("estimate", *args, cwd=cwd)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("kvplan: ") and done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr) < 600
    assert sorted(cwd.rglob("*")) == before
    return str(done.stderr)


@pytest.mark.parametrize("what", CONFIGS)
def test_a_bad_config_is_one_line(kvplan: Any, tmp_path: Path, what: str) -> None:
    content = CONFIGS[what]
    path = tmp_path / "config.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    refuses(kvplan, str(path), "--tp", "1", "--gpu", "H200", cwd=tmp_path)


@pytest.mark.parametrize("field", ["num_kv_shared_layers", "sliding_window", "layer_types"])
def test_the_offending_field_is_named(kvplan: Any, tmp_path: Path, field: str) -> None:
    value = ["linear_attention"] * 32 if field == "layer_types" else 4096
    (tmp_path / "config.json").write_text(config(**{field: value}))
    assert field in refuses(kvplan, str(tmp_path), cwd=tmp_path)


def _header(length: int, body: bytes) -> bytes:
    return struct.pack("<Q", length) + body


GOOD = json.dumps({"model.norm.weight": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
SHARDS = {
    "a header of 2^63 bytes": _header(1 << 63, b"{}"),
    "a header longer than the file": _header(1000, b"{}"),
    "a header that is not JSON": _header(4, b"{{{{"),
    "an unknown dtype": _header(len(GOOD), GOOD.replace(b"BF16", b"BF17")) + bytes(8),
    "offsets outside the file": _header(len(GOOD), GOOD.replace(b"[0, 8]", b"[0, 9]")) + bytes(8),
    "a negative shape": _header(len(GOOD), GOOD.replace(b"[4]", b"[-4]")) + bytes(8),
    "an empty file": b"",
}


@pytest.mark.parametrize("what", SHARDS)
def test_a_bad_safetensors_header_is_one_line(kvplan: Any, tmp_path: Path, what: str) -> None:
    (tmp_path / "config.json").write_text(config())
    (tmp_path / "model.safetensors").write_bytes(SHARDS[what])
    refuses(kvplan, str(tmp_path), cwd=tmp_path)


def _loop(folder: Path) -> str:
    os.symlink(folder / "b", folder / "a")
    os.symlink(folder / "a", folder / "b")
    return str(folder / "a")


def _config_loop(folder: Path) -> str:
    os.symlink("config.json", folder / "config.json")
    return str(folder)


def _fifo(folder: Path) -> str:
    os.mkfifo(folder / "config.json")
    return str(folder / "config.json")


def _empty_folder(folder: Path) -> str:
    return str(folder)


def _escaping_index(folder: Path) -> str:
    (folder / "config.json").write_text(config())
    index = {"weight_map": {"model.norm.weight": "../../../../etc/passwd"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return str(folder)


def _bad_gguf(folder: Path) -> str:
    (folder / "m.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60))
    return str(folder / "m.gguf")


@pytest.mark.parametrize("make", [_loop, _config_loop, _fifo, _empty_folder, _escaping_index, _bad_gguf])
def test_a_bad_path_is_one_line(kvplan: Any, tmp_path: Path, make: Callable[[Path], str]) -> None:
    refuses(kvplan, make(tmp_path), cwd=tmp_path)


@pytest.mark.parametrize(
    "flags",
    [
        ("--context", "2M"), ("--context", "0"), ("--context", "-5"), ("--context", ""), ("--context", "1e99"),
        ("--context", "nan"), ("--tp", "5"), ("--tp", "0"), ("--tp", "-8"), ("--tp", "x"), ("--dcp", "3"),
        ("--ep", "3"), ("--pp", "200"), ("--kv-cache-dtype", "fp3"), ("--state-dtype", "int4"),
        ("--gpu", "H200:0"), ("--gpu", "H200:x"), ("--gpu", ""), ("--gpu-memory", "80 potatoes"),
        ("--gpu-memory-utilization", "1.5"), ("--gpu-memory-utilization", "nan"), ("--gpu", "H200:8", "--gpus", "4"),
        ("--gpu", "H200:2", "--tp", "4"), ("--weights", "-1"), ("--snapshot-every", "0"), ("--snapshots", "-1"),
        ("--baseline", "all-nothing"), ("--baseline", "ratio:0:0"), ("--quantization", "fp3", "--gpu", "H200"),
        ("--max-model-len", "4M"), ("--max-model-len", "1k", "--context", "2k"),
    ],
)  # fmt: skip
def test_a_bad_flag_is_one_line(kvplan: Any, tmp_path: Path, flags: tuple[str, ...]) -> None:
    refuses(kvplan, "kimi-k3", *flags, cwd=tmp_path)
