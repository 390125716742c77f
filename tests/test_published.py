"""Figures that others printed: blogs, papers, cards, pull requests, other planners. Row numbers and sources are those
of the project's list of published numbers; rows that are lines of an engine's log are tested with that engine.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.architectures import read_config
from kvplan.dtypes import Dtypes
from kvplan.layers.base import Layer
from kvplan.layers.full import Full
from kvplan.ledger import Holding
from kvplan.model import Model, Source
from kvplan.sources import resolve

GIB = 1 << 30
MODELS = Path(__file__).resolve().parents[2] / "shared" / "data" / "models.jsonl"


def held(model: str, **dtypes: Any) -> Holding:
    return Holding(resolve(model).mixers(), Dtypes(**dtypes))


def one_layer(model: str, kind: str, tp: int = 1) -> Holding:
    layer = next(mixer for mixer in resolve(model).mixers() if mixer.kind == kind)
    return Holding([layer.on_rank(tp)], Dtypes())


def growth_kib(model: str) -> float:
    """Growing bytes per token, in KiB as the LLM Architecture Gallery prints them (no index keys)."""
    tensors = held(model).tensors
    return float(sum(n * t.slope(1 << 40) for t, n in tensors.items() if t.role == "kv")) / 1024


def uncapped_kib(model: str) -> float:
    """The same with every window counted as if it were full attention, which is the gallery's convention."""
    tensors = held(model).tensors
    return sum(count * tensor.entry_bytes for tensor, count in tensors.items() if tensor.per == "token") / 1024


def test_deepseek_v32_in_all_bf16() -> None:
    """Row 1, vLLM blog 2026-04-24: 83.9 GiB at 1,048,576 tokens, 1,408 B per token and layer."""
    v32 = held("deepseek-v3.2", index="bf16")
    assert v32.growth() == 61 * 1408
    assert round(v32.bytes(1 << 20) / GIB, 1) == 83.9


def test_deepseek_v4_pro_in_bf16() -> None:
    """Rows 2 and 3, the same blog: 9.62 GiB at 1M tokens, 320.1 MiB per C4 layer: compressed rows and keys."""
    growing = {tensor: count for tensor, count in held("deepseek-v4-pro").tensors.items() if tensor.grows}
    assert sum(count * tensor.bytes(1 << 20) for tensor, count in growing.items()) / GIB == pytest.approx(
        9.62, abs=0.005
    )
    csa = next(mixer for mixer in resolve("deepseek-v4-pro").mixers() if mixer.kind == "csa")
    kept = [tensor for tensor in csa.stored(Dtypes()) if tensor.per == "token"]
    assert sum(tensor.bytes(1 << 20) for tensor in kept) / (1 << 20) == pytest.approx(320.1, abs=0.05)


def test_v4_keeps_a_tenth_of_v32() -> None:
    """Row 5, model card: 10 % of V3.2's cache (Pro) and 7 % (Flash), which holds with fp8 records and an fp4 index."""
    baseline = held("deepseek-v3.2", kv="fp8_ds_mla").growth()
    assert baseline == 48_068
    shares = [
        held(f"deepseek-v4-{size}", kv="fp8_ds_mla", index="fp4").growth() / baseline for size in ("pro", "flash")
    ]
    assert [round(float(share), 4) for share in shares] == [0.1047, 0.0731]


def test_the_all_bf16_v4_without_its_index() -> None:
    """Row 7, gallery: 5.4 KiB per token for V4 Flash."""
    assert round(growth_kib("deepseek-v4-flash"), 1) == 5.4


def test_k3_layers() -> None:
    """Row 25, tokenspeed PR 1152: KDA state per layer at TP1 and TP8, and an MLA page of 64 tokens."""
    assert one_layer("kimi-k3", "kda").bytes(1) == 6_512_640
    assert one_layer("kimi-k3", "kda", tp=8).bytes(1) == 814_080
    assert one_layer("kimi-k3", "mla").bytes(64) == 73_728


def test_what_lmcache_reports_for_k3_is_not_its_cache() -> None:
    """Row 27, LMCache PR 4278: 107,136 B per token counts all 93 layers as MLA. The all-MLA twin is exactly that."""
    assert held("kimi-k3").growth() == 27_648
    assert held("kimi-k3-all-mla").growth() == 107_136


def test_a_mamba_page_of_nemotron_nano() -> None:
    """Row 41, AgileRL test: 5,316,608 B per Mamba layer with an fp32 state."""
    assert one_layer("nemotron-nano-9b-v2", "mamba2").bytes(1) == 5_316_608


