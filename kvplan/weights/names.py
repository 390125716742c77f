"""What a tensor's name in a checkpoint says: its block, its role, and how tensor parallelism treats it."""

import re
from dataclasses import dataclass
from math import prod

from kvplan.model import Split, Tensor

_BLOCK = re.compile(r"(?:^|\.)(?:layers|h|blocks|blk|layer)\.(\d+)\.")
_MTP = re.compile(r"(?:^|\.)(?:mtp|nextn|draft)(?:\.|_|$)")
_VISION = re.compile(r"vision|visual|image|mm_projector|multi_modal|merger|audio|patch_embed|speech|^v\.|^mm\.|^a\.")
_STORAGE = re.compile(
    r"[._](?:weight_packed|weight_scale_inv|weight_scale_2|weight_scale|weight_global_scale|weight_shape"
    r"|weight_zero_point|input_scale|input_global_scale|qweight|qzeros|scales|g_idx|weight_g_idx|blocks|weight|scale"
    r"|k_scale|v_scale|kv_scale|q_scale|absmax|quant_map|nested_absmax|nested_quant_map)$"
)
_NOT_PARAMS = re.compile(
    r"(?:scale|scales|scale_inv|scale_2|global_scale|weight_shape|zero_point|qzeros|g_idx|absmax|quant_map)$"
)
_PATTERNS: tuple[tuple[str, str, Split], ...] = (
    (r"shared_expert_gate|shared_experts?\.gate$|ffn_gate_inp_shexp", "router", "none"),
    (r"shared_expert|shared_mlp|_shexp", "shared_expert", "tp"),
    (r"\.experts\b|_exps\b|block_sparse_moe\.(?:input|output)_linear", "expert", "ep"),
    (r"e_score_correction_bias|tid2eid|(?:mlp|moe|ffn|block_sparse_moe|feed_forward|mixer)\.(?:gate|router)\b"
     r"|router\b|ffn_gate_inp|exp_probs", "router", "none"),
    (r"latent_down|latent_up|routed_expert_\w+_proj|latent_proj", "mlp", "none"),
    (r"embed_tokens|word_embeddings|\bwte\b|^embed\b|embeddings\b|token_embd|embed_in\b", "embedding", "tp"),
    (r"lm_head|^output\.?$|embed_out|^head\b|\.lm_head", "head", "tp"),
    (r"q_a_proj|kv_a_proj|fused_qkv_a|wq_a|wkv\b|f_a_proj|g_a_proj|indexer|index_|attn_q_a|attn_kv_a"
     r"|compressor|conv_?state", "attention", "none"),
    (r"(?:layer)?norm\b|_norm\b|norm_?[0-9f]?$|ln_?[0-9f]|layernorm", "norm", "none"),
    (r"attn|attention|mixer|mamba|ssm|conv|linear_attn|\bdelta|time_mix|\battn_", "attention", "tp"),
    (r"mlp|feed_forward|ffn|\bfc[12]|(?:gate|up|down)_proj", "mlp", "tp"),
)  # fmt: skip
_ROLES = tuple((re.compile(pattern), role, split) for pattern, role, split in _PATTERNS)


@dataclass(frozen=True, slots=True)
class Module:
    """The module that a tensor belongs to. `name` is its path inside the block, storage suffix removed."""

    name: str
    place: int | str
    role: str
    split: Split
    suffix: str

    @property
    def key_value(self) -> bool:
        """True for key and value projections, which are replicated beyond the KV heads."""
        return self.name.endswith(("k_proj", "v_proj", "attn_k", "attn_v"))

    def params(self, tensor: Tensor, packed_bits: int = 4) -> int:
        """Parameters in one tensor: packed elements of `packed_bits` counted, scales and indices not."""
        elements = prod(tensor.shape)
        if _NOT_PARAMS.search(self.suffix):
            return 0
        if self.suffix == "qweight" or (self.suffix == "weight_packed" and tensor.dtype == "I32"):
            return elements * 32 // packed_bits
        if self.suffix in ("weight_packed", "blocks") or (tensor.dtype in ("U8", "I8") and self.suffix == "weight"):
            return elements * 2
        return elements


def module_of(name: str, depth: int) -> Module:
    """Place, role and split of the tensor `name` in a model of `depth` decoder blocks."""
    stored = _STORAGE.search(name)
    path = name[: stored.start()] if stored else name
    suffix = name[stored.start() + 1 :] if stored else ""
    inner = path.replace("language_model.", "").replace(".experts.*", ".experts")
    block = _BLOCK.search(inner)
    local = inner[block.end() :] if block else inner.removeprefix("model.").removeprefix("backbone.")
    if _VISION.search(inner):
        return Module(local, "vision", "vision", "none", suffix)
    role, split = _role(local)
    number = int(block[1]) if block and len(block[1]) < 8 else None
    if _MTP.search(inner) or (number is not None and number >= depth):
        return Module(local, "mtp", role, split, suffix)
    if number is not None:
        return Module(local, number, role, split, suffix)
    return Module(local, "first" if role == "embedding" else "last", role, split, suffix)


def _role(local: str) -> tuple[str, Split]:
    for pattern, role, split in _ROLES:
        if pattern.search(local):
            return role, split
    return "other", "none"
