"""What a row of aiconfigurator-core's tables times, in the names of `kvplan_kernels`; read from its open collectors.

Every row is the mean of 6 to 20 replays of a CUDA graph of one call on one set of buffers (nccl-tests for NCCL), so
that data smaller than the L2 is read again from there, and the launch of a graph, about 4 us, is inside short ones.
"""

from collections.abc import Callable, Mapping
from typing import Any

Row = Mapping[str, Any]
Shape = dict[str, int | float | str]
Found = tuple[str, Shape]
"""A kernel of ours and its shape."""

_HEAD = 128
_DECODE = ("fused_recurrent_kda_packed_decode",)
_PREFILL = ("chunk_kda", "chunk_kda_with_fused_gate", "flashkda_fwd")
_EXPERTS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "w4a16_mxfp4": "mxfp4", "int4_wo": "int4"}
_TWO_MATRICES = ((2688, 1856), (1024, 2688), (2048, 5120), (8192, 5120))
"""(hidden, inter) of experts without a gate, which a row does not tell from those with one: Nemotron 3."""
_GROUPED = (7168, 2048, 256)
"""(hidden, inter, experts) of a router that keeps to half of its groups, so that not all experts are touched."""
_CACHE = {"bfloat16": "bf16", "float16": "bf16", "fp8": "fp8"}
_COLLECTIVES = {name: name for name in ("all_reduce", "all_gather", "reduce_scatter")} | {"alltoall": "all_to_all"}


class Unmapped(Exception):
    """Why a row has no kernel of ours; the same words for every row of its kind, so that they can be counted."""


def kda(row: Row) -> Found:
    """Heads are those of a rank; the state is fp32, the gate randn with a lower bound of -5: fast."""
    source, heads = row["kernel_source"], int(row["num_v_heads"])
    if (row["head_k_dim"], row["head_v_dim"]) != (_HEAD, _HEAD):
        raise Unmapped(f"kda: heads of other than {_HEAD}")
    if row["phase"] == "verify":
        raise Unmapped("kda verify: several speculative tokens a sequence")
    if source in _PREFILL and row["phase"] == "context":
        shape: Shape = {"heads": heads, "sequences": int(row["batch_size"]), "tokens": int(row["seq_len"])}
        return "kda_prefill", shape | {"gate": "fast", "snapshot_every": 0}
    if source in _DECODE:
        return "kda_decode", {"heads": heads, "batch": int(row["batch_size"]), "state": "fp32", "layout": "vk"}
    if source == "causal_conv1d_update":
        return "short_conv", {"heads": heads, "batch": int(row["batch_size"])}
    if source == "causal_conv1d_fn_qkv3":
        raise Unmapped("kda causal_conv1d_fn_qkv3: the convolution of a prompt")
    raise Unmapped(f"kda {source}: convolution, recurrence and norm in one kernel")


def generation_mla(row: Row) -> Found:
    """One token a sequence on `step` cached ones; the call also writes the new token's latent to the cache."""
    cache = _CACHE.get(row["kv_cache_dtype"])
    if row["isl"] != 1 or cache is None:
        raise Unmapped(f"generation_mla: {row['isl']} tokens a sequence, {row['kv_cache_dtype']} cache")
    heads, batch = int(row["num_heads"]), int(row["batch_size"])
    return "mla_decode", {
        "heads": heads, "batch": batch, "context": int(row["step"]) + 1, "cache": cache, "query_tokens": 1,
    }  # fmt: skip


def context_mla(row: Row) -> Found:
    """Causal attention at 192 and 128 of a prompt; TensorRT-LLM's call also turns and writes the latent."""
    if row["framework"] != "TRTLLM":
        raise Unmapped(f"context_mla of {row['framework']}: heads of 576 and 512, absorbed, on Hopper")
    if row["batch_size"] != 1 or row["step"] != 0 or _CACHE.get(row["kv_cache_dtype"]) != "bf16":
        raise Unmapped("context_mla: several sequences, a prefix or an fp8 cache")
    return "mla_prefill", {"heads": int(row["num_heads"]), "tokens": int(row["isl"])}


def gemm(row: Row) -> Found:
    """A linear layer; fp8 includes what the engine does to the activations."""
    kind = {"bfloat16": "bf16", "fp8": "fp8"}.get(row["gemm_dtype"])
    if kind is None:
        raise Unmapped(f"gemm {row['gemm_dtype']}: scales by block or group")
    return "gemm", {"tokens": int(row["m"]), "rows": int(row["n"]), "columns": int(row["k"]), "format": kind}


def moe(row: Row) -> Found:
    """Routed experts in one call: gate, up and down, and what sorts and sums the tokens. Balanced: all alike often."""
    kind, held = _EXPERTS.get(row["moe_dtype"]), int(row["num_experts"])
    hidden, inter, chosen = int(row["hidden_size"]), int(row["inter_size"]), int(row["num_tokens"]) * int(row["topk"])
    if kind is None or row["distribution"] != "balanced":
        raise Unmapped(f"moe: experts chosen as {row['distribution']}" if kind else f"moe {row['moe_dtype']}")
    if row["moe_ep_size"] != 1:
        raise Unmapped("moe: a rank of several, whose share of the tokens is not told")
    if (hidden, inter) in _TWO_MATRICES or (hidden, inter, held) == _GROUPED:
        raise Unmapped("moe: experts without a gate, or a router that keeps to some groups")
    touched = min(held, chosen)
    tokens = {"tokens_each": chosen // touched if chosen % touched == 0 else chosen / touched}
    width = 3 * inter // int(row["moe_tp_size"])
    return "moe", {"experts": touched, **tokens, "rows": width, "columns": hidden, "format": kind}


def _message(kernel: str, row: Row, kind: str) -> Found:
    """A flat message: its elements stand as tokens of width 1."""
    return kernel, {"ranks": int(row["num_gpus"]), "tokens": int(row["message_size"]), "hidden": 1, "format": kind}


def nccl(row: Row) -> Found:
    """nccl-tests, out of place, one process for all GPUs."""
    if row["nccl_dtype"] != "half":
        raise Unmapped(f"nccl {row['nccl_dtype']}: elements of another size")
    if row["op_name"] not in _COLLECTIVES:
        raise Unmapped(f"nccl {row['op_name']}")
    return _message(_COLLECTIVES[row["op_name"]], row, "fp16")


def custom_allreduce(row: Row) -> Found:
    """An engine's own all-reduce, which it prefers to NCCL for small messages."""
    if row["kernel_source"].endswith("_eager"):
        raise Unmapped("custom_allreduce: timed outside a CUDA graph")
    if row["allreduce_dtype"] not in ("bfloat16", "half", "float16"):
        raise Unmapped(f"custom_allreduce {row['allreduce_dtype']}: elements of another size")
    return _message("all_reduce", row, "bf16" if row["allreduce_dtype"] == "bfloat16" else "fp16")


TABLES: dict[str, Callable[[Row], Found]] = {
    "kda": kda,
    "generation_mla": generation_mla,
    "context_mla": context_mla,
    "gemm": gemm,
    "moe": moe,
    "nccl": nccl,
    "custom_allreduce": custom_allreduce,
}
REFUSED = {
    "mla_generation_module": "times the projections around attention too",
    "mla_context_module": "times the projections around attention too",
    "mla_bmm": "the absorbed products alone, in batches by head",
}
"""Tables that look mappable; every other table is refused as no kernel of ours."""
