"""Configs of tiny models that transformers_caches.py builds: few layers, published head, state and latent sizes."""

import tomllib
from pathlib import Path

PROFILES = Path(__file__).parent.parent / "profiles" / "models"
SMALL = {
    "vocab_size": 64, "vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8, "pad_token_id": 0,
    "intermediate_size": 64, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "intermediate_size_mlp": 64,
    "shared_intermediate_size": 32, "moe_shared_expert_intermediate_size": 32, "dense_intermediate_size": 64,
    "ffn_hidden_size": 64, "expert_ffn_hidden_size": 32, "num_experts": 4, "n_routed_experts": 4, "zero_expert_num": 2,
    "num_local_experts": 4, "num_experts_per_tok": 2, "num_experts_per_token": 2, "moe_topk": 2, "top_k_experts": 2,
    "experts_per_token": 2, "moe_num_experts": 4, "moe_top_k": 2, "share_expert_dim": 32,
}  # fmt: skip
DROPPED = {"quantization_config", "torch_dtype", "architectures", "compress_ratios", "expert_dtype"}
NARROW = {"hidden_size": 64}


def hybrid(mixer, *rest):
    return {"layer_types": [mixer] * 3 + list(rest)}


def gqa(model_type, heads, kv, dim, hidden=64, layers=2, **more):
    """A config of ordinary attention, from nothing."""
    sizes = {"num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim, "hidden_size": hidden}
    basic = {"model_type": model_type, "num_hidden_layers": layers, "intermediate_size": 64, "vocab_size": 64}
    return {**basic, **sizes, "max_position_embeddings": 131072, "pad_token_id": 0, **more}


SWA, FULL = "sliding_attention", "full_attention"
LLLG = {"layers": 4, "layer_types": [SWA, SWA, SWA, FULL], "sliding_window": 4096}
TWO = {"num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
KIMI = {"full_attn_layers": [4], "kda_layers": [1, 2, 3], "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4}
M3 = {
    "num_local_experts": 4, "num_experts_per_tok": 2, "dense_intermediate_size": 64,
    "shared_intermediate_size": 32, "index_n_heads": 4, "index_head_dim": 128, "index_block_size": 128,
    "index_topk_blocks": 16, "index_local_blocks": 1, "mlp_layer_types": ["dense", "sparse", "sparse"],
    "layer_types": [FULL, "minimax_m3_sparse", "minimax_m3_sparse"],
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "d_model": 1280, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 20,
    "decoder_attention_heads": 20, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 128, "vocab_size": 64,
    "max_source_positions": 1500, "max_target_positions": 448, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip
MLLAMA = {
    "model_type": "mllama", "text_config": gqa("mllama_text_model", 32, 8, 128, 4096, 3, cross_attention_layers=[1]),
    "vision_config": {"model_type": "mllama_vision_model", "image_size": 560, "patch_size": 14, "max_num_tiles": 4},
}  # fmt: skip
ZAMBA = {
    "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 1, "n_mamba_heads": 80,
    "num_mem_blocks": 1, "layers_block_type": ["mamba", "mamba", "hybrid", "mamba"], "adapter_rank": 8,
    "attention_head_dim": 160, "use_mamba_kernels": False,
}  # fmt: skip
BAMBA = {
    "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
    "mamba_expand": 2, "attn_layer_indices": [1],
}  # fmt: skip
INKLING = {
    "swa_num_attention_heads": 64, "swa_num_key_value_heads": 16, "swa_head_dim": 128, "sliding_window_size": 512,
    "conv_kernel_size": 4, "layer_types": ["hybrid_sliding", "hybrid_sliding", "hybrid"], "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32,
    "mlp_layer_types": ["dense", "sparse", "sparse"],
}  # fmt: skip
MLA = {
    "kv_lora_rank": 512, "q_lora_rank": 768, "qk_rope_head_dim": 64, "v_head_dim": 256, "qk_nope_head_dim": 192,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1,
    "mlp_layer_types": ["dense", "sparse"],
}  # fmt: skip

SHORT = (5,)
CASES = {
    # name: (profile or whole config, what else is changed, tokens of each prefill)
    "llama": ("llama-3.1-8b", {"num_hidden_layers": 2}, SHORT),
    "qwen2": ("qwen2.5-7b", {"num_hidden_layers": 2}, SHORT),
    "qwen3": ("qwen3-8b", {"num_hidden_layers": 2, **NARROW}, SHORT),
    "qwen3_moe": ("qwen3-30b-a3b", {"num_hidden_layers": 2, **NARROW}, SHORT),
    "qwen3_vl_text": ("qwen3-vl-8b", {"num_hidden_layers": 2, **NARROW}, SHORT),
    "qwen3_vl_moe_text": ("qwen3-vl-235b-a22b", {"num_hidden_layers": 2, **NARROW}, SHORT),
    "qwen2_moe": (gqa("qwen2_moe", 16, 16, 128, 2048, shared_expert_intermediate_size=32, **MOE), {}, SHORT),
    "qwen3_next": ("qwen3-next", {"num_hidden_layers": 4, **NARROW}, (2, 70)),
    "qwen3_5_text": ("qwen3.5-4b", {"num_hidden_layers": 4, **NARROW}, (2, 5)),
    "qwen3_5_moe_text": ("qwen3.5-35b-a3b", {"num_hidden_layers": 4, **NARROW}, (2, 5)),
    "gemma": (gqa("gemma", 16, 16, 256), {}, SHORT),
    "gemma2": (gqa("gemma2", 4, 4, 256, sliding_window=4096, layer_types=[SWA, FULL]), {}, (5, 4093, 4099)),
    "gemma3_text": ("gemma-3-270m", {"num_hidden_layers": 6}, (5, 509, 510, 514)),
    "gemma3n_text": ("gemma-3n-e2b", NARROW, (5, 514)),
    "gemma4_text": ("gemma-4-31b", {"num_hidden_layers": 6, **NARROW}, (5, 1026)),
    "gemma4_text (shared)": ("gemma-4-e2b", NARROW, (5, 514)),
    "gemma4_text (moe)": ("gemma-4-26b-a4b", {"num_hidden_layers": 6, **NARROW}, SHORT),
    "gemma4_unified_text": ("gemma-4-12b", {"num_hidden_layers": 6, **NARROW}, SHORT),
    "gpt_oss": ("gpt-oss-20b", {"num_hidden_layers": 4, **NARROW}, (5, 125, 126, 130)),
    "glm4": (gqa("glm4", 32, 2, 128), {}, SHORT),
    "glm4_moe": ("glm-4.5-air", {"num_hidden_layers": 2, **NARROW}, SHORT),
    "glm4_moe_lite": (gqa("glm4_moe_lite", 20, 20, 64, **MLA), {}, SHORT),
    "glm_moe_dsa": ("glm-5.1", {"num_hidden_layers": 4, **NARROW}, SHORT),
    "glm_moe_dsa (shared index)": ("glm-5.2", {"num_hidden_layers": 8, **NARROW}, SHORT),
    "deepseek_v2": ("deepseek-v2-lite", {"num_hidden_layers": 2, **NARROW}, SHORT),
    "deepseek_v3": ("deepseek-v3", {"num_hidden_layers": 2, "n_group": 1, "topk_group": 1, **NARROW}, SHORT),
    "deepseek_v32": ("deepseek-v3.2", {"num_hidden_layers": 2, "n_group": 1, "topk_group": 1, **NARROW}, SHORT),
    "deepseek_v4": (
        "deepseek-v4-flash",
        {"num_hidden_layers": 5, "compress_ratios": [0, 0, 4, 128, 4], "num_attention_heads": 8, **NARROW},
        (1, 5, 131),
    ),
    "mistral4": ("mistral-large-3", {"model_type": "mistral4", "num_hidden_layers": 2, **NARROW}, SHORT),
    "longcat_flash": ("longcat-flash", {"num_layers": 2, **NARROW}, SHORT),
    "kimi_linear": ("kimi-linear", {"num_hidden_layers": 4, "linear_attn_config": KIMI, **NARROW}, (2, 6)),
    "bailing_hybrid": (
        "ling-3.0-flash",
        {"num_hidden_layers": 6, "num_expert_group": 1, "topk_group": 1, **NARROW},
        (2, 6),
    ),
    "falcon_h1": ("falcon-h1-1.5b", {"num_hidden_layers": 2}, (2, 6)),
    "falcon_mamba": ("falcon-mamba-7b", {"num_hidden_layers": 2, "intermediate_size": 8192}, (2, 6)),
    "mamba": (
        {
            "model_type": "mamba",
            "num_hidden_layers": 2,
            "hidden_size": 768,
            "state_size": 16,
            "expand": 2,
            "conv_kernel": 4,
            "time_step_rank": 48,
            "vocab_size": 64,
            "pad_token_id": 0,
        },
        {},
        (2, 6),
    ),
    "mamba2": ("mamba-codestral-7b", {"num_hidden_layers": 2}, (2, 6)),
    "bamba": (gqa("bamba", 32, 8, 128, 4096, **BAMBA), {}, (2, 6)),
    "granite": (gqa("granite", 32, 8, 128, 4096), {}, SHORT),
    "granitemoehybrid": ("granite-4.0-h-tiny", {"num_hidden_layers": 6}, (2, 6)),
    "jamba": ("jamba-v0.1", {"num_hidden_layers": 5, "hidden_size": 4096}, (2, 6)),
    "zamba2": (gqa("zamba2", 32, 32, 160, 2560, layers=4, **ZAMBA), {}, (2, 6)),
    "nemotron_h": (
        "nemotron-3-nano-30b-a3b",
        {"num_hidden_layers": 6, "hybrid_override_pattern": "MEM*E-", **NARROW},
        (2, 6),
    ),
    "lfm2": ("lfm2-1.2b", {"num_hidden_layers": 4}, (1, 5)),
    "lfm2_moe": (
        gqa("lfm2_moe", 32, 8, 64, 2048, 4, conv_L_cache=3, num_dense_layers=1, **MOE, **hybrid("conv", FULL)),
        {},
        (1, 5),
    ),
    "minimax": (
        "minimax-text-01",
        {
            "model_type": "minimax",
            "num_hidden_layers": 4,
            "attn_type_list": None,
            **NARROW,
            **hybrid("linear_attention", FULL),
        },
        SHORT,
    ),
    "minimax_m2": ("minimax-m2.5", {"num_hidden_layers": 2, **NARROW}, SHORT),
    "minimax_m3_vl_text": (gqa("minimax_m3_vl_text", 64, 4, 128, layers=3, **M3), {}, SHORT),
    "mimo_v2_flash": (
        "mimo-v2-flash",
        {"num_hidden_layers": 6, "topk_method": None, "attention_chunk_size": None, **NARROW},
        (5, 126, 131),
    ),
    "mistral": (gqa("mistral", 8, 8, 128, sliding_window=4096), {}, (5, 4099)),
    "mixtral": ("mixtral-8x7b", {"num_hidden_layers": 2}, SHORT),
    "ministral3": ("ministral-3-3b", {"num_hidden_layers": 2, **NARROW}, SHORT),
    "olmo2": (gqa("olmo2", 32, 32, 128, 4096), {}, SHORT),
    "olmo3": ("olmo-3-7b", {"num_hidden_layers": 4, **NARROW}, (5, 4099)),
    "olmo_hybrid": ("olmo-hybrid-7b", {"num_hidden_layers": 4, **NARROW}, (2, 6)),
    "phi3": ("phi-4", {"num_hidden_layers": 2}, SHORT),
    "hunyuan_v1_dense": ("hunyuan-7b", {"num_hidden_layers": 2, **NARROW}, SHORT),
    "hunyuan_v1_moe": ("hunyuan-a13b", {"num_hidden_layers": 2, **NARROW}, SHORT),
    "hy_v3": ("hy3", {"num_hidden_layers": 2, **NARROW}, SHORT),
    "afmoe": ("trinity-mini", {"num_hidden_layers": 4, **NARROW}, (5, 2050)),
    "step3p5": ("step-3.5-flash", {"num_hidden_layers": 4, "moe_layers_enum": "3", **NARROW}, (5, 514)),
    "cohere2": (gqa("cohere2", 8, 8, 128, **LLLG), {}, (5, 4099)),
    "exaone4": (gqa("exaone4", 8, 8, 128, **LLLG), {}, (5, 4099)),
    "smollm3": (gqa("smollm3", 16, 4, 128, 2048), {}, SHORT),
    "seed_oss": (gqa("seed_oss", 80, 8, 128), {}, SHORT),
    "arcee": (gqa("arcee", 20, 4, 128, 2560), {}, SHORT),
    "cohere": (gqa("cohere", 64, 8, 128, 8192), {}, SHORT),
    "dots1": (
        gqa("dots1", 32, 32, 128, n_routed_experts=4, n_shared_experts=1, first_k_dense_replace=1, **TWO),
        {},
        SHORT,
    ),
    "ernie4_5": (gqa("ernie4_5", 16, 2, 128), {}, SHORT),
    "ernie4_5_moe": (
        gqa("ernie4_5_moe", 20, 4, 128, 2560, moe_num_experts=4, moe_k=2, moe_intermediate_size=32),
        {},
        SHORT,
    ),
    "nemotron": (gqa("nemotron", 48, 8, 128), {}, SHORT),
    "olmoe": (gqa("olmoe", 16, 16, 128, 2048, num_experts=4, num_experts_per_tok=2), {}, SHORT),
    "phimoe": (gqa("phimoe", 32, 8, 128, 4096, num_local_experts=4, num_experts_per_tok=2), {}, SHORT),
    "qwen2_5_vl_text": (gqa("qwen2_5_vl_text", 28, 4, 128, 3584), {}, SHORT),
    "inkling_text": (gqa("inkling_text", 64, 8, 128, 512, layers=3, **INKLING), {}, (2, 514)),
    "llama4_text": ("llama-4-scout", {"num_hidden_layers": 4, "num_attention_heads": 8, **NARROW}, (5, 8195)),
    "mllama": (MLLAMA, {}, SHORT),
    "whisper": (WHISPER, {}, SHORT),
}


def reduced(base, patch):
    """The config of a case: a profile's own, with small vocabulary, MLP and experts, cut to the layers of `patch`."""
    if isinstance(base, dict):
        return {**base, "dtype": "bfloat16"}
    whole = tomllib.loads((PROFILES / f"{base}.toml").read_text())["config"]
    config, layers = whole.get("text_config") or whole, patch.get("num_hidden_layers")
    out = {}
    for key, value in config.items():
        if isinstance(value, list) and layers and len(value) > layers:
            value = value[:layers]
        if key in SMALL:
            value = [SMALL[key]] * len(value) if isinstance(value, list) else SMALL[key]
        out[key] = value
    changed = {"pad_token_id": 0} | {key: value for key, value in out.items() if key not in DROPPED} | patch
    return {key: value for key, value in changed.items() if value is not None} | {"dtype": "bfloat16"}