def test_a_gdn_layer_of_qwen38() -> None:
    """Row 45, NVIDIA srt-slurm test: 122,880 B of convolution and a bf16 matrix of 4,194,304 B."""
    gdn = next(mixer for mixer in resolve("qwen3.8-2.4t-a95b").mixers() if mixer.kind == "gdn")
    sizes = {tensor.name: tensor.entry_bytes for tensor in gdn.stored(Dtypes(state="bf16"))}
    assert sizes == {"recurrent": 4_194_304, "conv": 122_880}


def test_qwen36_in_llamacpp() -> None:
    """Row 46, LM Studio bug 1862: f16 KV 16,384 MiB at 262,144 cells; four fp32 states 598.50 MiB."""
    footprint = held("qwen3.6-27b", kv="fp16", state="fp32", conv="fp32").footprint(262_144)
    assert footprint.kv == 16_384 << 20
    assert 4 * (footprint.state + footprint.conv) == int(598.5 * (1 << 20))


def test_llama_8b_in_the_release_blog() -> None:
    """Row 47: 0.125, 1.95 and 15.62 "GB" (GiB) at 1,024, 16,000 and 128,000 tokens."""
    sizes = [held("llama-3.1-8b").bytes(tokens) / GIB for tokens in (1024, 16_000, 128_000)]
    assert sizes == pytest.approx([0.125, 1.95, 15.62], abs=0.006)


def test_the_blog_doubles_405b() -> None:
    """Row 49, missed on purpose: the blog prints 123.05, twice what 8 KV heads store (it implies 16)."""
    assert held("llama-3.1-405b").bytes(128_000) / GIB == pytest.approx(123.05 / 2, abs=0.01)


def test_block_sizes_of_the_offloading_blog() -> None:
    """Rows 54 and 55: a 16-token block of Qwen3-0.6B is 1.75 MB (MiB), a 64-token one of DeepSeek-V2-Lite 1.90."""
    assert held("qwen3-0.6b").bytes(16) == int(1.75 * (1 << 20))
    assert round(held("deepseek-v2-lite").bytes(64) / (1 << 20), 1) == 1.9


def test_the_state_page_of_qwen35_over_eight_ranks() -> None:
    """Row 57, vllm-ascend issue 7393: 262,144 B."""
    gdn = next(mixer for mixer in resolve("qwen3.5-35b-a3b").mixers() if mixer.kind == "gdn").on_rank(8)
    assert gdn.stored(Dtypes(state="fp32"))[0].entry_bytes == 262_144


def test_the_state_pool_of_a_dgx_spark() -> None:
    """Row 58, SGLang log: 22 + 1 slots of Qwen3.6-27B are 3.23 GB (GiB) of matrices and 0.06 of convolution."""
    footprint = held("qwen3.6-27b").footprint(1)
    assert round(23 * footprint.state / GIB, 2) == 3.23
    assert round(23 * footprint.conv / GIB, 2) == 0.06


@pytest.mark.parametrize(
    ("model", "state", "per_token", "window", "fixed"),
    [
        ("lfm2-1.2b", "bf16", 12_288, 0, 81_920),  # row 59
        ("jamba-v0.1", "fp32", 16_384, 0, 16_056_320),  # row 61
        ("gemma-3-27b", "fp32", 81_920, 436_207_616, 0),  # row 62
        ("gemma-3n-e2b", "fp32", 8_192, 16_777_216, 0),  # row 65
        ("gemma-4-e2b", "fp32", 6_144, 6_291_456, 0),  # row 67
    ],
)
def test_the_capacity_tests_of_a_swift_runtime(model: str, state: str, per_token: int, window: int, fixed: int) -> None:
    """Third-party arithmetic on the published configs: growing, window and state bytes."""
    holding = held(model, state=state)
    full = holding.footprint(1_000_000)
    assert (holding.growth(), full.window, full.state + full.conv) == (per_token, window, fixed)


def test_llama_4_scout_at_128k() -> None:
    """Row 73, a third-party test worked by hand: 7,650,410,496 B in fp16 at 131,072 tokens."""
    assert held("llama-4-scout", kv="fp16").bytes(131_072) == 7_650_410_496


