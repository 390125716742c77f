"""Ask vLLM's own planner and block manager about random layer mixes, and write cases with answers as JSON lines.

Runs where vllm 0.33 can be imported; no GPU and no weights are needed. A CPU build of torch is enough:

    python -m venv oracle && . oracle/bin/activate
    pip install torch==2.13.0 && pip install --no-deps vllm==0.33.0
    pip install packaging pydantic regex numpy cbor2 psutil pyzmq urllib3 'transformers<5.21' aiohttp requests openai \
        openai-harmony pillow pybase64 cachetools msgspec cloudpickle uvloop py-cpuinfo prometheus-client xgrammar \
        fastapi partial-json-parser llguidance
    python scripts/vllm_oracle_cases.py planner --count 2000 --seed 1 > planner.jsonl
    python scripts/vllm_oracle_cases.py manager --count 60 --seed 1 > manager.jsonl

`planner` answers with groups, page and block bytes, blocks, tokens, concurrency and the longest length that fits.
`manager` drives the block manager: how many equal sequences prefill alone admits, and how many can then all decode.
"""

import argparse
import json
import logging
import random
import sys
from types import SimpleNamespace
from typing import Any

from vllm_random_layers import Case, manager_case, random_case


def stand_in(case: Case) -> Any:
    """As much of vLLM's configuration as planning reads."""
    from vllm.v1.kv_cache_layout import KVCacheLayout

    layout = KVCacheLayout[case["layout"]]
    length = case["max_model_len"]
    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=length, original_max_model_len=length),
        cache_config=SimpleNamespace(
            mamba_cache_mode=case["mode"], num_gpu_blocks_override=None, get_resolved_kv_cache_layout=lambda: layout
        ),
        parallel_config=SimpleNamespace(decode_context_parallel_size=case["dcp"], pipeline_parallel_size=1),
        scheduler_config=SimpleNamespace(
            disable_hybrid_kv_cache_manager=False, max_num_batched_tokens=case["in_flight"],
            max_num_encoder_input_tokens=case.get("encoder_tokens", 0), async_scheduling=True,
        ),
        speculative_config=None,
        attention_config=SimpleNamespace(hisparse_config=None),
        max_in_flight_tokens=case["in_flight"],
    )  # fmt: skip


def vllm_spec(layer: Case, case: Case) -> Any:
    """One layer of a case as vLLM's spec."""
    import torch
    from vllm.v1 import kv_cache_interface as interface

    dtype = {1: torch.uint8, 2: torch.bfloat16, 4: torch.float32}
    kind, block = layer["kind"], layer["block_tokens"]
    if kind == "state":
        return interface.MambaSpec(
            block_size=block, shapes=tuple(map(tuple, layer["shapes"])),
            dtypes=tuple(dtype[size] for size in layer["dtype_bytes"]), page_size_padded=layer["padded_bytes"],
            mamba_cache_mode=case["mode"], num_speculative_blocks=layer["drafts"],
            num_prefill_checkpoint_blocks=layer["checkpoints"],
        )  # fmt: skip
    common: Case = {
        "block_size": block, "num_kv_heads": layer["heads"], "head_size": layer["k_dim"],
        "dtype": dtype[layer["dtype_bytes"]], "dcp_sharded": layer["dcp_sharded"],
    }  # fmt: skip
    if kind in ("latent", "sliding_latent"):
        common |= {"tokens_per_state": layer["tokens_per_row"], "alignment": layer["align_bytes"]}
        common |= {"state_content_bytes": layer["row_bytes"]}
        if kind == "latent":
            return interface.MLAAttentionSpec(**common)
        return interface.SlidingWindowMLASpec(**common, sliding_window=layer["window"])
    common |= {"head_size_v": layer["v_dim"]}
    if kind == "sliding":
        return interface.SlidingWindowSpec(**common, sliding_window=layer["window"])
    if kind == "chunked":
        return interface.ChunkedLocalAttentionSpec(**common, attention_chunk_size=layer["window"])
    if kind == "encoder":
        return interface.CrossAttentionSpec(**common)
    return interface.FullAttentionSpec(**common)


def named_specs(case: Case) -> Case:
    return {f"layer.{i}": vllm_spec(case["layers"][int(kind)], case) for i, kind in enumerate(case["pattern"])}


