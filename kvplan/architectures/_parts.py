"""Weights that many families share. Shapes are (out, in), as checkpoints store them."""

from kvplan.architectures._config import Config
from kvplan.model import Role, Split, Weight


def norm(name: str, width: int) -> Weight:
    return Weight(name, "norm", (width,), "none")


def vector(name: str, width: int, role: Role = "attention", split: Split = "none") -> Weight:
    """A bias, scale or inner norm; it belongs to its module, so that "norm" means the norms of the blocks alone."""
    return Weight(name, role, (width,), split)


def embeddings(cfg: Config, hidden: int, *, tied_default: bool = False) -> tuple[Weight, ...]:
    """Token embedding, output head unless tied, and the final norm."""
    vocab = cfg.integer("vocab_size")
    table = Weight("embed_tokens", "embedding", (vocab, hidden))
    last = norm("norm", hidden)
    if cfg.flag("tie_word_embeddings", tied_default):
        return table, last
    return table, last, Weight("lm_head", "head", (vocab, hidden))


def gqa(
    hidden: int, heads: int, kv_heads: int, k_dim: int, v_dim: int | None = None, *,
    qkv_bias: bool = False, o_bias: bool = False, head_norm: bool = False, gate: bool = False,
    prefix: str = "self_attn",
) -> tuple[Weight, ...]:  # fmt: skip
    """Projections of ordinary attention. `gate` doubles q (an output gate); `head_norm` is q/k norm per head."""
    v_dim = k_dim if v_dim is None else v_dim
    q_rows = heads * k_dim * (2 if gate else 1)
    weights = [
        Weight(f"{prefix}.q_proj", "attention", (q_rows, hidden)),
        Weight(f"{prefix}.k_proj", "attention", (kv_heads * k_dim, hidden), heads=kv_heads),
        Weight(f"{prefix}.v_proj", "attention", (kv_heads * v_dim, hidden), heads=kv_heads),
        Weight(f"{prefix}.o_proj", "attention", (hidden, heads * v_dim)),
    ]
    if qkv_bias:
        weights += [
            Weight(f"{prefix}.q_proj.bias", "attention", (q_rows,)),
            Weight(f"{prefix}.k_proj.bias", "attention", (kv_heads * k_dim,), heads=kv_heads),
            Weight(f"{prefix}.v_proj.bias", "attention", (kv_heads * v_dim,), heads=kv_heads),
        ]
    if o_bias:
        weights.append(vector(f"{prefix}.o_proj.bias", hidden))
    if head_norm:
        weights += [vector(f"{prefix}.q_norm", k_dim), vector(f"{prefix}.k_norm", k_dim)]
    return tuple(weights)


def mla(
    hidden: int, heads: int, q_rank: int | None, kv_rank: int, nope: int, rope: int, v_dim: int, *,
    prefix: str = "self_attn",
) -> tuple[Weight, ...]:  # fmt: skip
    """Projections of latent attention. The down-projections have one copy a rank, the up-projections are split."""
    query = (
        (Weight(f"{prefix}.q_proj", "attention", (heads * (nope + rope), hidden)),)
        if q_rank is None
        else (
            Weight(f"{prefix}.q_a_proj", "attention", (q_rank, hidden), "none"),
            vector(f"{prefix}.q_a_layernorm", q_rank),
            Weight(f"{prefix}.q_b_proj", "attention", (heads * (nope + rope), q_rank)),
        )
    )
    return (
        *query,
        Weight(f"{prefix}.kv_a_proj_with_mqa", "attention", (kv_rank + rope, hidden), "none"),
        vector(f"{prefix}.kv_a_layernorm", kv_rank),
        Weight(f"{prefix}.kv_b_proj", "attention", (heads * (nope + v_dim), kv_rank)),
        Weight(f"{prefix}.o_proj", "attention", (hidden, heads * v_dim)),
    )


def mlp(hidden: int, inner: int, *, gated: bool = True, prefix: str = "mlp") -> tuple[Weight, ...]:
    """A dense feed-forward block; `gated` ones have a gate and an up projection."""
    up = [Weight(f"{prefix}.up_proj", "mlp", (inner, hidden))]
    if gated:
        up.append(Weight(f"{prefix}.gate_proj", "mlp", (inner, hidden)))
    return (*up, Weight(f"{prefix}.down_proj", "mlp", (hidden, inner)))


def moe(
    hidden: int, inner: int, experts: int, *, shared_inner: int = 0, router_bias: bool = False,
    gated: bool = True, width: int | None = None, prefix: str = "mlp", shared_name: str = "shared_experts",
    router_name: str = "gate",
) -> tuple[Weight, ...]:  # fmt: skip
    """Router, routed experts of `inner` (running at `width`, default hidden) and a shared expert of `shared_inner`."""
    width = hidden if width is None else width
    ups = ("up_proj", "gate_proj") if gated else ("up_proj",)
    weights = [Weight(f"{prefix}.{router_name}", "router", (experts, hidden), "none")]
    if router_bias:
        weights.append(vector(f"{prefix}.{router_name}.e_score_correction_bias", experts, "router"))
    weights += [Weight(f"{prefix}.experts.{up}", "expert", (inner, width), "ep", experts) for up in ups]
    weights.append(Weight(f"{prefix}.experts.down_proj", "expert", (width, inner), "ep", experts))
    if shared_inner:
        weights += [Weight(f"{prefix}.{shared_name}.{up}", "shared_expert", (shared_inner, hidden)) for up in ups]
        weights.append(Weight(f"{prefix}.{shared_name}.down_proj", "shared_expert", (hidden, shared_inner)))
    return tuple(weights)


def block_norms(hidden: int, *names: str) -> tuple[Weight, ...]:
    """The norms of one block; the two of a pre-norm block unless named otherwise."""
    return tuple(norm(name, hidden) for name in names or ("input_layernorm", "post_attention_layernorm"))
