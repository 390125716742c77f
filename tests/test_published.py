"""Import of aiconfigurator-core's tables: rows as they stand in its H200 tables of version 0.12.0."""

from pathlib import Path
from typing import Any

import pytest

from kvplan.calibration import beyond, compare, find_calibration
from kvplan.errors import ProfileError, UsageError
from kvplan.published import aiconfigurator
from kvplan.published.aiconfigurator import import_system, newest
from kvplan.published.rows import TABLES, Unmapped

COMMON = {"device": "NVIDIA H200"}
KDA = COMMON | {"framework": "VLLM", "op_name": "kda", "head_k_dim": 128, "head_v_dim": 128, "seq_len": 1}
DECODE = KDA | {"kernel_source": "fused_recurrent_kda_packed_decode", "phase": "generation", "num_v_heads": 96}
MLA = COMMON | {"framework": "SGLang", "kernel_source": "flash_attention", "isl": 1, "num_heads": 16}
NCCL = COMMON | {"framework": "TRTLLM", "kernel_source": "NCCL", "num_gpus": 2, "message_size": 1024}
EXPERTS = COMMON | {
    "framework": "VLLM", "kernel_source": "marlin", "moe_dtype": "int4_wo", "hidden_size": 7168, "inter_size": 2048,
    "topk": 8, "num_experts": 384, "moe_tp_size": 1, "moe_ep_size": 1, "distribution": "balanced",
}  # fmt: skip
ROWS: dict[str, list[dict[str, Any]]] = {
    "kda/vllm/0.1.dev19262/kda": [
        DECODE | {"batch_size": 128, "latency": 0.4019},
        DECODE | {"batch_size": 1, "latency": 0.0044},
        KDA | {"kernel_source": "flashkda_fwd", "phase": "context", "num_v_heads": 96}
        | {"batch_size": 1, "seq_len": 8192, "latency": 0.891},
        DECODE | {"phase": "verify", "batch_size": 1, "latency": 0.01},
        DECODE | {"kernel_source": "fused_kda_decode", "batch_size": 1, "latency": 0.0073},
    ],
    "mla/sglang/0.5.14/generation_mla": [
        MLA | {"kv_cache_dtype": "bfloat16", "batch_size": 128, "step": 16383, "latency": 0.5617},
        MLA | {"kv_cache_dtype": "bfloat16", "batch_size": 128, "step": 16383, "latency": 0.5619},
    ],
    "mla/sglang/0.5.14/context_mla": [
        MLA | {"kv_cache_dtype": "bfloat16", "batch_size": 1, "step": 0, "isl": 4096, "latency": 1.0}
    ],
    "comm/nccl/2.29.2/nccl": [
        NCCL | {"nccl_dtype": "half", "op_name": "alltoall", "latency": 0.011},
        NCCL | {"nccl_dtype": "int8", "op_name": "alltoall", "latency": 0.011},
    ],
    "gemm/vllm/0.24.0/gemm": [
        COMMON | {"framework": "VLLM", "kernel_source": "torch.nn.functional.linear", "gemm_dtype": "bfloat16"}
        | {"m": m, "n": 4096, "k": 7168, "latency": 0.02} for m in (16, 17)
    ],
    "moe/vllm/0.24.0/moe": [
        EXPERTS | {"num_tokens": 8, "latency": 0.497},
        EXPERTS | {"num_tokens": 128, "latency": 2.5},
        EXPERTS | {"num_tokens": 128, "distribution": "power_law_1.2", "latency": 2.0},
        EXPERTS | {"num_tokens": 128, "moe_ep_size": 2, "latency": 2.0},
    ],
    "mla/vllm/0.24.0/mla_bmm": [{"latency": 1.0}, {"latency": 2.0}],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow", reason="parquet tables need pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, rows in ROWS.items():
        path = tmp_path / "h200_sxm" / f"{name}_perf.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return tmp_path


def test_rows_become_samples_of_their_owner(folder: Path) -> None:
    document = import_system("h200_sxm", folder, 7168).document
    found = {(s["owner"], s["kernel"], s.get("batch", s.get("tokens"))): s for s in document["samples"]}
    assert len(found) == 7
    experts = [sample for sample in document["samples"] if sample["kernel"] == "moe"]
    assert [(one["experts"], one["tokens_each"], one["rows"], one["columns"]) for one in experts] == [
        (64, 1, 6144, 7168), (384, 1024 / 384, 6144, 7168),
    ]  # fmt: skip
    assert experts[0]["bytes"] == 64 * 3 * 2048 * 7168 // 2 + 64 * 3 * 2048 * 7168 // 32 * 2  # int4, a bf16 scale in 32
    decode = found["vllm", "kda_decode", 128]
    assert decode["median_s"] == pytest.approx(401.9e-6)
    assert decode["bytes"] == 128 * 96 * (2 * 128 * 128 * 4 + 1282)  # state read and written, and 1,282 of token I/O
    assert "p90_s" not in decode
    mla = found["sglang", "mla_decode", 128]
    assert (mla["context"], mla["cache"], mla["replays"]) == (16384, "bf16", 2)
    assert (mla["p10_s"], mla["p90_s"]) == pytest.approx((561.7e-6, 561.9e-6))
    assert found["nccl", "all_to_all", 1024]["bytes"] == 1024  # half of 2,048 bytes leave each of two ranks
    assert document["source"]["kind"] == "published"
    assert document["versions"]["vllm_kda"] == "0.1.dev19262"


def test_what_has_no_kernel_of_ours_is_counted_by_name(folder: Path) -> None:
    refused = import_system("h200_sxm", folder).refused
    assert refused["mla_bmm: the absorbed products alone, in batches by head"] == 2
    assert refused["moe: experts chosen as power_law_1.2"] == 1
    assert refused["moe: a rank of several, whose share of the tokens is not told"] == 1
    assert refused["moe: left out; --hidden WIDTH takes those of it"] == 2
    assert refused["kda verify: several speculative tokens a sequence"] == 1
    assert refused["kda fused_kda_decode: convolution, recurrence and norm in one kernel"] == 1
    assert refused["context_mla of SGLang: heads of 576 and 512, absorbed, on Hopper"] == 1
    assert refused["nccl int8: elements of another size"] == 1
    assert refused["gemm: left out; --hidden WIDTH takes those of it"] == 2


def test_the_highest_version_is_taken(tmp_path: Path) -> None:
    for version in ("2.9", "2.26.2", "2.23"):
        path = tmp_path / "comm" / "nccl" / version / "nccl_perf.parquet"
        path.parent.mkdir(parents=True)
        path.touch()
    assert [(table, version) for table, _, version, _ in newest(tmp_path)] == [("nccl", "2.26.2")]


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("kda", DECODE | {"head_k_dim": 64, "batch_size": 1}),
        ("generation_mla", MLA | {"isl": 4, "kv_cache_dtype": "bfloat16"}),
        ("generation_mla", MLA | {"kv_cache_dtype": "int8"}),
        ("gemm", {"gemm_dtype": "fp8_block"}),
        ("custom_allreduce", {"kernel_source": "X_eager", "allreduce_dtype": "bfloat16"}),
    ],
)
def test_rows_that_time_something_else(table: str, row: dict[str, Any]) -> None:
    with pytest.raises(Unmapped):
        TABLES[table](row)


