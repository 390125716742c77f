"""GGUF files that the gguf package wrote."""

import struct
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvplan.deployment import Layout
from kvplan.errors import KvplanError
from kvplan.model import Model
from kvplan.sources import resolve
from kvplan.weights import weigh

gguf = pytest.importorskip("gguf")


def write(path: Path, arch: str, fields: dict[str, Any], tensors: dict[str, tuple[int, ...]] | None = None) -> Path:
    """A small GGUF file: metadata under `arch.`, tensors in Q8_0 where they are matrices."""
    writer = gguf.GGUFWriter(path, arch)
    for name, value in fields.items():
        key = name if name.startswith(("general.", "split.")) else f"{arch}.{name}"
        add = {int: writer.add_uint32, str: writer.add_string, list: writer.add_array}[type(value)]
        add(key, value)
    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, shape in (tensors or {"token_embd.weight": (100, 64), "output.weight": (100, 64)}).items():
        data = np.zeros(shape, dtype=np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, gguf.quants.quantize(data, q8), raw_dtype=q8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


BASE: dict[str, Any] = {
    "block_count": 4, "embedding_length": 64, "feed_forward_length": 128, "context_length": 4096,
    "attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 16, "attention.value_length": 16,
    "attention.layer_norm_rms_epsilon": 1, "rope.dimension_count": 16,
}  # fmt: skip
LATENT: dict[str, Any] = BASE | {
    "attention.kv_lora_rank": 32, "attention.q_lora_rank": 24, "attention.head_count_kv": 1, "rope.dimension_count": 8,
    "attention.key_length": 40, "attention.value_length": 32, "attention.key_length_mla": 24,
    "attention.value_length_mla": 16, "expert_count": 8, "expert_used_count": 2, "expert_shared_count": 1,
    "expert_feed_forward_length": 32, "leading_dense_block_count": 1,
}  # fmt: skip
EXPERTS: dict[str, Any] = BASE | {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 32}
SSM: dict[str, Any] = {
    "ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 2, "ssm.time_step_rank": 8, "ssm.inner_size": 128,
}  # fmt: skip
STATE_ONLY = {"block_count": 4, "embedding_length": 64, "feed_forward_length": 0, "attention.head_count": 0}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Model]:
    def reader(arch: str, fields: dict[str, Any], tensors: dict[str, tuple[int, ...]] | None = None) -> Model:
        return resolve(str(write(tmp_path / "m.gguf", arch, fields, tensors)))

    return reader


@pytest.mark.parametrize(
    ("arch", "fields", "counts"),
    [
        ("llama", BASE, {"full": 4}), ("qwen2", BASE, {"full": 4}), ("qwen3", BASE, {"full": 4}),
        ("qwen3moe", EXPERTS, {"full": 4}), ("minimax-m2", EXPERTS, {"full": 4}),
        ("mistral3", BASE | {"context_length": 131072}, {"full": 4}),
        ("mistral3", BASE | {"attention.sliding_window": 1024}, {"swa": 4}),
        ("gpt-oss", EXPERTS | {"attention.sliding_window": 128}, {"swa": 2, "full": 2}),
        ("gemma2", BASE | {"attention.sliding_window": 1024}, {"swa": 2, "full": 2}),
        ("gemma3", BASE | {"block_count": 12, "attention.sliding_window": 512}, {"swa": 10, "full": 2}),
        ("deepseek2", LATENT, {"mla": 4}),
        ("qwen3next", EXPERTS | SSM | {"full_attention_interval": 4}, {"gdn": 3, "full": 1}),
        ("qwen35", BASE | SSM | {"full_attention_interval": 4}, {"gdn": 3, "full": 1}),
        ("kimi-linear", LATENT | {"attention.head_count_kv": [0, 0, 0, 1], "kda.head_dim": 16, "ssm.conv_kernel": 4},
         {"kda": 3, "mla": 1}),
        ("mamba", STATE_ONLY | {key: value for key, value in SSM.items() if key != "ssm.group_count"}, {"mamba1": 4}),
        ("mamba2", STATE_ONLY | SSM, {"mamba2": 4}),
    ],
)  # fmt: skip
def test_architectures(arch: str, fields: dict[str, Any], counts: dict[str, int], read: Callable[..., Model]) -> None:
    model = read(arch, fields)
    assert model.layer_counts() == counts
    assert model.dtype == "fp16"
    assert (weigh(model, Layout()).kind, weigh(model, Layout()).total_bytes) == ("exact", 2 * 100 * 64 * 34 // 32)


def test_weights_by_rank(read: Callable[..., Model]) -> None:
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (100, 64), "output_norm.weight": (64,)}
    for layer in range(4):
        block = f"blk.{layer}"
        tensors |= {f"{block}.attn_q.weight": (64, 64), f"{block}.attn_k.weight": (32, 64)}
        tensors |= {f"{block}.attn_v.weight": (32, 64), f"{block}.attn_output.weight": (64, 64)}
        tensors |= {f"{block}.ffn_{name}_exps.weight": (8, 32, 64) for name in ("up", "gate")}
        tensors |= {f"{block}.ffn_down_exps.weight": (8, 64, 32), f"{block}.ffn_gate_inp.weight": (8,)}
        tensors[f"{block}.attn_norm.weight"] = (64,)
    model = read("qwen3moe", EXPERTS, tensors)
    total = sum(
        prod(shape) * (4 if len(shape) == 1 else 34) // (1 if len(shape) == 1 else 32) for shape in tensors.values()
    )
    report = weigh(model, Layout(tp=2, ep=2))
    expert = 4 * 3 * 8 * 32 * 64 * 34 // 32
    assert (report.kind, report.total_bytes) == ("exact", total)
    assert sum(line.bytes for line in report.lines if line.role == "expert") == expert
    assert sum(line.bytes for line in report.rank_lines if line.role == "expert") == expert // 2


