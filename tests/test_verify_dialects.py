"""The wordings of engines and releases: which figure, which rank, which flag a line gives."""

import io
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.logs import Facts, Printed, read_log
from kvplan.logs.lines import clean_lines
from kvplan.logs.reprs import literal, read_dict, read_pairs

W = "(Worker_DP1_PP0_TP3 pid=77) INFO 08-05 05:39:20 [gpu_worker.py:1] "


def facts(*lines: str) -> Facts:
    return read_log(io.BytesIO(("\n".join(lines) + "\n").encode()))


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        (W + "Available KV cache memory: 42.2 GiB", {"pool": "42.2"}),
        (W + "Reserved 12.5 GiB memory for KV Cache as specified by kv_cache_memory_bytes config", {"pool": "12.5"}),
        (
            "the current vLLM instance can use total_gpu_memory (79.10GiB) x gpu_memory_utilization (0.90) = 71.19GiB\n"
            "model weights take 14.99GiB; non_torch_memory takes 0.09GiB; PyTorch activation peak memory takes "
            "1.23GiB; the rest of the memory reserved for KV Cache is 54.88GiB.",
            {"gpu_memory": "79.10", "weights": "14.99", "non_torch": "0.09", "activation": "1.23", "pool": "54.88"},
        ),
        ("INFO # GPU blocks: 1381, # CPU blocks: 512", {"num_blocks": "1381"}),
        (
            "GPU KV cache size: 3,249,215 tokens, Maximum concurrency for 1,048,576 tokens per request: 3.10x",
            {"kv_cache_tokens": "3,249,215", "max_concurrency": "3.10"},
        ),
        ("Overriding num_gpu_blocks=700 with num_gpu_blocks_override=512", {"num_blocks": "512"}),
        ("Model loading took 14.2474 GiB and 558.868858 seconds", {"weights": "14.2474"}),
        (
            "Add 3 padding layers, may waste at most 4.35% KV cache memory",
            {"padding_layers": "3", "layer_padding": "4.35"},
        ),
        (
            "ValueError: To serve at least one request with the models's max seq len (8192), (1.00 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (0.50 GiB). Based on the available memory, the "
            "estimated maximum model length is 4096.",
            {"least_pool": "1.00", "longest_model_len": "4096"},
        ),
        ("max_num_seqs (1024) exceeds available Mamba cache blocks (969)", {"state_blocks": "969"}),
    ],
)
def test_vllm_lines(line: str, figures: dict[str, str]) -> None:
    found = facts(*line.split("\n"))
    assert found.engine == "vllm"
    assert {figure.what: figure.text for figure in found.figures} == figures


def test_the_rank_stands_before_the_message() -> None:
    found = facts(
        W + "Available KV cache memory: 42.2 GiB", "(VllmWorker rank=2 pid=1) Available KV cache memory: 41 GiB"
    )
    assert [figure.who for figure in found.figures] == ["DP1 PP0 TP3", "RANK2"]
    assert found.smallest("pool") == found.figures[1]


def test_flags_of_vllm() -> None:
    found = facts(
        "args: Namespace(subparser='serve', model_tag='a/b', model='a/b', tensor_parallel_size=4, enable_lora=False)",
        "Initializing a V1 LLM engine (v0.11.0) with config: model='a/b', speculative_config=SpeculativeConfig("
        "method='mtp', model='a/b', num_spec_tokens=3), max_seq_len=8192, tensor_parallel_size=4, kv_cache_dtype=auto",
        "Using fp8_e4m3 data type to store kv cache. It reduces the GPU memory footprint",
        "Chunked prefill is enabled with max_num_batched_tokens=8192.",
        "Mamba cache mode is set to 'align' for X by default when prefix caching is enabled",
        "Config file not found at [/x/E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3.json]",
        "GPU KV cache size: 1 tokens",
    )
    assert (found.version, found.gpu) == ("0.11.0", "NVIDIA H100 80GB HBM3")
    assert found.values["tensor-parallel-size"] == 4
    assert found.values["speculative-config"]["num_speculative_tokens"] == 3
    assert found.values["kv-cache-dtype"] == "fp8_e4m3"
    assert (found.values["max-num-batched-tokens"], found.values["mamba-cache-mode"]) == ("8192", "align")
    assert found.values["max-model-len"] == 8192


