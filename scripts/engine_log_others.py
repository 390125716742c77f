"""Public logs of SGLang, llama.cpp, ik_llama.cpp and TensorRT-LLM against kvplan's figures.

Such logs print the counts that a pool came to, and what the buffers of those counts take. Sizes are computed from the
printed counts; a count is compared where flags or the other printed figures determine it, and the reason says how.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from engine_log_cases import Case, Row

from kvplan.capacity import find_engine
from kvplan.deployment import make_deployment
from kvplan.errors import KvplanError
from kvplan.layers.base import Layer
from kvplan.layers.delta import Gdn
from kvplan.layers.full import Full
from kvplan.layers.linear import ShortConv
from kvplan.layers.mamba import Mamba2
from kvplan.ledger import Holding
from kvplan.model import Model, Source
from kvplan.plan import plan
from kvplan.sources import resolve
from kvplan.units import GIB, MIB


@dataclass(frozen=True)
class Figure:
    name: str
    printed: float
    computed: float
    decimals: int = 2
    """Of the print; 0 for counts, which have to be equal."""

    @property
    def exact(self) -> bool:
        half = 0.5 * 10**-self.decimals + 1e-9 if self.decimals else 0
        return abs(self.printed - self.computed) <= half

    @property
    def error(self) -> float:
        return abs(self.computed / self.printed - 1) if self.printed else float(self.computed != 0)

    def show(self, value: float) -> str:
        return f"{self.name} {value:,.{self.decimals}f}"


def compared(case: Case, version: str, figures: list[Figure], note: str) -> Row:
    """All exact, or the verdict of the worst figure; `within` is one percent."""
    wrong = [figure for figure in figures if not figure.exact]
    printed = ", ".join(figure.show(figure.printed) for figure in figures)
    computed = ", ".join(figure.show(figure.computed) for figure in wrong or figures)
    verdict = "exact" if not wrong else "within" if all(figure.error <= 0.01 for figure in wrong) else "differs"
    return Row(case["id"], version, printed, computed, verdict, note)


def refused(case: Case, reason: str) -> Row:
    return Row(case["id"], case["engine_version"] or "", "", "", "not modelled", reason)


def geometry(name: str, *parts: tuple[int, Layer]) -> Model:
    """A model of so many layers of each kind, where no bundled profile has its config."""
    blocks = tuple((layer,) for count, layer in parts for _ in range(count))
    return Model(name, Source("published config"), name, name, "bf16", blocks, max_context_tokens=1 << 20)


_GRANITE_MICRO = geometry("granite-4.0-h-micro", (4, Full(8, 64, 64)), (36, Mamba2(64, 64, 128, 1, 4)))
_QWEN35_9B = geometry("qwen3.5-9b", (8, Full(4, 256, 256)), (24, Gdn(16, 32, 128, 128, 4)))
_LFM2_2B6 = geometry("lfm2-2.6b", (8, Full(8, 64, 64)), (22, ShortConv(2048, 3)))
_DEEPSEEK_MHA = geometry("deepseek-r1 as MHA", (61, Full(128, 192, 128)))
_QWEN25_1B5 = geometry("qwen2.5-1.5b", (28, Full(2, 128, 128)))
_LLAMA2_7B = geometry("llama-2-7b", (32, Full(32, 128, 128)))
_DFLASH2 = (Full(8, 128, 128),) * 5

Known = tuple[str | Model, dict[str, Any], str]

_SGLANG: dict[str, Known] = {
    "sg-nemotron3-nano-30b-tp4-fp8": ("nemotron-3-nano-30b-a3b", {"mamba_full_memory_ratio": 0.9}, ""),
    "sg-qwen36-27b-fp8-rtxpro6000": ("qwen3.6-27b", {}, ""),
    "sg-granite4-h-small": ("granite-4.0-h-small", {}, ""),
    "sg-qwen3x-27b-eagle-bf16ssm": (
        "qwen3.8-27b", {"mamba_ssm_dtype": "bf16"},
        "bf16 state inferred from the print; draft tokens not stated, so verify states and the split not compared",
    ),
    "sg-qwen3-235b-fp8-h100-tp4": ("qwen3-235b-a22b", {}, ""),
    "sg-dsv3-64k": ("deepseek-v3", {}, ""),
    "sg-ling3-fp8-mla": ("ling-3.0-flash", {}, ""),
    "sg-ling3-kda-a": ("ling-3.0-flash", {}, ""),
    "sg-mimo-v2-flash-tp4-before-fix": ("mimo-v2-flash", {}, ""),
    "sg-qwen35-35b-awq-strixhalo": ("qwen3.5-35b-a3b", {}, ""),
    "sg-qwen3x-27b-dflash2-fp8": (
        "qwen3.8-27b", {"mamba_ssm_dtype": "bf16"},
        "bf16 state, 5 draft layers of 8 heads inferred; the states' total holds more than 21 slots, flags not stated",
    ),
    "sg-glm5-b300-tp8-fp8": (
        "glm-5", {"page_size": 1, "engine_version": "0.5.9"},
        "no version stated: rows of 656 B, as before 0.5.10; the pool is not printed"
    ),
    "sg-qwen38-27b-nvfp4-gb10": (
        "qwen3.8-27b", {"max_mamba_cache_size": 360, "kv_cache_dtype": "fp8"}, "fp8 KV inferred from the print"
    ),
    "sg-nemotron-nano-9b-v2-like": ("nemotron-nano-9b-v2", {"disable_radix_cache": True}, ""),
    "sg-granite4-h-micro": (_GRANITE_MICRO, {}, ""),
    "sg-qwen38-27b-fp8-h100": ("qwen3.8-27b", {}, ""),
}  # fmt: skip
"""By log: the model, flags that it names outside its own fields, and what had to be inferred."""

_SGLANG_REFUSED = {
    "sg-dsv4-amd-0513-prefill": "DeepSeek V4's pools are modelled for 0.5.23 on NVIDIA GPUs; this is 0.5.13 on AMD",
    "sg-dsv4pro-h200-refused": "a start that SGLang refused: no pool; its minimum --mem-fraction-static is no figure",
}

_SGLANG_RELEASES = ("0.5.9", "0.5.16", "0.5.17", "0.5.23")

_DTYPES = {"float8_e4m3fn": "fp8", "bfloat16": "bf16"}


def sglang(case: Case) -> Row:
    """Buffers of the printed counts; counts where flags fix them or where both pools follow one release's ratio."""
    if case["id"] in _SGLANG_REFUSED:
        return refused(case, _SGLANG_REFUSED[case["id"]])
    name, extra, note = _SGLANG[case["id"]]
    model = resolve(name) if isinstance(name, str) else name
    seen = case["observed"]
    flags = _sglang_flags(case) | extra
    figures = list(_sglang_sizes(model, case, flags))
    if "swa_layer_tokens" in seen:
        made = _engine(model, flags | {"max_total_tokens": seen["full_layer_tokens"]})
        figures.append(Figure("window tokens", seen["swa_layer_tokens"], made["swa_cache_tokens"], 0))
        return compared(case, "", figures, note or "window tokens from the full layers' tokens")
    slots, tokens = seen.get("max_mamba_cache_size"), seen.get("kv_tokens")
    if slots is None or tokens is None:
        return compared(case, "", figures, note or "sizes of the printed counts; the pool is not printed")
    if extra.get("disable_radix_cache"):
        figures.append(Figure("slots", slots, _engine(model, flags)["state_slots"], 0))
        return compared(case, "", figures, "slots from --max-running-requests, without a radix cache")
    if "max_mamba_cache_size" in extra:
        free = {flag: value for flag, value in flags.items() if flag != "max_running_requests"}
        made = _engine(model, free)
        figures.append(Figure("requests", case["max_running_requests"], made["max_running_requests"], 0))
        return compared(case, "", figures, f"{note}; requests from --max-mamba-cache-size")
    releases = [] if case["speculative"] else _split(model, flags, slots, tokens)
    if not releases:
        unsplit = note or "sizes of the printed counts; they follow no release's default ratio, flags not stated"
        return compared(case, case["engine_version"] or "", figures, unsplit)
    figures += [Figure("slots", slots, slots, 0), Figure("tokens", tokens, tokens, 0)]
    said = f"the memory of both counts splits into just these by the rules of {', '.join(releases)}"
    return compared(case, releases[-1], figures, said)


