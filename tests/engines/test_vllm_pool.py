"""The pool that vLLM leaves, predicted before it is known."""

from kvplan.plan import plan

GIB = 1 << 30


def test_pool_of_kimi_k3_on_b300_holds_what_was_logged() -> None:
    """InferenceX PR 2371: 42.23 GiB at 0.90; the prediction uses no figure of that log."""
    made = plan("kimi-k3", gpu="B300:8", engine_version="0.28", kv_cache_dtype="fp8", gpu_memory_utilization=0.9)
    assert made.pool is not None
    assert made.pool.low_bytes <= 42.23 * GIB <= made.pool.high_bytes
    assert abs(made.pool.bytes / GIB / 42.23 - 1) < 0.03


def test_pool_parts_add_up_and_know_how_they_are_known() -> None:
    made = plan("qwen3-32b", gpu="RTX-PRO-6000", gpu_memory_utilization=0.95, max_num_seqs=32, context="4K")
    pool = made.pool
    assert pool is not None
    parts = pool.breakdown
    spent = [parts.weights_bytes, parts.activation_bytes, parts.graphs_bytes, parts.other_bytes]
    assert pool.bytes == int((parts.total_bytes or 0) * 0.95) - sum(part or 0 for part in spent)
    known = {assumption.name: assumption.kind for assumption in made.assumptions}
    assert (known["activation_bytes"], known["other_bytes"]) == ("derived", "assumed")
    assert known["gpu_memory_utilization"] == "given"


def test_eager_and_old_releases_take_no_graphs_from_the_pool() -> None:
    flags = {"gpu": "H200", "context": "4K"}
    graphs = [
        plan("qwen3-8b", **flags, **more).pool.breakdown.graphs_bytes  # type: ignore[union-attr]
        for more in ({}, {"enforce_eager": True}, {"engine_version": "0.17.1"})
    ]
    assert graphs[0] > 0
    assert graphs[1:] == [0, 0]


def test_mxfp4_experts_are_padded_and_drafts_loaded() -> None:
    """K3 at TP16 keeps 129.75 GiB a rank (public logs): each rank's 192 rows of an expert become 256."""
    made = plan("kimi-k3", gpu="H200:8", nodes=2, tp=16, gpu_memory_utilization=0.97, context="8K")
    assert made.per_rank is not None
    assert round((made.per_rank.weights_bytes or 0) / GIB, 2) == 129.74