def test_sglang_sizes_its_pool_after_cuda_graphs() -> None:
    found = facts(
        "[2026-09-01 10:05:13 TP0] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 9144000, "
        "KV size: 235.46 GB",
        "[2026-09-01 10:06:13 TP0] Post-capture KV sizing: KV cache allocated. dtype: torch.float8_e4m3fn, "
        "#tokens: 1144000, KV size: 29.46 GB, avail mem=9.00 GB",
        "[2026-09-01 10:06:14 TP0] Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, "
        "#tokens: 1144000, KV size: 1.23 GB",
    )
    assert {figure.what: figure.text for figure in found.figures} == {
        "late_pool_tokens": "1144000", "pool_tokens": "1144000", "kv_pool": "29.46",
        "draft_pool_tokens": "1144000", "draft_kv_pool": "1.23",
    }  # fmt: skip
    assert found.values["kv-cache-dtype"] == "float8_e4m3fn"


def test_a_draft_of_sglang_has_a_pool_of_its_own() -> None:
    pool = "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 171008, K size: {0} GB, V size: {0} GB"
    found = facts(*(f"[2026 TP{rank}] {pool.format(size)}" for size in ("5.22", "0.33") for rank in (0, 1)))
    assert len(found.all("k_pool")) == len(found.all("draft_k_pool")) == 2


def test_a_draft_of_llama_cpp_is_kept_apart() -> None:
    cache = (
        "llama_kv_cache_unified: size = {0} MiB (  4096 cells,  28 layers,  4 seqs), K (f16): {0} MiB, "
        "V (f16): 0.00 MiB"
    )
    loader = (
        "llama_model_loader: loaded meta data with 1 key-value pairs and 2 tensors from {} (version GGUF V3 (latest))"
    )
    found = facts(loader.format("/m/a.gguf"), cache.format("448.00"), loader.format("/m/b.gguf"), cache.format("9.00"))
    assert [figure.text for figure in found.all("kv_buffer")] == ["448.00"]
    assert [figure.text for figure in found.all("draft_kv_buffer")] == ["9.00"]
    assert (found.values["parallel"], found.values["kv-unified"], found.values["ctx-size"]) == ("4", True, "4096")
    again = facts(loader.format("/m/a.gguf"), cache.format("448.00"), loader.format("/m/a.gguf"), cache.format("9.00"))
    assert (again.boots, [figure.text for figure in again.all("kv_buffer")]) == (2, ["9.00"])


def test_rounding() -> None:
    pool = Printed("pool", "42.2", "GiB", 1, decimals=2)
    assert pool.half == Fraction(1, 200)
    assert (pool.low_bytes, pool.high_bytes) == (45_306_536_264, 45_317_273_681)
    assert not pool.holds(Fraction(42206, 1000)) and pool.holds(Fraction(42205, 1000))
    whole = Printed("num_blocks", "1,381", "blocks", 1)
    assert whole.holds(1381) and not whole.holds(Fraction(13811, 10))


def test_reprs() -> None:
    config = read_dict(
        "'a': [1, {'b': 2}], 'c': KV(x='}', y=None), 'd': <Mode.NONE: 0>, 'e': 'it\\'s', 'f': 1} tail, g: 2"
    )
    assert config == {"a": [1, {"b": 2}], "c": {"x": "}", "y": None}, "d": "<Mode.NONE: 0>", "e": "it's", "f": 1}
    assert read_dict("'a': 1, 'b': 1") == {"a": 1}
    assert read_pairs("a='x', b=2, c=torch.bfloat16)") == {"a": "x", "b": 2, "c": "torch.bfloat16"}
    assert literal("(" * 5000) == "(" * 5000


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    read_dict(text)
    read_pairs(text)
    assert all("\r" not in line.text for line in clean_lines(io.BytesIO(text.encode("utf-8", "surrogatepass"))))