def refusal(path: Path) -> str:
    with pytest.raises(KvplanError) as caught:
        resolve(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("arch", "fields", "words"),
    [
        ("bert", BASE, "general.architecture: 'bert' is not modelled"),
        ("llama", BASE | {"attention.value_length": 32}, "llama.attention.value_length: 32 differs"),
        ("llama", BASE | {"attention.sliding_window": 4096}, "llama.attention.sliding_window: not modelled"),
        ("llama", BASE | {"attention.head_count_kv": [2, 2, 1, 2]}, "llama.attention.head_count_kv"),
        ("llama", {"embedding_length": 64}, "llama.block_count is missing"),
        ("llama", BASE | {"block_count": 0}, "num_hidden_layers"),
        ("llama", BASE | {"attention.head_count": 0}, "num_attention_heads"),
        ("llama", BASE | {"block_count": "4"}, "llama.block_count: expected an integer"),
        ("llama", BASE | {"split.count": 3}, "one of 3 parts"),
        ("kimi-linear", LATENT, "kda"),
    ],
)
def test_what_is_refused(arch: str, fields: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in refusal(write(tmp_path / "m.gguf", arch, fields))


def test_a_folder_of_gguf_files(tmp_path: Path) -> None:
    write(tmp_path / "a-q8.gguf", "llama", BASE)
    (tmp_path / "mmproj-a.gguf").write_bytes(b"")
    assert resolve(str(tmp_path)).layer_counts() == {"full": 4}
    write(tmp_path / "a-q4.gguf", "llama", BASE)
    assert "holds 2 .gguf files; name one, for example a-q4.gguf" in refusal(tmp_path)


@pytest.mark.parametrize("keep", [0, 3, 4, 8, 16, 24, 30, 60, 100, 200])
def test_files_cut_short(keep: int, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", "llama", BASE)
    path.write_bytes(path.read_bytes()[:keep])
    assert "GGUF" in refusal(path)


def test_files_of_noise(tmp_path: Path) -> None:
    whole = bytearray(write(tmp_path / "m.gguf", "llama", BASE).read_bytes())
    for place in range(4, 400, 3):
        broken = whole.copy()
        broken[place] ^= 0xFF
        (tmp_path / "b.gguf").write_bytes(broken)
        try:
            resolve(str(tmp_path / "b.gguf"))
        except KvplanError as error:
            assert "\n" not in str(error)


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "value",
    [
        struct.pack("<IQ", 9, 1) * 5000 + struct.pack("<IQ", 4, 0),
        struct.pack("<IQ", 9, 1 << 60),
        struct.pack("<Q", 1 << 62),
    ],
)
def test_a_header_that_nests_or_counts_without_end_is_one_error(tmp_path: Path, value: bytes) -> None:
    key = _string(b"general.architecture") + struct.pack("<I", 8 if len(value) == 8 else 9)
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + value)
    with pytest.raises(KvplanError):
        resolve(str(path))


def test_a_split_count_that_is_no_number_is_one_error(tmp_path: Path) -> None:
    fields = ((b"general.architecture", b"llama"), (b"split.count", b"x"))
    body = b"".join(_string(key) + struct.pack("<I", 8) + _string(value) for key, value in fields)
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + body)
    with pytest.raises(KvplanError, match="llama"):
        resolve(str(path))
