"""Tensor names as published checkpoints spell them, and what each says."""

import pytest

from kvplan.model import Tensor
from kvplan.weights.names import module_of

L = "model.layers.3"


@pytest.mark.parametrize(
    ("name", "place", "role", "split"),
    [
        (f"{L}.self_attn.q_proj.weight", 3, "attention", "tp"),
        (f"{L}.self_attn.kv_a_proj_with_mqa.weight_scale_inv", 3, "attention", "none"),
        (f"{L}.self_attn.q_a_proj.weight", 3, "attention", "none"),
        (f"{L}.self_attn.indexer.wq_b.weight", 3, "attention", "none"),
        (f"{L}.linear_attn.in_proj_qkvz.weight", 3, "attention", "tp"),
        (f"{L}.mamba.in_proj.weight", 3, "attention", "tp"),
        ("backbone.layers.3.mixer.in_proj.weight", 3, "attention", "tp"),
        (f"{L}.mlp.down_proj.qweight", 3, "mlp", "tp"),
        (f"{L}.mlp.gate.weight", 3, "router", "none"),
        (f"{L}.mlp.gate.e_score_correction_bias", 3, "router", "none"),
        (f"{L}.mlp.shared_expert_gate.weight", 3, "router", "none"),
        (f"{L}.block_sparse_moe.gate.weight", 3, "router", "none"),
        (f"{L}.feed_forward.router.weight", 3, "router", "none"),
        ("backbone.layers.3.mixer.gate.weight", 3, "router", "none"),
        (f"{L}.mlp.shared_experts.up_proj.weight", 3, "shared_expert", "tp"),
        (f"{L}.feed_forward.shared_expert.up_proj.weight", 3, "shared_expert", "tp"),
        (f"{L}.mlp.experts.*.up_proj.weight", 3, "expert", "ep"),
        (f"{L}.mlp.experts.gate_up_proj_blocks", 3, "expert", "ep"),
        (f"{L}.feed_forward.experts.gate_up_proj", 3, "expert", "ep"),
        ("language_model.model.layers.3.block_sparse_moe.experts.*.w1.weight_packed", 3, "expert", "ep"),
        ("layers.3.ffn.experts.*.w2.scale", 3, "expert", "ep"),
        (f"{L}.block_sparse_moe.routed_expert_down_proj.weight", 3, "mlp", "none"),
        (f"{L}.input_layernorm.weight", 3, "norm", "none"),
        (f"{L}.self_attn.q_norm.weight", 3, "norm", "none"),
        ("model.language_model.layers.3.mlp.up_proj.weight", 3, "mlp", "tp"),
        ("model.embed_tokens.weight", "first", "embedding", "tp"),
        ("language_model.model.embed_tokens.weight", "first", "embedding", "tp"),
        ("backbone.embeddings.weight", "first", "embedding", "tp"),
        ("embed.weight", "first", "embedding", "tp"),
        ("lm_head.weight", "last", "head", "tp"),
        ("language_model.lm_head.weight", "last", "head", "tp"),
        ("head.weight", "last", "head", "tp"),
        ("model.norm.weight", "last", "norm", "none"),
        ("backbone.norm_f.weight", "last", "norm", "none"),
        ("model.layers.61.eh_proj.weight", "mtp", "other", "none"),
        ("mtp.layers.0.mlp.experts.*.up_proj.weight", "mtp", "expert", "ep"),
        ("mtp.0.ffn.experts.*.w1.weight", "mtp", "expert", "ep"),
        ("vision_tower.encoder.blocks.3.wqkv.weight", "vision", "vision", "none"),
        ("model.visual.blocks.3.attn.qkv.weight", "vision", "vision", "none"),
        ("multi_modal_projector.linear_1.weight", "vision", "vision", "none"),
        ("mm_projector.proj.0.weight", "vision", "vision", "none"),
        ("blk.3.attn_q.weight", 3, "attention", "tp"), ("blk.3.ffn_up_exps.weight", 3, "expert", "ep"),
        ("blk.3.ffn_gate_inp.weight", 3, "router", "none"), ("blk.3.ffn_up_shexp.weight", 3, "shared_expert", "tp"),
        ("blk.3.ffn_norm.weight", 3, "norm", "none"), ("token_embd.weight", "first", "embedding", "tp"),
        ("output.weight", "last", "head", "tp"), ("output_norm.weight", "last", "norm", "none"),
        ("something.new", "last", "other", "none"), ("", "last", "other", "none"),
    ],
)  # fmt: skip
def test_names(name: str, place: int | str, role: str, split: str) -> None:
    module = module_of(name, depth=61)
    assert (module.place, module.role, module.split) == (place, role, split)


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "params"),
    [
        ("a.weight", "BF16", (4, 8), 32), ("a.weight", "F8_E4M3", (4, 8), 32), ("a.weight", "U8", (4, 8), 64),
        ("a.weight", "I8", (4, 8), 64), ("a.weight_packed", "U8", (4, 8), 64), ("a.weight_packed", "I32", (4, 8), 256),
        ("a.qweight", "I32", (4, 8), 256), ("experts.gate_up_proj_blocks", "U8", (2, 4, 1, 16), 256),
        ("experts.gate_up_proj_scales", "U8", (2, 4, 1), 0), ("a.weight_scale_inv", "F32", (1, 1), 0),
        ("a.weight_scale", "F8_E4M3", (4, 1), 0), ("a.weight_scale_2", "F32", (), 0), ("a.input_scale", "F32", (), 0),
        ("a.qzeros", "I32", (1, 8), 0), ("a.scales", "F16", (1, 8), 0), ("a.g_idx", "I32", (8,), 0),
        ("a.weight_shape", "I64", (2,), 0), ("w1.scale", "F8_E8M0", (4, 1), 0), ("a.bias", "BF16", (4,), 4),
    ],
)  # fmt: skip
def test_parameters(name: str, dtype: str, shape: tuple[int, ...], params: int) -> None:
    assert module_of(name, depth=1).params(Tensor(name, dtype, shape, 0)) == params
