"""Ask SGLang's own pool sizing about generated models and flags; write cases and answers as JSON.

    python scripts/sglang_oracle_cases.py --count 600 --seed 1 > cases.json

Runs without a GPU and without weights, in an environment of its own that has sglang 0.5.23 installed with --no-deps
beside a CPU build of torch and the packages that its imports ask for. What is asked: KVCacheConfigurator
(_handle_max_mamba_cache, _calculate_mamba_ratio, resolve_max_num_reqs) and the pool configurators, with SGLang's own
cache-parameter classes for the states. tests/engines/test_sglang.py compares kvplan with a frozen run.
"""

import argparse
import importlib.machinery
import json
import logging
import random
import sys
import types
import warnings
from functools import partial
from types import SimpleNamespace as NS

GIB = 1 << 30
CONTEXTS = (4_096, 32_768, 131_072, 1_048_576)
STRATEGIES = ("extra_buffer", "extra_buffer", "extra_buffer_lazy", "no_buffer", "extra_sync")


class _Names(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Anything(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or _Names(name, (), {})


def stand_in_for_torchvision():
    """SGLang imports torchvision for image models; none of it is used here."""
    parts = ("", ".io", ".ops", ".transforms", ".transforms.functional", ".transforms.v2", ".transforms.v2.functional")
    for part in parts:
        module = _Anything("torchvision" + part)
        module.__spec__ = importlib.machinery.ModuleSpec("torchvision" + part, None, is_package=True)
        module.__version__ = "0"
        sys.modules["torchvision" + part] = module


def states_of(draw, case):
    """A recurrent kind with real head and state widths."""
    kind = draw.choice(("kda", "kda", "gdn", "gdn", "mamba2", "none"))
    case["state"] = {"kind": kind, "layers": draw.choice((20, 23, 30, 36, 48, 69)), "conv_kernel": 4}
    sizes = {
        "kda": {"num_heads": draw.choice((32, 96)), "head_dim": 128},
        "gdn": {"key_heads": 16, "value_heads": draw.choice((32, 48)), "key_dim": 128, "value_dim": 128},
        "mamba2": {
            "num_heads": draw.choice((64, 128)), "head_dim": 64, "d_state": 128, "n_groups": draw.choice((1, 8)),
        },
        "none": {},
    }  # fmt: skip
    case["state"] |= sizes[kind] | {"dtype": draw.choice(("float32", "float32", "bfloat16"))}


def attention_of(draw, case):
    kind = draw.choice(("mla", "mla", "gqa", "gqa", "dsa", "swa", "v4"))
    kind = "gqa" if kind in ("swa", "v4") and case["state"]["kind"] != "none" else kind
    if kind == "v4":
        case["attention"] = {"kind": kind, "ratios": [0, 0] + [4, 128] * draw.choice((20, 29)), "window": 128}
        return
    case["attention"] = {"kind": kind, "layers": draw.choice((6, 7, 12, 16, 24)), "bytes": draw.choice((2, 2, 1))}
    if kind in ("gqa", "swa"):
        case["attention"] |= {"kv_heads": draw.choice((2, 4, 8)), "head_dim": draw.choice((64, 128, 256))}
    if kind == "swa":
        case["attention"] |= {"swa_layers": draw.choice((12, 24, 39)), "window": draw.choice((128, 1024))}


def flags_of(draw, case):
    flags = {}
    if draw.random() < 0.4:
        flags["mamba_full_memory_ratio"] = draw.choice((0.1, 0.3, 0.5, 1.5, 4.0, 13.35))
    if draw.random() < 0.2:
        flags["max_mamba_cache_size"] = draw.choice((16, 60, 360, 501))
    if draw.random() < 0.4:
        flags["max_running_requests"] = draw.choice((4, 33, 64, 128, 500))
    if draw.random() < 0.2:
        flags["disable_radix_cache"] = True
    if draw.random() < 0.2:
        flags["max_total_tokens"] = draw.choice((50_000, 400_001, 3_000_000))
    if draw.random() < 0.15:
        flags["mamba_skip_decode_lock"] = True
    strategy = flags["strategy"] = draw.choice(STRATEGIES)
    flags["page_size"] = 1 if strategy == "no_buffer" else draw.choice((1, 1, 16, 64))
    if draw.random() < 0.35:
        flags["speculative_num_draft_tokens"] = draw.choice((2, 4, 8))
        flags["speculative_algorithm"] = draw.choice(("EAGLE", "NGRAM", "DFLASH"))
        flags.setdefault("max_running_requests", 48)
        if flags["speculative_algorithm"] == "DFLASH":
            flags["draft_kv_bytes_per_token"] = draw.choice((1_280, 2_560, 5_760))
        flags["enable_linear_replayssm_spec"] = draw.random() < 0.4 and case["state"]["kind"] in ("kda", "gdn")
    case["flags"] = flags


def make_case(draw):
    case = {"rest_bytes": draw.randrange(4 * GIB, 120 * GIB), "context_len": draw.choice(CONTEXTS)}
    states_of(draw, case)
    attention_of(draw, case)
    case["tp"] = draw.choice((1, 2, 4, 8))
    case["dcp"] = draw.choice((1, 1, case["tp"])) if case["attention"]["kind"] in ("mla", "dsa") else 1
    case["attn_dp"] = draw.choice((1, 1, 1, 2, 4))
    case["pp"] = draw.choice((1, 1, 1, 1, 2, 3)) if case["attention"]["kind"] not in ("swa", "v4") else 1
    flags_of(draw, case)
    if case["attention"]["kind"] == "v4":
        case["flags"] |= {"page_size": 256, "strategy": "extra_buffer"}
        if case["flags"].get("speculative_algorithm"):
            case["flags"]["speculative_algorithm"] = "EAGLE"
        if draw.random() < 0.3:
            case["flags"]["swa_full_tokens_ratio"] = draw.choice((0.05, 0.15, 0.5))
    return case


def layer_order(case):
    """Attention spread evenly among the recurrent layers: indexes of both."""
    attention, states = case["attention"]["layers"], case["state"]["layers"]
    if case["state"]["kind"] == "none":
        states = 0
    total = attention + states
    kept = sorted({(i + 1) * total // attention - 1 for i in range(attention)})
    return kept, [i for i in range(total) if i not in set(kept)]


def cache_params(sglang, case, layers):
    """SGLang's own description of the states, on one tensor-parallel rank."""
    state, tp = case["state"], case["tp"]
    torch, params = sglang.torch, sglang.params
    dtype = params.Mamba2StateDType(conv=torch.bfloat16, temporal=getattr(torch, state["dtype"]))
    if state["kind"] == "kda":
        shape = params.KimiLinearStateShape.create(
            tp_world_size=tp, num_heads=state["num_heads"], head_dim=state["head_dim"],
            conv_kernel_size=state["conv_kernel"],
        )  # fmt: skip
        return params.KimiLinearCacheParams(shape=shape, layers=layers, dtype=dtype)
    if state["kind"] == "gdn":
        sizes = {
            "intermediate_size": state["value_heads"] * state["value_dim"], "n_groups": state["key_heads"],
            "num_heads": state["value_heads"], "head_dim": state["value_dim"], "state_size": state["key_dim"],
        }  # fmt: skip
    else:
        sizes = {
            "intermediate_size": state["num_heads"] * state["head_dim"], "n_groups": state["n_groups"],
            "num_heads": state["num_heads"], "head_dim": state["head_dim"], "state_size": state["d_state"],
        }  # fmt: skip
    shape = params.Mamba2StateShape.create(tp_world_size=tp, conv_kernel=state["conv_kernel"], **sizes)
    return params.Mamba2CacheParams(shape=shape, layers=layers, dtype=dtype)


class Oracle:
    """SGLang's modules, with its run-time context replaced by plain values."""

    def __init__(self):
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        stand_in_for_torchvision()
        import torch
        from sglang.srt.configs import mamba_utils
        from sglang.srt.environ import envs
        from sglang.srt.layers.cp import utils as cp
        from sglang.srt.mem_cache import deepseek_v4_memory_pool as v4
        from sglang.srt.mem_cache import kv_cache_configurator as sizing
        from sglang.srt.model_executor import pool_configurator as pools

        self.torch, self.params, self.sizing, self.pools = torch, mamba_utils, sizing, pools
        self.envs, self.cp, self.v4 = envs, cp, v4

    def context(self, case):
        """Replace what SGLang reads from its published configuration."""
        flags, sizing, pools = case["flags"], self.sizing, self.pools
        schedule = NS(
            mamba_full_memory_ratio=flags.get("mamba_full_memory_ratio", 0.9),
            max_mamba_cache_size=flags.get("max_mamba_cache_size"),
            max_running_requests=flags.get("max_running_requests"),
            max_total_tokens=flags.get("max_total_tokens"),
            disable_overlap_schedule=flags["strategy"] in ("no_buffer", "extra_sync"),
            page_size=flags["page_size"],
            swa_full_tokens_ratio=flags.get("swa_full_tokens_ratio", 0.8),
            _swa_full_tokens_ratio_explicitly_set="swa_full_tokens_ratio" in flags,
            swa_prefix_tails=None,
            chunked_prefill_size=8192,
        )
        strategy = flags["strategy"]
        mamba = NS(
            enable_mamba_extra_buffer=strategy != "no_buffer" and not flags.get("disable_radix_cache", False),
            enable_mamba_extra_buffer_lazy=strategy == "extra_buffer_lazy",
            enable_linear_replayssm_spec=flags.get("enable_linear_replayssm_spec", False),
            linear_replayssm_cache_len=16,
        )
        spec = NS(
            speculative_num_draft_tokens=flags.get("speculative_num_draft_tokens"),
            speculative_algorithm=flags.get("speculative_algorithm"),
            speculative_num_steps=max(1, flags.get("speculative_num_draft_tokens", 1) - 1),
            speculative_eagle_topk=1,
        )
        memory = NS(
            disable_radix_cache=flags.get("disable_radix_cache", False), enable_unified_memory=False,
            enable_hisparse=False, enable_hierarchical_cache=False, enable_unified_cache_external_linker=False,
        )  # fmt: skip
        parallel = NS(attn_tp_size=case["tp"], attn_dcp_size=case["dcp"], pp_size=1, attn_cp_size=1)
        disagg = NS(disaggregation_mode="null", enable_pd_role_switch=False, disaggregation_decode_extra_slots=0)
        kernel = NS(
            dsa_prefill_backend="flashmla_kv", dsa_decode_backend="flashmla_kv", dsv4_attn_backend=None,
            enable_deepseek_v4_fp4_indexer=False,
        )  # fmt: skip
        executed = NS(mamba=mamba, kernel=kernel, features=NS(enable_encoder_swa_bounded_replay=False))
        published = {
            "get_schedule": schedule, "get_memory": memory, "get_spec": spec, "get_parallel": parallel,
            "get_disagg": disagg, "get_exec": executed, "get_model": NS(),
            "get_context": NS(override=lambda _why, **new: vars(schedule).update(new)),
        }  # fmt: skip
        for module in (sizing, pools, self.v4):
            for name, value in published.items():
                setattr(module, name, lambda value=value: value)
            module.is_deepseek_dsa = lambda _config: case["attention"]["kind"] == "dsa"
            module.dsa_layer_skips_topk = lambda _config, _layer: False
            module.get_dsa_index_head_dim = lambda _config: 128
            module.get_dsa_index_kpool = lambda _config: 1
        drafts = flags.get("speculative_num_draft_tokens") or 1
        pools.max_speculative_num_draft_tokens = lambda: flags.get("speculative_num_draft_tokens")
        pools.get_alloc_len_per_decode = lambda: max(spec.speculative_num_steps, drafts)
        pools.is_minimax_sparse = lambda _config: False
        pools.compute_page_shard_scratch_bytes = lambda *_args, **_more: 0
        pools.DefaultPoolConfigurator._compute_qsa_cell_size = staticmethod(lambda **_more: 0)
        self.cp.get_glm_dsa_layer_split_effective_num_layers = lambda _kvc, layers: layers
        self.cp.get_glm_dsa_cp_layer_shard_info = lambda _kvc: (0, 1)
        self.envs.SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK.set(flags.get("mamba_skip_decode_lock", False))
        return schedule

    def stand_in(self, case, stage):
        """The configurator of one pipeline stage."""
        attention, flags = case["attention"], case["flags"]
        ratios = attention.get("ratios", [])
        kept, recurrent = (list(range(len(ratios))), []) if ratios else layer_order(case)
        total = len(kept) + len(recurrent) + attention.get("swa_layers", 0)
        start, stop = self.sizing.get_pp_indices(total, stage, case["pp"])
        algorithm = flags.get("speculative_algorithm")
        latent = attention["kind"] in ("mla", "dsa")
        heads, width = attention.get("kv_heads", 1), attention.get("head_dim", 0)
        model = NS(
            num_hidden_layers=total, context_len=case["context_len"], hf_config=NS(kv_source_layer_ids=[]),
            kv_lora_rank=512, qk_rope_head_dim=64, head_dim=width, v_head_dim=width, swa_head_dim=width,
            swa_v_head_dim=width,
            attention_arch="mla" if latent else "mha", hf_text_config=NS(), quantization=None,
            qk_nope_head_dim=448, index_head_dim=128, compress_ratios=ratios, window_size=attention.get("window"),
            get_num_kv_heads=lambda tp, dcp=1: max(1, heads // (tp // dcp)),
            get_swa_num_kv_heads=lambda tp: max(1, heads // tp),
        )  # fmt: skip
        swa = list(range(len(kept), total)) if attention["kind"] == "swa" else []
        state = None
        if case["state"]["kind"] != "none":
            state = NS(mamba2_cache_params=cache_params(self, case, recurrent), full_attention_layer_ids=kept)
        dtype = getattr(self.torch, "bfloat16" if attention.get("bytes") == 2 else "float8_e4m3fn")
        spec = NS(
            is_none=lambda: algorithm is None, is_eagle=lambda: algorithm == "EAGLE", is_standalone=lambda: False,
            is_dflash_family=lambda: algorithm == "DFLASH", is_dspark=lambda: False,
        )  # fmt: skip
        this = NS(
            mambaish_config=state, model_config=model, pp_size=case["pp"], attn_dp_size=case["attn_dp"],
            spec_algorithm=spec, extra_mamba_cache_bytes_per_req=0, fused_entry_bytes=lambda _pool: None,
            hybrid_gdn_config=state if case["state"]["kind"] == "gdn" else None,
            hybrid_kda_config=state if case["state"]["kind"] == "kda" else None,
            kv_cache_dtype_str=None, kv_cache_dtype=dtype, use_mla_backend=latent, is_draft_worker=False,
            server_args=NS(enable_hisparse=False), page_size=flags["page_size"],
            sliding_window_size=attention.get("window"),
            dflash_draft_cell_size_per_token=flags.get("draft_kv_bytes_per_token"),
            spec_aux_config=NS(eagle_draft_num_layers=1, dflash_draft_num_layers=5, eagle_draft_swa_num_layers=None),
            layer_info=NS(start_layer=start, end_layer=stop, num_effective_layers=stop - start,
                          full_attention_layer_ids=kept, swa_attention_layer_ids=swa),
        )  # fmt: skip
        self.pools.mambaish_config = lambda _model: state
        return this

    def tokens(self, case, this, left):
        attention, page, pools = case["attention"], case["flags"]["page_size"], self.pools
        if attention["kind"] == "v4":
            kind = pools.DSV4PoolConfigurator
        elif attention["kind"] == "swa":
            kind = pools.HybridSWAPoolConfigurator
            if pools.SWARequestCapPoolConfigurator.is_applicable(this):
                kind = pools.SWARequestCapPoolConfigurator
        else:
            kind = pools.DefaultPoolConfigurator
        sizer = kind(this)
        config = sizer.calculate_pool_sizes(left, page)
        most = case["flags"].get("max_total_tokens")
        if most is not None and most < config.max_total_num_tokens:
            config = sizer.calculate_pool_sizes_from_max_tokens(most, page)
        return config.max_total_num_tokens, config.swa_max_total_num_tokens

    def answer(self, case):
        """What SGLang makes of the case; None where it refuses to start."""
        found = []
        for stage in range(case["pp"]):
            schedule = self.context(case)
            this = self.stand_in(case, stage)
            configurator = self.sizing.KVCacheConfigurator
            this._calculate_mamba_ratio = partial(configurator._calculate_mamba_ratio, this)
            left = case["rest_bytes"]
            try:
                if this.mambaish_config is not None:
                    left = int(configurator._handle_max_mamba_cache(this, left / GIB) * GIB)
                if left <= 0:
                    return None
                tokens, swa = self.tokens(case, this, left)
                if tokens <= 0:
                    return None
                found.append((tokens, swa, left, this, configurator, schedule))
            except (RuntimeError, ValueError):
                return None
        tokens, swa, left, this, configurator, schedule = min(found, key=lambda row: row[0])
        page = case["flags"]["page_size"]
        tokens = tokens // page * page
        try:
            running = configurator.resolve_max_num_reqs(this, tokens)
        except RuntimeError:
            return None
        return {
            "max_mamba_cache_size": schedule.max_mamba_cache_size if this.mambaish_config else None,
            "slots_per_request": this._calculate_mamba_ratio() if this.mambaish_config else None,
            "kv_bytes": left,
            "max_total_num_tokens": tokens,
            "swa_max_total_num_tokens": swa,
            "max_running_requests": running,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    draw, oracle = random.Random(args.seed), Oracle()
    cases = [make_case(draw) for _ in range(args.count)]
    rows = [{"id": number, "case": case, "sglang": oracle.answer(case)} for number, case in enumerate(cases)]
    json.dump({"sglang": "0.5.23", "seed": args.seed, "cases": rows}, sys.stdout, indent=None)


if __name__ == "__main__":
    main()