def _sglang_flags(case: Case) -> dict[str, Any]:
    """What the row states, `page_size` and dtypes in kvplan's names."""
    kv = case["kv_cache_dtype"]
    stated = {
        "tp": case["tp"] or 1,
        "page_size": case["page_size"],
        "kv_cache_dtype": _DTYPES.get(kv, kv),
        "max_running_requests": case["max_running_requests"],
        "max_model_len": case["max_model_len"],
    }
    return {flag: value for flag, value in stated.items() if value is not None}


def _engine(model: Model, flags: dict[str, Any], pool_bytes: int = 1 << 40, engine: str = "sglang") -> dict[str, Any]:
    """The engine's figures; raises KvplanError."""
    found = plan(model, engine=engine, **({"kv_cache_memory": pool_bytes} | flags)).engine
    assert found is not None
    return found


def _sglang_sizes(model: Model, case: Case, flags: dict[str, Any]) -> Iterator[Figure]:
    """Each printed buffer in GiB: KV by tokens and a page of padding, states by slots and one row of padding.

    The padding is in the shape of SGLang's buffers (mem_cache/memory_pool.py).
    """
    seen, deployment = case["observed"], make_deployment(**flags)
    dtypes, tp = find_engine("sglang").dtypes(model, deployment), flags["tp"]
    tokens, rows = seen.get("kv_tokens", 0) + flags.get("page_size", 1), seen.get("max_mamba_cache_size", 0) + 1
    mixers = [mixer.on_rank(tp) for mixer in model.mixers()]
    if "swa_layer_tokens" in seen:
        mixers = [mixer for mixer in mixers if any(tensor.window for tensor in mixer.stored(dtypes))]
    drafts = _DFLASH2 if "DFlash2" in str(case["speculative"]) else model.mtp
    own, draft = Holding(mixers, dtypes), Holding([mixer.on_rank(tp) for mixer in drafts], dtypes)
    state, conv = (_entry(own, lambda tensor, role=role: tensor.role == role) for role in ("state", "conv"))
    wanted = {
        "k_size_gb": ("k", _named(own, "key") * tokens), "v_size_gb": ("v", _named(own, "value") * tokens),
        "kv_size_gb": ("kv", _entry(own, lambda tensor: tensor.per == "token") * tokens),
        "ssm_state_gb": ("ssm", state * rows), "conv_state_gb": ("conv", conv * rows),
        "mamba_total_gb": ("states", (state + conv) * rows),
        "draft_k_size_gb": ("draft k", _named(draft, "key") * tokens),
        "draft_v_size_gb": ("draft v", _named(draft, "value") * tokens),
    }  # fmt: skip
    for key, (label, size) in wanted.items():
        if key in seen:
            yield Figure(label, seen[key], size / GIB)


