"""Engines' command lines: what each flag becomes, and that none is lost in silence."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.deployment import Deployment, make_deployment
from kvplan.errors import KvplanError, UsageError
from kvplan.launch import Launch, parse_command, with_own_flags
from kvplan.launch.tables import ENGINES, load_table

Run = Callable[..., Any]
K3 = (
    "vllm serve moonshotai/Kimi-K3 -tp 8 --kv-cache-dtype fp8 --enable-prefix-caching --max-model-len 1048576 "
    "--kv-cache-memory-bytes 45344117227"
)


def read(command: str) -> Launch:
    return parse_command(shlex.split(command))


def test_the_command_line_is_the_deployment(kvplan: Run) -> None:
    """InferenceX PR 2371: block size 1,536, 2,135 blocks, 3,249,215 tokens."""
    own = ("--gpu", "B300", "--engine-version", "0.28", "--json")
    engine = json.loads(kvplan("estimate", *own, "--", *shlex.split(K3)).stdout)["engine"]
    assert (engine["name"], engine["block_tokens"], engine["num_blocks"]) == ("vllm", 1536, 2135)
    assert engine["blocks_per_sequence"][-1] == {"context_tokens": 1_048_576, "blocks": 689}
    assert engine["kv_cache_tokens"] == 3_249_215


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve a/b -tp 8 --max-model-len 32k",
        "vllm serve -tp=8 --max_model_len=32k a/b",
        "vllm serve --model a/b --tensor-parallel-size 8 --max-model-len 32000",
        "VLLM_USE_V1=1 CUDA_VISIBLE_DEVICES=0,1 vllm serve a/b --tensor_parallel_size 8 --max-model-len 32000",
        "python3 -u -m vllm.entrypoints.openai.api_server --model a/b -tp 8 --max-model-len 32k",
        "/opt/venv/bin/python3.12 -m vllm.entrypoints.openai.api_server --model=a/b -tp 8 --max-model-len 32k",
        "docker run --gpus all --name vllm -v /m/vllm:/m --ipc=host vllm/vllm-openai:v0.28.0 --model a/b -tp 8 "
        "--max-model-len 32k",
        "docker run -e VLLM_USE_V1=1 image vllm serve a/b -tp 8 --max-model-len 32k",
        "bash -c 'vllm serve a/b -tp 8 --max-model-len 32k && echo done'",
        "numactl -N 0 vllm serve a/b -tp 4 -tp 8 --max-model-len 32k",
        "vllm serve a/b --tensor-parallel 8 --max-model-len 32k",
    ],
)
def test_spellings_of_one_deployment(command: str) -> None:
    launch = read(command)
    assert (launch.engine, launch.model) == ("vllm", "a/b")
    assert launch.flags == {"tp": 8, "max_model_len": 32_000}
    assert launch.warnings == () and launch.notes == ()


def test_vllm_values() -> None:
    launch = read(
        "vllm serve a/b --revision abc -dp 2 -tp 4 --enable-expert-parallel --no-enable-prefix-caching "
        "--quantization awq_marlin --gpu-memory-utilization 0.95 --mamba-ssm-cache-dtype float32 -dcp 4 --nnodes 2 "
        "--speculative-config.method qwen3_next_mtp --speculative-config.num_speculative_tokens 2 --max-num-seqs 1k"
    )
    assert launch.model == "a/b@abc"
    assert launch.flags["speculative_config"] == '{"method": "mtp", "num_speculative_tokens": 2}'
    flags = make_deployment(**launch.flags)
    assert (flags.tp, flags.dp, flags.ep, flags.dcp, flags.nodes) == (4, 2, 8, 4, 2)
    assert (flags.enable_prefix_caching, flags.quantization, flags.max_num_seqs) == (False, "awq", 1000)
    assert (flags.gpu_memory_utilization, flags.mamba_ssm_dtype) == (0.95, "fp32")


def test_without_a_flag_an_engine_takes_one_gpu() -> None:
    assert read("vllm serve a/b").flags == {"tp": 1}
    assert read("python -m sglang.launch_server --model a/b").flags == {"tp": 1}


def test_sglang_values() -> None:
    launch = read(
        "python -m sglang.launch_server --model-path a/b --tp 8 --dcp-size 8 --context-len 262144 --mem-frac 0.85 "
        "--mamba-scheduler-strategy extra_buffer --speculative-algo DSPARK --speculative-dspark-block-size 7 "
        "--disaggregation-mode decode --max-running-requests 48 --kv-cache-dtype fp8_e4m3 --enable-hicache"
    )
    flags = make_deployment(**launch.flags)
    assert (flags.tp, flags.dcp, flags.max_model_len, flags.mem_fraction_static) == (8, 8, 262_144, 0.85)
    assert (flags.mamba_radix_cache_strategy, flags.speculative_algorithm) == ("extra_buffer", "DSPARK")
    assert (flags.speculative_num_draft_tokens, flags.disaggregation_mode) == (8, "decode")
    assert (flags.max_running_requests, flags.kv_cache_dtype, flags.enable_hierarchical_cache) == (48, "fp8", True)
    assert launch.warnings == ()


def test_attention_data_parallelism_of_sglang_has_two_spellings() -> None:
    old = read("sglang serve --model-path a/b --tp 8 --dp 4 --enable-dp-attention")
    new = read("sglang serve --model-path a/b --tp 8 --attn-dp-size 4")
    assert old.flags == new.flags == {"tp": 8, "dp": 4, "enable_dp_attention": True}


def test_environment_variables_that_are_flags() -> None:
    skip = read("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=1 sglang serve --model-path a/b")
    assert skip.flags["mamba_skip_decode_lock"] is True
    heads = read("VLLM_MLA_DISABLE=1 vllm serve a/b")
    assert heads.warnings == ("VLLM_MLA_DISABLE touches memory and is not modelled: MLA is stored as full heads",)


def test_llama_server_values() -> None:
    launch = read(
        "./llama-server -m /m/x.gguf -c 32768 -np 4 -ctk q8_0 -ctv q8_0 -ngl 99 -fa on -kvu --no-mmap -ub 1024"
    )
    assert launch.model == "/m/x.gguf"
    flags = make_deployment(**launch.flags)
    assert (flags.ctx_size, flags.parallel, flags.kv_unified, flags.ubatch_size) == (32_768, 4, True, 1024)
    assert (flags.cache_type_k, flags.cache_type_v) == ("q8_0", "q8_0")
    assert launch.warnings == ()
    part = read("llama-server -hf ggml-org/x-GGUF:Q4_K_M -ngl 20 --n-cpu-moe 8")
    assert part.model == "ggml-org/x-GGUF"
    assert [text.split()[0] for text in part.warnings] == ["--n-cpu-moe", "--gpu-layers"]


def test_trtllm_values(tmp_path: Path) -> None:
    options = tmp_path / "extra.yml"
    options.write_text(
        "kv_cache_config:\n  dtype: fp8\n  free_gpu_memory_fraction: 0.8\n  tokens_per_block: 64\n"
        "  host_cache_size: 9\nenable_attention_dp: true\nmax_batch_size: 256\n"
    )
    launch = read(
        f"trtllm-serve serve a/b --tp_size 8 --ep_size 8 --max_batch_size 64 --kv_cache_free_gpu_memory_fraction 0.9 "
        f"--extra_llm_api_options {options}"
    )
    flags = make_deployment(**launch.flags)
    assert (launch.model, flags.tp, flags.ep, flags.kv_cache_dtype) == ("a/b", 8, 8, "fp8")
    assert (flags.max_batch_size, flags.free_gpu_memory_fraction, flags.tokens_per_block) == (256, 0.8, 64)
    assert [text.split()[0] for text in launch.warnings] == [
        "--kv-cache-config.host-cache-size",
        "--enable-attention-dp",
    ]


def test_a_yaml_file_stands_under_the_flags(tmp_path: Path) -> None:
    options = tmp_path / "serve.yaml"
    options.write_text(
        "model: a/b\ntensor-parallel-size: 4\nmax_model_len: 8192\nenable-prefix-caching: true\nport: 80\n"
    )
    launch = read(f"vllm serve --config {options} -tp 8")
    assert launch.model == "a/b"
    assert launch.flags == {"tp": 8, "max_model_len": 8192, "enable_prefix_caching": True}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x [1]\nb: *x\n", "aliases are refused"),
        ("- a\n- b\n", "expected a mapping"),
        ("a: [" * 60 + "]" * 60, "nested deeper"),
        ("a: {b: ]\n", "not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
        ("x" * (1 << 21), "larger than"),
    ],
)
def test_hostile_yaml_is_refused(tmp_path: Path, text: str, said: str) -> None:
    options = tmp_path / "bad.yaml"
    options.write_text(text)
    with pytest.raises(UsageError, match=said):
        read(f"vllm serve a/b --config {options}")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ls -la", "no engine"),
        ("vllm bench serve --model x", "starts no server"),
        ("vllm serve a/b --max-num-seqs lots", "--max-num-seqs lots: expected a whole number"),
        ("vllm serve a/b --speculative-config '{bad'", "--speculative-config '{bad': not valid JSON"),
        ("vllm serve a/b --config", "--config names no file"),
        ("vllm serve a/b --config nowhere.yaml", "no such file here"),
        ("vllm serve a/b --enable-prefix-caching=perhaps", "expected true or false"),
    ],
)
def test_what_cannot_be_meant_is_named(command: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(command)
    assert said in str(caught.value)


def test_flags_that_touch_memory_are_named_and_unknown_ones_noted() -> None:
    launch = read("vllm serve a/b --enable-lora --cpu-offload-gb 0 --kv-transfer-config '{}' --swap-space 4 --shiny 3")
    assert [text.split()[0] for text in launch.warnings] == ["--enable-lora", "--swap-space"]
    assert launch.notes == ("--shiny is not a flag of vllm that kvplan knows; it is left out",)
    odd = read("vllm serve a/b --mamba-cache-mode sideways")
    assert odd.warnings == ("--mamba-cache-mode touches memory and is not modelled: the value sideways",)


def test_own_flags_win_and_say_so() -> None:
    model, flags, notes = with_own_flags(read("vllm serve a/b -tp 8"), "c/d", {"tp": 4, "gpu": "H200"})
    assert (model, flags["tp"], flags["gpu"], flags["engine"]) == ("c/d", 4, "H200", "vllm")
    assert notes == ["the model is c/d, as given before `--`, not a/b", "--tp 4 wins over --tensor-parallel-size 8"]


def test_gpus_that_the_command_leaves_idle_are_said() -> None:
    idle = with_own_flags(read("vllm serve a/b -tp 4"), None, {"gpu": "H200:8"})[2]
    assert idle == ["the command runs on 4 of 8 GPUs; the rest counts as replicas of it"]
    inside = read("sglang serve --model-path a/b --tp 8 --dp 4 --enable-dp-attention")
    assert with_own_flags(inside, None, {"gpu": "H200:8"})[2] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_flag_stands_in_one_place(engine: str) -> None:
    table = load_table(engine)
    places = [*table.ignored, *table.modelled, *table.memory]
    assert len(places) == len(set(places))
    assert all(table.knows(flag.removeprefix("no-")) or flag == "config" for flag in table.short.values())
    assert not set(table.short) & set(places)
    assert all(reason for reason in table.memory.values())


def test_modelled_flags_are_flags_of_a_deployment() -> None:
    known = set(Deployment.model_fields) | {"model", "batch_size", "flash_attn", "gpu_layers", "dtype"}
    known |= {"speculative_num_steps", "speculative_eagle_topk", "speculative_dflash_block_size"}
    known |= {"speculative_dspark_block_size"}
    for engine in ENGINES:
        assert set(load_table(engine).modelled.values()) <= known, engine


_WORDS = st.lists(
    st.one_of(
        st.sampled_from(
            ["-tp", "--max-model-len", "--config=", "--speculative-config.a.b", "-O3", "-", "--", "{", "=", "8"]
        ),
        st.text(max_size=12),
    ),
    max_size=12,
)


@pytest.mark.parametrize("start", ["vllm serve", "sglang serve", "llama-server", "trtllm-serve"])
@given(words=_WORDS)
def test_any_words_give_a_launch_or_one_line(start: str, words: list[str]) -> None:
    try:
        launch = parse_command([*start.split(), *words])
        make_deployment(**launch.flags)
    except KvplanError as error:
        assert "Traceback" not in str(error)


def test_a_command_without_a_model(kvplan: Run) -> None:
    done = kvplan("estimate", "--", "vllm", "serve", "-tp", "8")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kvplan: the vllm command names no model; write it before `--`\n"
    forgotten = kvplan("estimate", "--gpu", "H200", "vllm", "serve", "a/b")
    assert forgotten.stderr == "kvplan: write `--` before the engine's command: … -- vllm serve …\n"
    bare = kvplan("estimate")
    assert bare.returncode == 2 and "name a model" in bare.stderr


def test_warnings_reach_stderr_and_the_document(kvplan: Run) -> None:
    command = ("vllm", "serve", "moonshotai/Kimi-K3", "-tp", "8", "--enable-lora")
    done = kvplan("estimate", "kimi-k3", "--json", "--", *command)
    assert done.stderr.startswith("kvplan: warning: --enable-lora touches memory")
    assert [row["name"] for row in json.loads(done.stdout)["assumptions"]].count("not_modelled") == 1