@pytest.mark.parametrize(("model", "per_token"), [("jamba-1.5-large", 36_864), ("jamba-1.5-mini", 16_384)])
def test_jamba_per_token(model: str, per_token: int) -> None:
    """Rows 74 and 75: Jamba 1.7 has the geometry of 1.5."""
    assert held(model).growth() == per_token


@pytest.mark.parametrize(
    ("model", "printed", "digits"),
    [
        ("kimi-linear", 7.9, 1), ("ling-2.5-1t", 11.2, 1), ("qwen3-next", 24, 0), ("qwen3.6-27b", 64, 0),
        ("nemotron-3-nano-30b-a3b", 6, 0), ("nemotron-3-super-120b-a12b", 8, 0), ("nemotron-3-nano-4b", 16, 0),
        ("mistral-large-3", 68.6, 1), ("glm-4.5", 368, 0), ("glm-4.5-air", 184, 0), ("hy3", 320, 0),
        ("qwen3-235b-a22b", 188, 0),
    ],
)  # fmt: skip
def test_the_architecture_gallery_per_token(model: str, printed: float, digits: int) -> None:
    """Rows 77 to 94: KiB per token in bf16."""
    assert round(growth_kib(model) - 1e-9, digits) == printed


@pytest.mark.parametrize(
    ("model", "kib"), [("gemma-3-27b", 496), ("olmo-3-7b", 512), ("step-3.5-flash", 180), ("gemma-4-31b", 880)]
)
def test_the_architecture_gallery_uncapped(model: str, kib: int) -> None:
    """Rows 97 to 103. The gallery prints 192 for Step-3.5 (it counts three MTP rows) and 840 for Gemma 4 31B (it counts
    a shared K = V once, which no engine does); 180 and 880 are what engines store.
    """
    assert uncapped_kib(model) == kib


def _row_config(row: dict[str, Any]) -> dict[str, Any]:
    """The row's config in the form that was published: nested where it stood nested."""
    config = {key: value for key, value in row["config"].items() if not key.startswith("_")}
    if row["id"] in NULL_IN_THE_CONFIG:
        config[NULL_IN_THE_CONFIG[row["id"]]] = None
    nested, outer = row["config"].get("_nested_under"), row["config"].get("_outer_model_type")
    return {"model_type": outer or config["model_type"], nested: config} if nested else config


LACK_A_FIELD = {
    "ai21labs/AI21-Jamba-1.5-Large": "attn_layer_offset",
    "ibm-granite/granite-4.0-h-small": "layer_types",
    "XiaomiMiMo/MiMo-V2.5-Pro": "hybrid_layer_pattern",
    "Qwen/Qwen3.5-2B": "linear_num_key_heads",
    "google/gemma-4-12B-it": "attention_k_eq_v",
}
NULL_IN_THE_CONFIG = {
    "mistralai/Ministral-8B-Instruct-2410": "sliding_window",
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503": "sliding_window",
}
"""The table leaves nulls out; in these configs a null is what says that there is no window."""


def _rows() -> list[dict[str, Any]]:
    if not MODELS.exists():
        return []
    rows = [json.loads(line) for line in MODELS.read_text().splitlines()]
    derived = [row for row in rows if row["config"] and row["derived"]["kv_bytes_per_token_bf16"] is not None]
    return [row for row in derived if row["derived"]["window_bytes_bf16"] is not None]


@pytest.mark.parametrize("row", _rows(), ids=lambda row: str(row["id"]))
def test_every_model_of_the_shared_table(row: dict[str, Any]) -> None:
    """Totals at 1M tokens, bf16 and fp8 cache, both state dtypes. Rows that lack a field are refused by its name."""
    if row["id"] in LACK_A_FIELD:
        with pytest.raises(Exception, match="missing"):
            read_config(_row_config(row), name=row["id"], source=Source("table"))
        return
    model: Model = read_config(_row_config(row), name=row["id"], source=Source("table"))
    derived, tokens = row["derived"], 1 << 20
    for kv in ("bf16", "fp8"):
        for state in ("fp32", "bf16"):
            fixed = derived[f"window_bytes_{kv}"] + derived[f"state_bytes_{state}_ssm"]
            expected = derived[f"kv_bytes_per_token_{kv}"] * tokens + fixed
            assert Holding(model.mixers(), Dtypes(kv=kv, state=state)).bytes(tokens) == expected


def test_layers_are_values() -> None:
    """Equal layers are counted once, so they have to compare and hash as values."""
    layers: list[Layer] = [Full(8, 128, 128), Full(8, 128, 128)]
    assert len(set(layers)) == 1