def _entry(held: Holding, chosen: Callable[[Any], bool]) -> int:
    return sum(count * tensor.entry_bytes for tensor, count in held.tensors.items() if chosen(tensor))


def _named(held: Holding, name: str) -> int:
    return _entry(held, lambda tensor: tensor.per == "token" and tensor.name.startswith(name))


def _split(model: Model, flags: dict[str, Any], slots: int, tokens: int) -> list[str]:
    """Releases whose rules split the memory of both printed counts, padding row or not, into just these counts."""
    one = _engine(model, flags | {"max_mamba_cache_size": slots, "max_total_tokens": tokens})
    cell, slot = one["page_bytes"] // one["block_tokens"], one["state_slot_bytes"]
    pools = [tokens * cell + cell // 2 + (slots + padding) * slot for padding in (1, 0)]

    def splits(release: str, pool_bytes: int) -> bool:
        made = _engine(model, flags | {"engine_version": release}, pool_bytes)
        return bool((made["state_slots"], made["kv_cache_tokens"]) == (slots, tokens))

    return [release for release in _SGLANG_RELEASES if any(splits(release, pool) for pool in pools)]


_LLAMACPP: tuple[tuple[str, str | Model], ...] = (
    ("llama-qwen3next", "qwen3-next"),
    ("llama-qwen3x-27b", "qwen3.6-27b"),
    ("llama-qwen35-9b", _QWEN35_9B),
    ("llama-qwen35-35b", "qwen3.5-35b-a3b"),
    ("llama-falcon-h1-1.5b", "falcon-h1-1.5b"),
    ("llama-qwen3coder-30b", "qwen3-30b-a3b"),
    ("llama-lfm2-2.6b", _LFM2_2B6),
    ("ik-dsr1-nomla", _DEEPSEEK_MHA),
    ("ik-dsr1", "deepseek-r1"),
)


def llamacpp(case: Case) -> Row:
    """Every printed buffer in MiB, and the cells of a sequence, from --ctx-size and --parallel."""
    seen = case["observed"]
    known = next((model for start, model in _LLAMACPP if case["id"].startswith(start)), None)
    if known is None:
        return refused(case, f"{case['model']}: its config is not at hand")
    streams = seen.get("kv_streams", 1)
    cells = seen.get("kv_cells") or seen["n_ctx"]
    flags = {
        "ctx_size": cells * streams, "parallel": case["max_num_seqs"] or 1, "kv_unified": streams == 1,
        "cache_type_k": case["kv_cache_dtype"], "cache_type_v": case["kv_cache_dtype"],
    }  # fmt: skip
    made = _engine(resolve(known) if isinstance(known, str) else known, flags, 1 << 42, "llamacpp")
    sizes = {
        "k_mib": made["k_bytes"], "v_mib": made["v_bytes"], "kv_mib": made["k_bytes"] + made["v_bytes"],
        "r_mib": made["r_bytes"], "s_mib": made["s_bytes"], "rs_mib": made["r_bytes"] + made["s_bytes"],
    }  # fmt: skip
    figures = [Figure(key.removesuffix("_mib"), seen[key], size / MIB) for key, size in sizes.items() if key in seen]
    if "kv_cells" in seen:
        figures.append(Figure("cells", cells, made["n_ctx_seq"], 0))
    return compared(case, "", figures, "")


def ik_llamacpp(case: Case) -> Row:
    """The modes that store what llama.cpp stores: the latent alone (-mla 2), or keys and values of every head."""
    if "kvT_mib" in case["observed"]:
        return refused(case, "-mla 1 of ik_llama.cpp keeps a transposed copy of the latent, and n_ctx is not printed")
    return llamacpp(case)


_TRTLLM: dict[str, Known] = {
    "trt-llama2-7b-a100-old": (_LLAMA2_7B, {}, ""),
    "trt-qwen25-1.5b": (_QWEN25_1B5, {}, ""),
    "trt-gptoss120b-8k": ("gpt-oss-120b", {}, "every layer at its full length"),
    "trt-8b-5090-fp8kv": ("llama-3.1-8b", {"kv_cache_dtype": "fp8"}, "fp8 KV inferred from the print"),
}


def trtllm(case: Case) -> Row:
    """The tokens of the printed pool, anywhere inside its rounding, and the size of those tokens."""
    if case["id"] not in _TRTLLM:
        return refused(case, "the log names no model")
    name, flags, note = _TRTLLM[case["id"]]
    model, seen, printed = resolve(name) if isinstance(name, str) else name, case["observed"], case["other_flags"]
    if case["page_size"]:
        flags = flags | {"tokens_per_block": case["page_size"]}
    exact = seen.get("kv_bytes")
    ends = (exact, exact) if exact else (int((seen["kv_gib"] - 0.005) * GIB), int((seen["kv_gib"] + 0.005) * GIB))
    low, high = (_engine(model, flags, size, "trtllm") for size in ends)
    tokens, block = seen["kv_tokens"], low["block_tokens"]
    # Any block count between both ends is a possible answer: the printed one, where it is among them.
    nearest = min(max(tokens // block, low["num_blocks"]), high["num_blocks"]) * block
    figures = [Figure("tokens", tokens, nearest, 0)]
    size = -(-tokens // block) * low["page_bytes"]
    figures.append(Figure("bytes", exact, size, 0) if exact else Figure("GiB", seen["kv_gib"], size / GIB))
    if "num_blocks" in (printed or {}):
        figures.append(Figure("blocks", printed["num_blocks"], nearest // block, 0))
    return compared(case, case["engine_version"] or "", figures, note)


ENGINES: dict[str, Callable[[Case], Row]] = {
    "sglang": sglang,
    "llama.cpp": llamacpp,
    "ik_llama.cpp": ik_llamacpp,
    "tensorrt-llm": trtllm,
}


def check_other(case: Case) -> Row:
    """One log of an engine other than vLLM; what kvplan refuses becomes the reason."""
    engine = ENGINES.get(case["engine"])
    if engine is None:
        return refused(case, f"{case['engine']} is not modelled")
    try:
        return engine(case)
    except (KvplanError, KeyError) as error:
        return refused(case, str(error))
