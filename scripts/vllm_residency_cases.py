"""Replay conversations through vLLM's own KV-cache manager, and write what it hit and refused as JSON lines.

Runs where vllm 0.33 can be imported (scripts/vllm_oracle_cases.py says how); no GPU and no weights are needed:

    python scripts/vllm_residency_cases.py --count 40 --seed 1 > tests/golden/vllm_residency.json

A case is a pool, its groups and a list of events: a session's request starts (its prompt, its answer, what it shares
with the session's last prompt) or its time is over. A request that starts is prefilled in the steps that vLLM's
scheduler would take and decodes its whole answer; it keeps its blocks until it finishes. One that is refused a block
gives back what it had, and the session goes on as if it had been answered.
"""

import argparse
import json
import logging
import random
from types import SimpleNamespace
from typing import Any

Case = dict[str, Any]


def random_case(rng: random.Random) -> Case:
    """Sessions that grow, rewind and come back, in a pool that holds some of them."""
    block = rng.choice([16, 32, 64])
    states = rng.choice([0, 1, 3, 3])
    interval = rng.choice([0, 0, None, 4 * block]) if states else 0
    sessions = rng.randint(2, 8)
    case: Case = {
        "block_tokens": block, "lists": rng.choice([1, 1, 2]), "state_groups": states,
        "states_first": bool(states) and rng.random() < 0.7, "interval": interval, "chunk": block * rng.randint(1, 8),
        "num_blocks": rng.randint(12, 30 * sessions),
    }  # fmt: skip
    return case | {"events": list(events(rng, block, sessions, rng.randint(20, 60)))}


def events(rng: random.Random, block: int, sessions: int, count: int) -> Any:
    """At most one request of a session at a time; what is in service when the list ends stays so."""
    prompts: dict[int, int] = {}
    serving: list[int] = []
    for _ in range(count):
        name = rng.randrange(sessions)
        if name in serving:
            serving.remove(name)
            yield [name]
            continue
        before = prompts.get(name, 0)
        kind = rng.random()
        shared = before if kind < 0.5 else max(0, before - rng.randint(1, block)) if kind < 0.8 else 0
        if 0.8 <= kind < 0.95:
            shared = rng.randint(0, before)
        prompt = max(1, shared + rng.choice([0, rng.randint(1, block), rng.randint(1, 8 * block)]))
        prompts[name] = prompt
        serving.append(name)
        yield [name, prompt, rng.choice([0, 1, rng.randint(1, block), rng.randint(1, 3 * block)]), shared]


