"""Ask an older vLLM's planner about the frozen cases of the newest, and write its answers as one JSON object.

Runs in the environment of scripts/vllm_oracle_cases.py with an older wheel, unpacked, first on the path. Modules that
the old release imports and planning never calls are replaced by empty ones.

    pip download --no-deps vllm==0.19.1 && unzip -q vllm-0.19.1-*.whl 'vllm/*' -d old
    PYTHONPATH=old python scripts/vllm_release_cases.py tests/golden/vllm_planner.json
"""

import argparse
import dataclasses
import importlib.abc
import importlib.machinery
import json
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

Case = dict[str, Any]
_UNUSED = (
    "blake3", "diskcache", "depyf", "watchfiles", "mistral_common", "compressed_tensors", "lm_format_enforcer",
    "outlines_core", "einops", "ray", "cupy", "sentencepiece", "tiktoken", "scipy", "soundfile", "anthropic", "mcp",
    "ijson", "flashinfer", "setproctitle", "gguf", "prometheus_fastapi_instrumentator",
    "model_hosting_container_standards",
)  # fmt: skip


class _Empty(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.partition(".")[0] not in _UNUSED:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> ModuleType:
        made = _Empty(spec.name)
        made.__path__ = []
        return made

    def exec_module(self, module: ModuleType) -> None:
        return None


def made(cls: Any, **fields: Any) -> Any:
    """A spec of whatever fields this release's class has."""
    known = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in fields.items() if name in known})


def old_spec(layer: Case, mode: str) -> Any:
    import torch
    from vllm.v1 import kv_cache_interface as interface

    dtype = {1: torch.uint8, 2: torch.bfloat16, 4: torch.float32}
    kind = layer["kind"]
    if kind == "state":
        return made(
            interface.MambaSpec, block_size=layer["block_tokens"], shapes=tuple(map(tuple, layer["shapes"])),
            dtypes=tuple(dtype[size] for size in layer["dtype_bytes"]), page_size_padded=layer["padded_bytes"],
            mamba_cache_mode=mode, num_speculative_blocks=layer["drafts"],
        )  # fmt: skip
    latent = kind == "latent"
    classes = {
        "latent": getattr(interface, "MLAAttentionSpec", interface.FullAttentionSpec),
        "full": interface.FullAttentionSpec, "sliding": interface.SlidingWindowSpec,
        "chunked": interface.ChunkedLocalAttentionSpec, "encoder": interface.CrossAttentionSpec,
    }  # fmt: skip
    fields: Case = {
        "block_size": layer["block_tokens"], "num_kv_heads": layer["heads"], "head_size": layer["k_dim"],
        "dtype": dtype[layer["dtype_bytes"]], "use_mla": latent, "indexes_kv_by_block_stride": not latent,
        "sliding_window": layer["window"] if kind == "sliding" else None, "attention_chunk_size": layer["window"],
    }  # fmt: skip
    if kind != "chunked":
        fields.pop("attention_chunk_size")
    if not latent:
        fields["head_size_v"] = layer["v_dim"]
    return made(classes[kind], **fields)


def ask(case: Case) -> Case:
    """Groups, blocks, tokens and concurrency, or the name of what the release raises."""
    from vllm.v1.core import kv_cache_utils as utils

    batched, length = case["in_flight"], case["max_model_len"]
    config = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=length, original_max_model_len=length),
        cache_config=SimpleNamespace(mamba_cache_mode=case["mode"], num_gpu_blocks_override=None, block_size=16),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=case["dcp"], prefill_context_parallel_size=1, pipeline_parallel_size=1
        ),
        scheduler_config=SimpleNamespace(
            disable_hybrid_kv_cache_manager=False, max_num_batched_tokens=batched, max_num_encoder_input_tokens=1500
        ),
        speculative_config=None, kv_transfer_config=None, max_in_flight_tokens=batched,
    )  # fmt: skip
    specs = {f"layer.{i}": old_spec(case["layers"][int(kind)], case["mode"]) for i, kind in enumerate(case["pattern"])}
    try:
        groups = utils.get_kv_cache_groups(config, dict(specs))
        try:
            cache = utils.get_kv_cache_config_from_groups(config, groups, case["available_bytes"])
        except TypeError:
            cache = utils.get_kv_cache_config_from_groups(config, groups, specs, case["available_bytes"])
    except (NotImplementedError, AssertionError, ValueError) as error:
        return {"refused": type(error).__name__}
    if hasattr(utils, "get_kv_cache_capacity"):
        tokens = utils.get_kv_cache_capacity(config, cache)[0]
    else:
        smallest = min(group.kv_cache_spec.block_size for group in groups)
        tokens = cache.num_blocks // len(groups) * smallest * case["dcp"]
    return {
        "layers": [len(group.layer_names) for group in groups],
        "num_blocks": cache.num_blocks,
        "max_concurrency": utils.get_max_concurrency_for_kv_cache_config(config, cache),
        "kv_cache_tokens": tokens,
    }


def asked(case: Case) -> bool:
    """Cases that older releases can be asked: no compressed windows, no packed layout, encoders of equal widths."""
    kinds = {layer["kind"] for layer in case["layers"]}
    uneven = any(layer["kind"] == "encoder" and layer["k_dim"] != layer["v_dim"] for layer in case["layers"])
    return "sliding_latent" not in kinds and case["layout"] == "LBHNC" and not uneven


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    logging.disable(logging.CRITICAL)
    sys.meta_path.append(_Finder())
    rows = json.loads(parser.parse_args().cases.read_text(encoding="utf-8"))
    answers = {str(number): ask(row["case"]) for number, row in enumerate(rows) if asked(row["case"])}
    json.dump(answers, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