def test_errors_are_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="h200_sxm"):
        import_system("h300", folder)
    with pytest.raises(UsageError, match="no such folder"):
        import_system("h200_sxm", folder / "absent")
    damaged = folder / "h200_sxm" / "kda" / "vllm" / "0.1.dev19262" / "kda_perf.parquet"
    damaged.write_bytes(b"not parquet")
    with pytest.raises(ProfileError, match="not a parquet table"):
        import_system("h200_sxm", folder)
    monkeypatch.setattr(aiconfigurator, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="extra 'import'"):
        import_system("h200_sxm", folder)
    with pytest.raises(UsageError, match="not installed"):
        import_system("h200_sxm")


def test_the_command_writes_what_compare_reads(folder: Path, tmp_path: Path, kvplan_json: Any) -> None:
    out = tmp_path / "theirs.toml"
    said = kvplan_json(
        "calibrations", "import", "aiconfigurator", "--system", "h200_sxm", "--from", str(folder), "--out", str(out)
    )
    assert said["samples"]["vllm kda_decode"] == 2
    rows = compare(find_calibration("h200"), find_calibration(str(out)), any_owner=True)
    by_shape = {(row["kernel"], row["second_owner"].split()[0]): row for row in rows}
    large = by_shape["kda_decode heads=96 batch=128 state=fp32 layout=vk", "vllm"]
    assert large["ratio"] == pytest.approx(1.0, abs=0.1)  # two Triton kernels at the roof of the same memory
    small = by_shape["kda_decode heads=96 batch=1 state=fp32 layout=vk", "vllm"]
    assert small["ratio"] < 1 and "L2" in small["why"]  # its 6 MB of state stay in an L2 of 60 MB
    assert large not in beyond(rows, 0.1) and small in beyond(rows, 0.1)
