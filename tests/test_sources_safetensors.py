"""safetensors headers against files that the safetensors package wrote."""

import ctypes
import json
from math import prod
from pathlib import Path

import pytest
from safetensors import TensorSpec, serialize_file

from kvplan.deployment import Layout
from kvplan.errors import SourceError
from kvplan.sources import resolve
from kvplan.sources.safetensors import read_file, read_folder
from kvplan.weights import weigh

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "torch_dtype": "bfloat16",
    "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip
DTYPES = {
    "BF16": ("bfloat16", 2), "F16": ("float16", 2), "F32": ("float32", 4), "U8": ("uint8", 1), "I32": ("int32", 4),
    "I64": ("int64", 8), "F8_E4M3": ("float8_e4m3fn", 1), "F8_E8M0": ("float8_e8m0fnu", 1), "I8": ("int8", 1),
}  # fmt: skip


def write(path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> int:
    """A real file with zeros; returns the bytes of its tensors."""
    content, alive, total = {}, [], 0
    for name, (dtype, shape) in tensors.items():
        spelled, width = DTYPES[dtype]
        size = width * prod(shape)
        buffer = ctypes.create_string_buffer(max(size, 1))
        alive.append(buffer)
        total += size
        content[name] = TensorSpec(dtype=spelled, shape=shape, data_ptr=ctypes.addressof(buffer), data_len=size)
    serialize_file(content, str(path))
    return total


def dense(matrix: str = "BF16") -> dict[str, tuple[str, tuple[int, ...]]]:
    """Every tensor of the small Llama above."""
    tensors = {
        "model.embed_tokens.weight": ("BF16", (100, 64)), "lm_head.weight": ("BF16", (100, 64)),
        "model.norm.weight": ("BF16", (64,)),
    }  # fmt: skip
    shapes = {
        "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
        "self_attn.o_proj": (64, 64), "mlp.up_proj": (128, 64), "mlp.gate_proj": (128, 64), "mlp.down_proj": (64, 128),
    }  # fmt: skip
    for layer in range(2):
        for module, shape in shapes.items():
            tensors[f"model.layers.{layer}.{module}.weight"] = (matrix, shape)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{norm}.weight"] = ("BF16", (64,))
    return tensors


def snapshot(folder: Path, tensors: dict[str, tuple[str, tuple[int, ...]]], **extra: object) -> int:
    (folder / "config.json").write_text(json.dumps(CONFIG | extra))
    return write(folder / "model.safetensors", tensors)


def test_snapshot_is_exact(tmp_path: Path) -> None:
    size = snapshot(tmp_path, dense())
    report = weigh(resolve(str(tmp_path)), Layout())
    assert (report.kind, report.total_bytes, report.rank_bytes) == ("exact", size, size)
    assert report.params_total == size // 2
    assert sum(line.bytes for line in report.lines) == sum(line.bytes for line in report.rank_lines) == size


def test_headers_and_config_agree(tmp_path: Path) -> None:
    size = snapshot(tmp_path, dense())
    (tmp_path / "model.safetensors").unlink()
    derived = weigh(resolve(str(tmp_path)), Layout(tp=4))
    snapshot(tmp_path, dense())
    exact = weigh(resolve(str(tmp_path)), Layout(tp=4))
    assert derived.kind == "derived" and derived.total_bytes == exact.total_bytes == size
    assert derived.rank_bytes == exact.rank_bytes


def test_kv_heads_are_replicated_beyond_their_number(tmp_path: Path) -> None:
    snapshot(tmp_path, dense())
    rank = weigh(resolve(str(tmp_path)), Layout(tp=4)).rank_lines
    kv = [line for line in rank if "KV heads" in line.formula]
    assert [line.bytes for line in kv] == [2 * 2 * 32 * 64 * 2 // 2]


MOE = {
    "model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "moe_intermediate_size": 32, "num_experts": 8,
    "num_experts_per_tok": 2, "vocab_size": 100, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "layout", [Layout(), Layout(tp=2), Layout(tp=4), Layout(tp=4, ep=4), Layout(tp=4, ep=2), Layout(tp=2, pp=2)]
)
def test_headers_of_experts_agree_with_the_config(layout: Layout, tmp_path: Path) -> None:
    tensors = {name: entry for name, entry in dense().items() if ".mlp." not in name}
    for layer in range(2):
        block = f"model.layers.{layer}"
        tensors[f"{block}.mlp.gate.weight"] = ("BF16", (8, 64))
        tensors |= {f"{block}.self_attn.{side}_norm.weight": ("BF16", (16,)) for side in "qk"}
        for expert in range(8):
            tensors |= {f"{block}.mlp.experts.{expert}.{up}_proj.weight": ("BF16", (32, 64)) for up in ("up", "gate")}
            tensors[f"{block}.mlp.experts.{expert}.down_proj.weight"] = ("BF16", (64, 32))
    (tmp_path / "config.json").write_text(json.dumps(MOE))
    derived = weigh(resolve(str(tmp_path)), layout)
    size = write(tmp_path / "model.safetensors", tensors)
    exact = weigh(resolve(str(tmp_path)), layout)
    assert (derived.kind, exact.kind) == ("derived", "exact")
    assert exact.total_bytes == derived.total_bytes == size
    assert exact.rank_bytes == derived.rank_bytes
    assert (exact.params_total, exact.params_active) == (derived.params_total, derived.params_active)
    assert exact.replicated_bytes == derived.replicated_bytes


def fp8_block(layer: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {f"{layer}.weight": ("F8_E4M3", (256, 256)), f"{layer}.weight_scale_inv": ("F32", (2, 2))}


def mxfp4(layer: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {f"{layer}.weight_packed": ("U8", (64, 32)), f"{layer}.weight_scale": ("U8", (64, 2))}


def nvfp4(layer: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        f"{layer}.weight": ("U8", (64, 32)), f"{layer}.weight_scale": ("F8_E4M3", (64, 4)),
        f"{layer}.weight_scale_2": ("F32", ()), f"{layer}.input_scale": ("F32", ()),
    }  # fmt: skip


def deepseek_v4_fp4(layer: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {f"{layer}.weight": ("I8", (64, 32)), f"{layer}.scale": ("F8_E8M0", (64, 2))}


def awq(layer: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        f"{layer}.qweight": ("I32", (128, 8)), f"{layer}.qzeros": ("I32", (1, 8)), f"{layer}.scales": ("F16", (1, 64)),
    }  # fmt: skip


def gptq(layer: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        f"{layer}.qweight": ("I32", (16, 64)), f"{layer}.qzeros": ("I32", (1, 8)), f"{layer}.scales": ("F16", (1, 64)),
        f"{layer}.g_idx": ("I32", (128,)),
    }  # fmt: skip


def int4_packed(layer: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        f"{layer}.weight_packed": ("I32", (64, 16)), f"{layer}.weight_scale": ("BF16", (64, 4)),
        f"{layer}.weight_shape": ("I64", (2,)),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("packed", "params", "total"),
    [
        (fp8_block, 256 * 256, 65536 + 16), (mxfp4, 64 * 64, 2048 + 128), (nvfp4, 64 * 64, 2048 + 256 + 8),
        (deepseek_v4_fp4, 64 * 64, 2048 + 128), (awq, 128 * 64, 4096 + 32 + 128),
        (gptq, 128 * 64, 4096 + 32 + 128 + 512), (int4_packed, 64 * 128, 4096 + 512 + 16),
    ],
)  # fmt: skip
def test_packed_formats(packed, params: int, total: int, tmp_path: Path) -> None:
    plain = weigh(resolve(str(_with(tmp_path, {}))), Layout())
    report = weigh(resolve(str(_with(tmp_path, packed("model.layers.1.mlp.experts.7.up_proj")))), Layout())
    assert report.total_bytes - plain.total_bytes == total
    assert report.params_total - plain.params_total == params
    assert sum(line.bytes for line in report.lines if line.role == "expert") == total


def _with(folder: Path, more: dict[str, tuple[str, tuple[int, ...]]]) -> Path:
    snapshot(folder, dense() | more)
    return folder


def test_experts_are_merged(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write(path, {f"model.layers.0.mlp.experts.{number}.up_proj.weight": ("BF16", (8, 4)) for number in range(64)})
    merged, lacking = read_folder(tmp_path)
    assert lacking == ""
    assert [(tensor.name, tensor.count) for tensor in merged] == [("model.layers.0.mlp.experts.*.up_proj.weight", 64)]


def test_shards_that_are_not_here_are_never_called_exact(tmp_path: Path) -> None:
    snapshot(tmp_path, {})
    (tmp_path / "model.safetensors").unlink()
    index = {"metadata": {"total_size": 12345}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    write(tmp_path / "model-1.safetensors", dense())
    model = resolve(str(tmp_path))
    assert model.tensors_missing == "model-2.safetensors and 0 more of 2 weight files are not here"
    report = weigh(model, Layout())
    assert (report.kind, model.published.checkpoint_bytes) == ("derived", 12345)
    assert "not here, so the config sizes the weights" in report.assumptions[0]
    assert "the publisher states 12,345 B" in report.assumptions[1]


def test_a_pointer_of_git_lfs_is_no_weight_file(tmp_path: Path) -> None:
    snapshot(tmp_path, {})
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    model = resolve(str(tmp_path))
    assert weigh(model, Layout()).kind == "derived"
    assert "not here" in model.tensors_missing


def test_links_into_a_cache_are_followed(tmp_path: Path) -> None:
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshots" / "0"
    blobs.mkdir()
    folder.mkdir(parents=True)
    size = write(blobs / "f00", dense())
    (blobs / "c00").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").symlink_to("../../blobs/f00")
    (folder / "config.json").symlink_to("../../blobs/c00")
    assert weigh(resolve(str(folder)), Layout()).total_bytes == size


def header(text: str, data: bytes = b"", length: int | None = None) -> bytes:
    raw = text.encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


ENTRY = '{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'


def test_a_minimal_header_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(header(ENTRY, bytes(8)))
    assert read_file(path) == [(0, 8, "a", "F32", (2,))]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "too short"),
        (b"1234567", "too short"),
        (header(ENTRY, bytes(8), length=1 << 40), "claims 1,099,511,627,776 bytes"),
        (header(ENTRY, bytes(8), length=99_999_999), "claims 99,999,999 bytes"),
        (header(ENTRY, bytes(8), length=0), "claims 0 bytes"),
        (header(ENTRY[:-1], bytes(8)), "not valid JSON"),
        (header("[]", bytes(8)), "not a JSON object"),
        (header('{"a": 1}', bytes(8)), "'a' is not an object"),
        (header(ENTRY), "ends beyond the file"),
        (header(ENTRY.replace("F32", "F31"), bytes(8)), "dtype 'F31'"),
        (header(ENTRY.replace('"F32"', "[]"), bytes(8)), "dtype '[]'"),
        (header(ENTRY.replace("[2]", "[-2]"), bytes(8)), "shape [-2]"),
        (header(ENTRY.replace("[2]", "[true]"), bytes(8)), "shape [True]"),
        (header(ENTRY.replace("[2]", "[3]"), bytes(8)), "8 bytes do not hold F32 of shape [3]"),
        (header(ENTRY.replace("[0, 8]", "[8, 0]"), bytes(8)), "data_offsets [8, 0]"),
        (header(ENTRY.replace("[0, 8]", "[0, 8.0]"), bytes(8)), "data_offsets [0, 8.0]"),
        (header(ENTRY.replace("[2]", "[NaN]"), bytes(8)), "NaN is not a number"),
        (header(ENTRY[:-1] + ', "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}', bytes(8)), "overlaps"),
        (header('{"a":' * 100_000), "nested too deeply"),
        (b"\xff" * 64, "claims 18,446,744,073,709,551,615 bytes"),
    ],
)
def test_damaged_headers(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        read_file(path)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "shard", ["../x.safetensors", "/etc/x.safetensors", "a/../../x.safetensors", "x.bin", "", "a b"]
)
def test_an_index_may_not_leave_its_folder(shard: str, tmp_path: Path) -> None:
    snapshot(tmp_path, {})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(SourceError, match="weight_map"):
        resolve(str(tmp_path))


@pytest.mark.parametrize("index", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "{"])
def test_a_malformed_index(index: str, tmp_path: Path) -> None:
    snapshot(tmp_path, {})
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(SourceError, match=r"index\.json"):
        resolve(str(tmp_path))


def test_one_tensor_in_two_files(tmp_path: Path) -> None:
    snapshot(tmp_path, {})
    (tmp_path / "model.safetensors").unlink()
    for number in (1, 2):
        write(tmp_path / f"part-{number}.safetensors", {"model.norm.weight": ("BF16", (64,))})
    with pytest.raises(SourceError, match="two weight files"):
        resolve(str(tmp_path))


def test_a_shard_without_its_siblings_is_no_checkpoint(tmp_path: Path) -> None:
    header = json.dumps({"model.norm.weight": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "model-00001-of-00003.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    tensors, lacking = read_folder(tmp_path)
    assert tensors == ()
    assert "model-00002-of-00003.safetensors and 1 more of 3 weight files are not here" in lacking
