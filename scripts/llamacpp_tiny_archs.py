"""Tiny models of the architectures that llamacpp_tiny_models.py boots: few layers, published head and state sizes."""

import gguf
import numpy as np

VOCAB, FF = 64, 32
KDA = {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4}
GDN = {"key_heads": 16, "value_heads": 32, "key_dim": 128, "value_dim": 128, "conv_kernel": 4}
MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
NOPE, V_HEAD = 128, 128


class Tiny:
    """One model: metadata under its architecture's prefix, tensors by name, layers as kvplan names them."""

    def __init__(self, arch, model_type, embd, **metadata):
        self.arch, self.model_type, self.embd = arch, model_type, embd
        self.metadata = {"context_length": 131072, "embedding_length": embd, "vocab_size": VOCAB} | metadata
        self.metadata.setdefault("feed_forward_length", FF)
        self.shapes, self.layers = {}, []
        self.add("token_embd.weight", embd, VOCAB)
        self.add("output_norm.weight", embd)
        self.add("output.weight", embd, VOCAB)

    def add(self, name, *shape):
        """A tensor by its ggml shape, fastest axis first."""
        self.shapes[name] = shape

    def blk(self, **named):
        """Tensors of the next block: `attn_q=(in, out)`; a trailing _b means bias, a trailing _ means no suffix."""
        number = len(self.layers)
        for name, shape in named.items():
            suffix = ".weight"
            if name.endswith("__b"):
                name, suffix = name[:-3], ".bias"
            elif name.endswith("_"):
                name, suffix = name[:-1], ""
            self.add(f"blk.{number}.{name.replace('__', '.')}{suffix}", *shape)

    def layer(self, *kinds):
        """Close the block: what it keeps, as [kind, sizes]; nothing for a block without a mixer."""
        self.layers.append(list(kinds))

    def dense(self):
        self.blk(ffn_norm=(self.embd,), ffn_gate=(self.embd, FF), ffn_down=(FF, self.embd), ffn_up=(self.embd, FF))

    def experts(self, count=2, shared=True, bias=True, norm=True):
        embd = self.embd
        if norm:
            self.blk(ffn_norm=(embd,))
        self.blk(
            ffn_gate_inp=(embd, count), ffn_gate_exps=(embd, FF, count),
            ffn_down_exps=(FF, embd, count), ffn_up_exps=(embd, FF, count),
        )  # fmt: skip
        if bias:
            self.blk(exp_probs_b__b=(count,))
        if shared:
            self.blk(ffn_gate_shexp=(embd, FF), ffn_down_shexp=(FF, embd), ffn_up_shexp=(embd, FF))

    def attention(self, heads, kv_heads, width, gate=1):
        embd = self.embd
        self.blk(
            attn_q=(embd, heads * width * gate), attn_k=(embd, kv_heads * width), attn_v=(embd, kv_heads * width),
            attn_output=(heads * width, embd),
        )  # fmt: skip

    def latent(self, heads, q_lora=0):
        embd, rank, rope = self.embd, MLA["kv_lora_rank"], MLA["qk_rope_head_dim"]
        if q_lora:
            self.blk(attn_q_a=(embd, q_lora), attn_q_a_norm=(q_lora,), attn_q_b=(q_lora, heads * (NOPE + rope)))
        else:
            self.blk(attn_q=(embd, heads * (NOPE + rope)))
        self.blk(
            attn_kv_a_norm=(rank,), attn_kv_a_mqa=(embd, rank + rope), attn_k_b=(NOPE, rank, heads),
            attn_v_b=(rank, V_HEAD, heads), attn_output=(heads * V_HEAD, embd),
        )  # fmt: skip

    def mamba2(self, heads, width, state, groups, kernel=4):
        embd, inner = self.embd, heads * width
        conv = inner + 2 * groups * state
        self.blk(
            ssm_in=(embd, inner + conv + heads), ssm_conv1d=(kernel, conv), ssm_conv1d__b=(conv,), ssm_dt__b=(heads,),
            ssm_a_=(1, heads), ssm_d_=(1, heads), ssm_norm=(inner // groups, groups), ssm_out=(inner, embd),
        )  # fmt: skip
        sizes = {"num_heads": heads, "head_dim": width, "d_state": state, "n_groups": groups, "d_conv": kernel}
        return ["mamba2", sizes]

    def write(self, path):
        writer, draw = gguf.GGUFWriter(path, self.arch), np.random.default_rng(0)
        writer.add_string("tokenizer.ggml.model", "none")
        for key, value in (self.metadata | {"block_count": len(self.layers)}).items():
            name = f"{self.arch}.{key}"
            if isinstance(value, list):
                writer.add_array(name, value)
            elif isinstance(value, float):
                writer.add_float32(name, value)
            elif isinstance(value, bool):
                writer.add_bool(name, value)
            else:
                writer.add_uint32(name, value)
        for name, shape in self.shapes.items():
            kind = np.float16 if len(shape) > 1 and "conv" not in name and "ssm_a" not in name else np.float32
            writer.add_tensor(name, draw.standard_normal(shape[::-1], dtype=np.float32).astype(kind))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def _ssm(inner, state, heads, groups=None, kernel=4):
    keys = {
        "ssm.conv_kernel": kernel, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    return keys if groups is None else keys | {"ssm.group_count": groups}


def _moe(**more):
    keys = {"expert_count": 2, "expert_used_count": 1, "expert_feed_forward_length": FF, "expert_shared_count": 1}
    return keys | {"expert_gating_func": 2, "attention.layer_norm_rms_epsilon": 1e-5} | more


def _mla_keys(q_lora=0):
    keys = {
        "attention.kv_lora_rank": 512, "attention.key_length": 576, "attention.value_length": 512,
        "attention.key_length_mla": NOPE + 64, "attention.value_length_mla": V_HEAD, "rope.dimension_count": 64,
    }  # fmt: skip
    return keys | {"attention.q_lora_rank": q_lora} if q_lora else keys


def kimi(arch, heads, k3):
    kv = [0, 0, 0, 1, 0, 0, 0, 1] if k3 else [0, 0, 0, 0, 0, 0, 0, 1]  # a narrow Kimi Linear builds so only
    keys = _moe(**_mla_keys(1536 if k3 else 0), leading_dense_block_count=1)
    keys |= {"attention.head_count": heads, "attention.head_count_kv": kv, "ssm.conv_kernel": 4, "kda.head_dim": 128}
    if k3:
        keys |= {"attn_res.block_size": 4, "activation.situ_beta": 4.0, "activation.situ_linear_beta": 25.0}
    tiny = Tiny(arch, "kimi_k3" if k3 else "kimi_linear", 64, **keys)
    if k3:
        tiny.add("output_res_score.weight", 64)
    inner = heads * 128
    for number, latent in enumerate(kv):
        tiny.blk(attn_norm=(64,))
        if k3:
            tiny.blk(attn_res_score=(64,), ffn_res_score=(64,))
        tiny.dense() if number == 0 else tiny.experts()
        if latent:
            tiny.latent(heads, 1536 if k3 else 0)
            tiny.layer(["mla", MLA])
            continue
        tiny.blk(
            ssm_conv1d_q=(4, 1, inner), ssm_conv1d_k=(4, 1, inner), ssm_conv1d_v=(4, 1, inner), attn_q=(64, inner),
            attn_k=(64, inner), attn_v=(64, inner), ssm_f_a=(64, 128), ssm_f_b=(128, inner), ssm_beta=(64, heads),
            ssm_dt__b=(inner,), ssm_norm=(128,), attn_output=(inner, 64), ssm_a_=(heads,) if k3 else (1, heads),
        )  # fmt: skip
        tiny.blk(ssm_g=(64, inner)) if k3 else tiny.blk(ssm_g_a=(64, 128), ssm_g_b=(128, inner))
        tiny.layer(["kda", KDA | {"num_heads": heads}])
    return tiny


def qwen3next():
    keys = _moe(**_ssm(4096, 128, 32, 16), expert_shared_feed_forward_length=FF, full_attention_interval=4)
    keys |= {"attention.head_count": 16, "attention.head_count_kv": 2, "attention.key_length": 256}
    tiny = Tiny("qwen3next", "qwen3_next", 64, **keys, **{"attention.value_length": 256, "rope.dimension_count": 64})
    for number in range(8):
        tiny.blk(attn_norm=(64,), post_attention_norm=(64,), ffn_gate_inp_shexp=(64,))
        tiny.experts(bias=False, norm=False)
        if (number + 1) % 4 == 0:
            tiny.attention(16, 2, 256, gate=2)
            tiny.blk(attn_q_norm=(256,), attn_k_norm=(256,))
            tiny.layer(["full", {"kv_heads": 2, "k_dim": 256, "v_dim": 256}])
            continue
        tiny.blk(
            attn_qkv=(64, 8192), attn_gate=(64, 4096), ssm_conv1d=(4, 8192), ssm_dt__b=(32,), ssm_a_=(32,),
            ssm_ba=(64, 64), ssm_norm=(128,), ssm_out=(4096, 64),
        )  # fmt: skip
        tiny.layer(["gdn", GDN])
    return tiny


def granite_hybrid():
    kv = [0, 0, 0, 0, 0, 4, 0, 0]
    keys = _ssm(3072, 128, 48, 1) | {"attention.head_count": 12, "attention.head_count_kv": kv}
    tiny = Tiny("granitehybrid", "granitemoehybrid", 1536, **keys, **{"rope.dimension_count": 128})
    for heads in kv:
        tiny.blk(attn_norm=(1536,))
        tiny.dense()
        if heads:
            tiny.attention(12, heads, 128)
            tiny.layer(["full", {"kv_heads": heads, "k_dim": 128, "v_dim": 128}])
        else:
            tiny.layer(tiny.mamba2(48, 64, 128, 1))
    return tiny


def falcon_h1():
    keys = _ssm(3072, 256, 48, 1) | {"attention.head_count": 8, "attention.head_count_kv": 2}
    keys |= {"attention.key_length": 128, "attention.value_length": 128}
    tiny = Tiny("falcon-h1", "falcon_h1", 64, **keys)
    for _ in range(4):
        tiny.blk(attn_norm=(64,))
        tiny.dense()
        tiny.blk(ffn_norm_=(64,))
        tiny.attention(8, 2, 128)
        tiny.layer(["full", {"kv_heads": 2, "k_dim": 128, "v_dim": 128}], tiny.mamba2(48, 64, 256, 1))
        del tiny.shapes[f"blk.{len(tiny.layers) - 1}.ffn_norm.weight"]
    return tiny


def nemotron_h():
    pattern = "MFMFMAF"
    keys = _ssm(10240, 128, 128, 8) | {"attention.head_count": 40, "attention.layer_norm_epsilon": 1e-5}
    keys |= {"attention.head_count_kv": [8 if kind == "A" else 0 for kind in pattern]}
    keys |= {"feed_forward_length": [FF if kind == "F" else 0 for kind in pattern]}
    keys |= {"attention.key_length": 128, "attention.value_length": 128}
    tiny = Tiny("nemotron_h", "nemotron_h", 64, **keys)
    for kind in pattern:
        tiny.blk(attn_norm=(64,))
        if kind == "M":
            tiny.layer(tiny.mamba2(128, 80, 128, 8))
        elif kind == "A":
            tiny.attention(40, 8, 128)
            tiny.layer(["full", {"kv_heads": 8, "k_dim": 128, "v_dim": 128}])
        else:
            tiny.blk(ffn_down=(FF, 64), ffn_up=(64, FF))
            tiny.layer()
    return tiny


def jamba():
    kv = [0, 0, 0, 8, 0, 0]
    embd, inner, state, rank = 4096, 8192, 16, 256
    keys = _ssm(inner, state, rank) | {"attention.head_count": 32, "attention.head_count_kv": kv}
    tiny = Tiny("jamba", "jamba", embd, **keys)
    for heads in kv:
        tiny.blk(attn_norm=(embd,))
        tiny.dense()
        if heads:
            tiny.attention(32, heads, 128)
            tiny.layer(["full", {"kv_heads": heads, "k_dim": 128, "v_dim": 128}])
            continue
        tiny.blk(
            ssm_in=(embd, 2 * inner), ssm_conv1d=(4, inner), ssm_conv1d__b=(inner,), ssm_x=(inner, rank + 2 * state),
            ssm_dt_norm=(rank,), ssm_dt=(rank, inner), ssm_dt__b=(inner,), ssm_b_norm=(state,), ssm_c_norm=(state,),
            ssm_a_=(state, inner), ssm_d_=(inner,), ssm_out=(inner, embd),
        )  # fmt: skip
        tiny.layer(["mamba1", {"d_inner": inner, "d_state": state, "d_conv": 4}])
    return tiny


def deepseek(arch, sparse):
    keys = _moe(**_mla_keys(1536), leading_dense_block_count=1)
    keys |= {"attention.head_count": 16, "attention.head_count_kv": 1}
    if sparse:
        keys |= {"attention.indexer.head_count": 8, "attention.indexer.key_length": 128, "attention.indexer.top_k": 64}
    tiny = Tiny(arch, "deepseek_v32" if sparse else "deepseek_v3", 64, **keys)
    for number in range(4):
        tiny.blk(attn_norm=(64,))
        tiny.dense() if number == 0 else tiny.experts()
        tiny.latent(16, 1536)
        if not sparse:
            tiny.layer(["mla", MLA])
            continue
        tiny.blk(
            indexer__k_norm=(128,), indexer__k_norm__b=(128,), indexer__proj=(64, 8), indexer__attn_k=(64, 128),
            indexer__attn_q_b=(1536, 8 * 128),
        )  # fmt: skip
        tiny.layer(["dsa", MLA | {"index_head_dim": 128, "index_topk": 64}])
    return tiny


def gpt_oss():
    keys = _moe(**{"attention.sliding_window": 128, "attention.head_count": 64, "attention.head_count_kv": 8})
    keys |= {"attention.key_length": 64, "attention.value_length": 64}
    tiny = Tiny("gpt-oss", "gpt_oss", 64, **keys)
    for number in range(6):
        tiny.blk(attn_norm=(64,), post_attention_norm=(64,), attn_sinks=(64,), attn_output__b=(64,))
        tiny.experts(shared=False, bias=False, norm=False)
        tiny.blk(ffn_gate_inp__b=(2,), ffn_gate_exps__b=(FF, 2), ffn_down_exps__b=(64, 2), ffn_up_exps__b=(FF, 2))
        tiny.attention(64, 8, 64)
        sizes = {"kv_heads": 8, "k_dim": 64, "v_dim": 64}
        tiny.layer(["swa", sizes | {"window": 128}] if number % 2 == 0 else ["full", sizes])
    return tiny


def lfm2():
    kv = [0, 0, 8, 0, 8, 0]
    keys = {"attention.head_count": 32, "attention.head_count_kv": kv, "shortconv.l_cache": 3}
    tiny = Tiny("lfm2", "lfm2", 2048, **keys, **{"attention.layer_norm_rms_epsilon": 1e-5})
    tiny.add("token_embd_norm.weight", 2048)
    del tiny.shapes["output_norm.weight"]
    for heads in kv:
        tiny.blk(attn_norm=(2048,))
        tiny.dense()
        if heads:
            tiny.attention(32, heads, 64)
            tiny.blk(attn_q_norm=(64,), attn_k_norm=(64,))
            tiny.layer(["full", {"kv_heads": heads, "k_dim": 64, "v_dim": 64}])
        else:
            tiny.blk(shortconv__conv=(3, 2048), shortconv__in_proj=(2048, 6144), shortconv__out_proj=(2048, 2048))
            tiny.layer(["short_conv", {"width": 2048, "kernel": 3}])
    return tiny


MODELS = {
    "kimi-linear": lambda: kimi("kimi-linear", 32, False), "kimi-k3": lambda: kimi("kimi-k3", 96, True),
    "qwen3next": qwen3next, "granitehybrid": granite_hybrid, "falcon-h1": falcon_h1, "nemotron_h": nemotron_h,
    "jamba": jamba, "deepseek2": lambda: deepseek("deepseek2", False),
    "deepseek32": lambda: deepseek("deepseek32", True), "gpt-oss": gpt_oss, "lfm2": lfm2,
}  # fmt: skip