def ask_planner(case: Case) -> Case:
    """The planner's answer, or the name of what it raises for a mix that it cannot plan."""
    from vllm.v1.core import kv_cache_planning as planning
    from vllm.v1.core import kv_cache_utils as utils

    config = stand_in(case)
    layout = config.cache_config.get_resolved_kv_cache_layout()
    try:
        groups = planning.get_kv_cache_groups(config, named_specs(case))
        planning.validate_kv_cache_layout(layout, groups)
        size = planning._get_kv_cache_bytes_per_block(groups, layout)
    except (NotImplementedError, ValueError, AssertionError) as error:
        return {"refused": type(error).__name__}
    blocks = case["available_bytes"] // size
    cache = SimpleNamespace(kv_cache_groups=groups, num_blocks=blocks, hisparse_host_num_blocks=None)
    tokens, concurrency = utils.get_kv_cache_capacity(config, cache)
    per_group = [
        -(-group.kv_cache_spec.max_memory_usage_bytes(config) // group.kv_cache_spec.page_size_bytes)
        for group in groups
    ]
    return {
        "layers": [len(group.layer_names) for group in groups],
        "block_tokens": [group.kv_cache_spec.block_size for group in groups],
        "block_bytes": size,
        "num_blocks": blocks,
        "blocks_per_request": per_group,
        "kv_cache_tokens": tokens,
        "max_concurrency": concurrency,
        "longest": longest(config, groups, size, case["available_bytes"] - size, case["max_model_len"]),
    }


def longest(config: Any, groups: Any, size: int, available: int, most: int) -> int:
    """The longest length whose request fits, as auto-fit searches it; the null block is left out."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        config.model_config.max_model_len = middle
        needed = sum(
            -(-group.kv_cache_spec.max_memory_usage_bytes(config) // group.kv_cache_spec.page_size_bytes)
            for group in groups
        )
        low, high = (middle, high) if needed * size <= available else (low, middle - 1)
    config.model_config.max_model_len = most
    return low


class Twin:
    """vLLM's block manager over a pool of the case's size, with requests of distinct tokens."""

    def __init__(self, case: Case, groups: Any, config: Any, num_blocks: int) -> None:
        from vllm.utils.hashing import sha256
        from vllm.v1 import kv_cache_interface as interface
        from vllm.v1.core import kv_cache_utils as utils
        from vllm.v1.core.kv_cache_manager import KVCacheManager

        sizes = [group.kv_cache_spec.block_size for group in groups]
        block = max(size for size in sizes if size < case["max_model_len"])
        self.case, self.chunk = case, case["chunk"]
        self.hasher = utils.get_request_block_hasher(block, sha256)
        self.manager = KVCacheManager(
            interface.KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups),
            max_model_len=case["max_model_len"], scheduler_block_size=block, hash_block_size=block,
            max_in_flight_tokens=config.max_in_flight_tokens, enable_caching=case["mode"] == "align",
        )  # fmt: skip
        self.running: list[Any] = []

    def admit(self, tokens: int) -> bool:
        """One more sequence, prefilled in steps of `chunk` tokens."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        number = len(self.running)
        request = Request(
            request_id=str(number), prompt_token_ids=[(number + 1) * 7919 + i % 1000 for i in range(tokens)],
            sampling_params=SamplingParams(max_tokens=100_000), pooling_params=None, block_hasher=self.hasher,
        )  # fmt: skip
        hit_blocks, hit = self.manager.get_computed_blocks(request)[:2]
        done = hit
        while done < tokens:
            self.manager.new_step_starts()
            step = min(self.chunk, tokens - done)
            fresh = {"num_new_computed_tokens": hit, "new_computed_blocks": hit_blocks} if done == hit else {}
            if self.manager.allocate_slots(request, step, **fresh) is None:
                self.manager.free(request)
                return False
            done += step
            request.num_computed_tokens = done
        self.running.append(request)
        return True

    def decode(self, first: int = 0) -> bool:
        """One token for every sequence from the `first` on; False where a block is refused."""
        self.manager.new_step_starts()
        for request in self.running[first:]:
            request.append_output_token_ids(5)
            if self.manager.allocate_slots(request, 1) is None:
                return False
            request.num_computed_tokens += 1
        return True


def ask_manager(case: Case) -> Case:
    """Sequences that prefill alone admits, and the most that arrive in turn and then decode abreast to the length."""
    from vllm.utils.hashing import sha256
    from vllm.v1.core import kv_cache_planning as planning
    from vllm.v1.core import kv_cache_utils as utils

    utils.init_none_hash(sha256)
    config = stand_in(case)
    groups = planning.get_kv_cache_groups(config, named_specs(case))

    def survives(count: int) -> bool:
        twin = Twin(case, groups, config, case["num_blocks"])
        arrived = all(twin.admit(case["prompt"]) and twin.decode(first) for first in range(count))
        return arrived and all(twin.decode() for _ in range(case["context"] - case["prompt"] - 1))

    packed = Twin(case, groups, config, case["num_blocks"])
    while len(packed.running) < 400 and packed.admit(case["context"]):
        pass
    safe = 0
    while survives(safe + 1):
        safe += 1
    return {"sequences": safe, "packed": len(packed.running)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["planner", "manager"])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rng = random.Random(asked.seed)
    for _ in range(asked.count):
        case = random_case(rng) if asked.what == "planner" else manager_case(rng)
        try:
            answer = ask_planner(case) if asked.what == "planner" else ask_manager(case)
        except (NotImplementedError, AssertionError, ValueError) as error:
            answer = {"refused": type(error).__name__}
        json.dump({"case": case, "answer": answer}, sys.stdout, separators=(",", ":"))
        print()


if __name__ == "__main__":
    main()
