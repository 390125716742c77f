"""Siblings of bundled models, with the keys that their published files carry.

Bytes are worked out from the published dimensions: 2 (K and V) × layers × KV heads × head width × 2 B. Parameter counts
are those on the models' hub pages.
"""

from typing import Any

import pytest

from kvplan.architectures import read_config
from kvplan.dtypes import Dtypes
from kvplan.ledger import Holding
from kvplan.model import Model, Source

Rows = dict[str, tuple[dict[str, Any], int, int]]

USUAL: dict[str, Any] = {
    "architectures": ["X"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": [1, 2], "hidden_act": "silu",
    "initializer_range": 0.02, "rms_norm_eps": 1e-6, "use_cache": True, "transformers_version": "4.51.0",
    "torch_dtype": "bfloat16", "pad_token_id": None, "pretraining_tp": 1, "rope_theta": 1e6, "rope_scaling": None,
    "tokenizer_class": "AutoTokenizer", "max_position_embeddings": 32768,
}  # fmt: skip
NAMES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")


def config(model_type: str, sizes: tuple[int | None, ...], vocab: int, tied: bool, **keys: Any) -> dict[str, Any]:
    shape = dict(zip(NAMES, sizes, strict=True))
    return USUAL | shape | {"model_type": model_type, "vocab_size": vocab, "tie_word_embeddings": tied} | keys


QWEN2 = {"max_window_layers": 28, "sliding_window": 131072, "use_sliding_window": False, "use_mrope": False}
DUAL_CHUNK = {"chunk_size": 262144, "local_size": 8192, "original_max_position_embeddings": 262144}
AWQ = {"bits": 4, "group_size": 128, "modules_to_not_convert": None, "quant_method": "awq", "zero_point": True}
QWEN3: dict[str, Any] = QWEN2 | {"head_dim": 128, "sliding_window": None, "attention_bias": False}
QWEN3_MOE: dict[str, Any] = QWEN3 | {
    "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": True,
    "num_experts": 128, "num_experts_per_tok": 8, "output_router_logits": False, "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 0, "qkv_bias": False, "use_qk_norm": True,
}  # fmt: skip
JS = {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}}
SMOL = {"transformers.js_config": JS, "rope_interleaved": False}
PHI = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "auto_map": {"AutoConfig": "x"}, "max_position_embeddings": 131072}
PHI4_MINI = PHI | {"sliding_window": 262144, "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False}
COHERE = {"use_qk_norm": False, "logit_scale": 0.0625, "model_max_length": 131072}

FULL: Rows = {
    "Qwen2.5-0.5B": (config("qwen2", (896, 4864, 24, 14, 2), 151936, True, **QWEN2), 494_032_768, 12_288),
    "Qwen2.5-3B": (config("qwen2", (2048, 11008, 36, 16, 2), 151936, True, **QWEN2), 3_085_938_688, 36_864),
    "Qwen2.5-7B-1M": (
        config("qwen2", (3584, 18944, 28, 28, 4), 152064, False, **QWEN2, dual_chunk_attention_config=DUAL_CHUNK),
        7_615_616_512, 57_344,
    ),
    "QwQ-32B-AWQ": (
        config("qwen2", (5120, 27648, 64, 40, 8), 152064, False, **QWEN2, quantization_config=AWQ),
        32_763_876_352, 262_144,
    ),
    "Qwen3-14B": (config("qwen3", (5120, 17408, 40, 40, 8), 151936, False, **QWEN3), 14_768_307_200, 163_840),
    "Qwen3-Coder-30B": (
        config("qwen3_moe", (2048, 5472, 48, 32, 4), 151936, False, **QWEN3_MOE), 30_532_122_624, 98_304,
    ),
    "Llama-2-7b with null KV heads": (
        config("llama", (4096, 11008, 32, 32, None), 32000, False), 6_738_415_616, 524_288,
    ),
    "Llama-3.2-3B": (
        config("llama", (3072, 8192, 28, 24, 8), 128256, True, head_dim=128, mlp_bias=False), 3_212_749_824, 114_688,
    ),
    "SmolLM2-135M": (
        config("llama", (576, 1536, 30, 9, 3), 49152, True, **SMOL),
        134_515_008, 23_040,
    ),
    "SmolLM3-3B": (
        config(
            "smollm3", (2048, 11008, 36, 16, 4), 128256, True, layer_types=["full_attention"] * 36,
            no_rope_layers=[1, 1, 1, 0] * 9, no_rope_layer_interval=4, use_sliding_window=False, sliding_window=None,
        ),
        3_075_098_624, 73_728,
    ),
    "Mistral-Nemo": (
        config("mistral", (5120, 14336, 40, 32, 8), 131072, False, head_dim=128, sliding_window=None),
        12_247_782_400, 163_840,
    ),
    "Mixtral-8x7B": (
        config("mixtral", (4096, 14336, 32, 32, 8), 32000, False, num_local_experts=8, num_experts_per_tok=2,
               sliding_window=None, output_router_logits=False),
        46_702_792_704, 131_072,
    ),
    "gemma-7b": (config("gemma", (3072, 24576, 28, 16, 16), 256000, True, head_dim=256), 8_537_680_896, 458_752),
    "Phi-3-mini-128k": (
        config("phi3", (3072, 8192, 32, 32, 32), 32064, False, **PHI, sliding_window=262144), 3_821_079_552, 393_216,
    ),
    "Phi-4-mini": (config("phi3", (3072, 8192, 32, 24, 8), 200064, True, **PHI4_MINI), 3_836_021_760, 131_072),
    "OLMo-2-32B": (config("olmo2", (5120, 27648, 64, 40, 8), 100352, False), 32_234_279_936, 262_144),
    "Command-R-v01": (
        config("cohere", (8192, 22528, 40, 64, 64), 256000, True, **COHERE), 34_980_831_232, 1_310_720,
    ),
    "GLM-4-9B-0414": (
        config("glm4", (4096, 13696, 40, 32, 2), 151552, False, head_dim=128, attention_bias=True), 9_400_279_040,
        40_960,
    ),
    "Seed-OSS-36B": (
        config("seed_oss", (5120, 27648, 64, 80, 8), 155136, False, head_dim=128, attention_bias=True,
               attention_out_bias=False),
        36_151_104_512, 262_144,
    ),
}  # fmt: skip

GEMMA2 = {
    "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid", "head_dim": 256,
    "sliding_window": 4096, "sliding_window_size": 4096,
}  # fmt: skip
COHERE2 = {
    "sliding_window": 4096, "sliding_window_pattern": 4, "_sliding_window_pattern": 4, "layer_switch": 4,
    "order_of_interleaved_layers": "local_attn_first", "use_embedding_sharing": True, "use_parallel_block": True,
    "cache_implementation": "hybrid", "max_position_embeddings": 132096,
}  # fmt: skip

WINDOWED: Rows = {
    "Mistral-7B-v0.1": (
        config("mistral", (4096, 14336, 32, 32, 8), 32000, False, sliding_window=4096), 7_241_732_096, 0,
    ),
    "gemma-2-9b": (config("gemma2", (3584, 14336, 42, 16, 8), 256000, True, **GEMMA2), 9_241_705_984, 172_032),
    "gemma-3-1b": (
        config("gemma3_text", (1152, 6912, 26, 4, 1), 262144, True, head_dim=256, sliding_window=512,
               sliding_window_pattern=6, rope_local_base_freq=10000),
        999_885_952, 4_096,
    ),
    "Command-A": (
        config("cohere2", (12288, 36864, 64, 96, 8), 256000, True, head_dim=128, **COHERE2), 111_057_580_032, 65_536,
    ),
}  # fmt: skip


def read(data: dict[str, Any]) -> Model:
    return read_config(data, name="test", source=Source("test"))


@pytest.mark.parametrize("name", [*FULL, *WINDOWED])
def test_parameters_and_growth(name: str) -> None:
    data, published, per_token = (FULL | WINDOWED)[name]
    model = read(data)
    assert model.weights is not None, model.weights_missing
    parts = [*model.weights.blocks, model.weights.outer, model.weights.mtp]
    assert sum(weight.params for part in parts for weight in part) == published
    assert Holding(model.mixers(), Dtypes()).growth() == per_token


def test_a_nested_config_that_leaves_the_class_default_out() -> None:
    """Pixtral 12B's text config states no KV heads: Mistral's class has 8, so 40 × 8 × 128 × 2 × 2 B a token."""
    text = {
        "model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_hidden_layers": 40, "sliding_window": None, "vocab_size": 131072,
        "is_composition": True, "max_position_embeddings": 1024000,
    }  # fmt: skip
    vision = {"head_dim": 64, "hidden_size": 1024, "image_size": 1024, "model_type": "pixtral", "patch_size": 16}
    model = read({"model_type": "llava", "image_seq_length": 1, "text_config": text, "vision_config": vision})
    assert Holding(model.mixers(), Dtypes()).growth() == 163_840


def test_gemma_4_as_transformers_saves_it() -> None:
    """26B-A4B: 25 windows of 8 heads × 256, 5 global layers of 2 × 512, said layer by layer."""
    types = ["sliding_attention"] * 5 + ["full_attention"]
    text = {
        "model_type": "gemma4_text", "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 256, "sliding_window": 1024, "layer_types": types * 5, "hidden_size": 2816,
        "attention_k_eq_v": True, "max_position_embeddings": 262144,
    }  # fmt: skip
    layers = {f"{number:02}": {"head_dim": 512, "num_key_value_heads": 2} for number in (5, 11, 17, 23, 29)}
    saved = read({"model_type": "gemma4", "text_config": text | {"per_layer_config": layers}})
    shipped = read(
        {"model_type": "gemma4", "text_config": text | {"num_global_key_value_heads": 2, "global_head_dim": 512}}
    )
    assert saved.blocks == shipped.blocks
    assert Holding(saved.mixers(), Dtypes()).growth() == 5 * 2 * 512 * 2 * 2