class Manager:
    """vLLM's manager over a case's pool, driven as its scheduler drives it."""

    def __init__(self, case: Case) -> None:
        from vllm.utils.hashing import sha256
        from vllm.v1 import kv_cache_interface as interface
        from vllm.v1.core import kv_cache_utils as utils
        from vllm.v1.core.kv_cache_manager import KVCacheManager

        block = case["block_tokens"]
        self.case, self.block = case, block
        self.hasher = utils.get_request_block_hasher(block, sha256)
        self.manager = KVCacheManager(
            interface.KVCacheConfig(
                num_blocks=case["num_blocks"], kv_cache_tensors=[], kv_cache_groups=groups(case),
                prefix_cache_retention_interval=case["interval"],
            ),
            max_model_len=1 << 20, scheduler_block_size=block, hash_block_size=block,
            max_in_flight_tokens=case["chunk"], enable_caching=True,
        )  # fmt: skip
        self.tokens: dict[int, list[int]] = {}
        self.running: dict[int, Any] = {}
        self.fresh = iter(range(1, 1 << 30))

    def start(self, name: int, prompt: int, answer: int, shared: int) -> int | None:
        """Tokens that were hit; None where a block was refused."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        own = self.tokens.get(name, [])[:shared]
        own += [next(self.fresh) for _ in range(prompt - len(own))]
        self.tokens[name] = own
        request = Request(
            request_id=f"{name}-{next(self.fresh)}", prompt_token_ids=own,
            sampling_params=SamplingParams(max_tokens=1 << 20), pooling_params=None, block_hasher=self.hasher,
        )  # fmt: skip
        found, hit, junction = self.manager.get_computed_blocks(request)
        request.shared_prefix_boundary = junction
        if not self._prefill(request, found, hit) or not self._decode(request, answer):
            self.manager.free(request)
            return None
        self.running[name] = request
        return hit

    def finish(self, name: int) -> None:
        request = self.running.pop(name, None)
        if request is not None:
            self.manager.free(request)

    def _prefill(self, request: Any, found: Any, hit: int) -> bool:
        done, first = hit, True
        while done < request.num_prompt_tokens:
            self.manager.new_step_starts()
            step = self._split(request, done)
            more = {"num_new_computed_tokens": hit, "new_computed_blocks": found} if first else {}
            if self.manager.allocate_slots(request, step, **more) is None:
                return False
            done, first = done + step, False
            request.num_computed_tokens = done
        return True

    def _split(self, request: Any, done: int) -> int:
        """The scheduler's own method, on as much of a scheduler as it reads."""
        from vllm.v1.core.sched.scheduler import Scheduler

        step = min(self.case["chunk"], request.num_prompt_tokens - done)
        if not self.case["state_groups"]:
            return int(step)
        stand_in = SimpleNamespace(
            cache_config=SimpleNamespace(block_size=self.block), block_size=self.block, hash_block_size=self.block,
            mamba_partial_cache_hit=False, use_eagle_block_drop=False, num_hash_lookahead_tokens=0,
            mamba_has_prefill_checkpoint_blocks=False, mamba_prefill_checkpoint_alignment=None,
            max_num_scheduled_tokens=self.case["chunk"],
            scheduler_config=SimpleNamespace(long_prefill_token_threshold=0), mamba_shared_prefix_checkpoint=False,
        )  # fmt: skip
        before, request.num_computed_tokens = request.num_computed_tokens, done
        size = Scheduler._mamba_block_aligned_split(stand_in, request, step)
        request.num_computed_tokens = before
        return size

    def _decode(self, request: Any, answer: int) -> bool:
        for _ in range(answer):
            request.append_output_token_ids(next(self.fresh))
            self.manager.new_step_starts()
            if self.manager.allocate_slots(request, 1) is None:
                return False
            request.num_computed_tokens += 1
        return True


def groups(case: Case) -> list[Any]:
    """So many groups of attention and of states, with pages of one size."""
    import torch
    from vllm.v1 import kv_cache_interface as interface

    block = case["block_tokens"]
    full = interface.FullAttentionSpec(block_size=block, num_kv_heads=1, head_size=128, dtype=torch.bfloat16)
    state = interface.MambaSpec(
        block_size=block, shapes=((block * 256,),), dtypes=(torch.bfloat16,), mamba_cache_mode="align"
    )
    made = [interface.KVCacheGroupSpec([f"state.{n}"], state) for n in range(case["state_groups"])]
    attention = [interface.KVCacheGroupSpec([f"full.{n}"], full) for n in range(case["lists"])]
    return made + attention if case["states_first"] else attention + made


def ask(case: Case) -> Case:
    """Hits in the order of the requests, null where refused; and the blocks that are free at the end."""
    from vllm.utils.hashing import sha256
    from vllm.v1.core import kv_cache_utils as utils

    utils.init_none_hash(sha256)
    twin, hits = Manager(case), []
    for event in case["events"]:
        if len(event) == 1:
            twin.finish(event[0])
        else:
            hits.append(twin.start(*event))
    return {"hits": hits, "free": twin.manager.block_pool.get_num_free_blocks()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rng = random.Random(asked.seed)
    rows = []
    for _ in range(asked.count):
        case = random_case(rng)
        rows.append(json.dumps({"case": case, "answer": ask(case)}, separators=(",", ":")))
    print("[\n" + ",\n".join(rows) + "\n]")


if __name__ == "__main__":
    main()
