"""Weights of recurrent mixers that several families share, and the state dtype a config may ask for."""

from kvplan.architectures._config import Config
from kvplan.architectures._parts import vector
from kvplan.dtypes import STATE_FORMATS, canonical
from kvplan.layers.mamba import Mamba1, Mamba2
from kvplan.model import Weight


def state_dtype(cfg: Config) -> str | None:
    """What the config asks the recurrent state to be kept in; None where it leaves that to the engine."""
    key = "mamba_ssm_dtype" if cfg.has("mamba_ssm_dtype") else "mamba_ssm_cache_dtype"
    cfg.ignore("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    if not cfg.has(key):
        return None
    short = canonical(cfg.text(key))
    if short not in STATE_FORMATS:
        raise cfg.fail(key, f"{short[:40]!r} is not a state dtype; use one of {', '.join(STATE_FORMATS)}")
    return None if short == "auto" else short


def mamba2_layer(cfg: Config) -> Mamba2:
    """The Mamba-2 layer of the `mamba_*` keys. The inner width is mamba_d_ssm where given, else expand × hidden.

    Raises ConfigError where heads × head width is another number, as transformers does.
    """
    count = cfg.integer("mamba_n_heads")
    if cfg.has("mamba_d_ssm"):
        inner = cfg.integer("mamba_d_ssm")
        cfg.ignore("mamba_expand")
    else:
        inner = cfg.integer("mamba_expand") * cfg.integer("hidden_size")
    dim = inner // count if cfg.get("mamba_d_head") == "auto" else cfg.integer("mamba_d_head")
    if count * dim != inner:
        raise cfg.fail("mamba_n_heads", f"{count} × mamba_d_head {dim} is not the inner width {inner}")
    groups, conv = cfg.integer("mamba_n_groups"), cfg.integer("mamba_d_conv")
    return Mamba2(count, dim, cfg.integer("mamba_d_state"), groups, conv)


def mamba1(
    hidden: int, layer: Mamba1, dt_rank: int, *, conv_bias: bool, proj_bias: bool, inner_norms: bool, prefix: str
) -> tuple[Weight, ...]:
    """Projections, convolution and state matrix of a Mamba-1 mixer. `inner_norms` norms dt, B and C (Jamba)."""
    inner, states = layer.d_inner, layer.d_state
    weights = [
        Weight(f"{prefix}.in_proj", "attention", (2 * inner, hidden)),
        Weight(f"{prefix}.conv1d", "attention", (inner, 1, layer.d_conv)),
        Weight(f"{prefix}.x_proj", "attention", (dt_rank + 2 * states, inner)),
        Weight(f"{prefix}.dt_proj", "attention", (inner, dt_rank)),
        vector(f"{prefix}.dt_proj.bias", inner, split="tp"),
        Weight(f"{prefix}.A_log", "attention", (inner, states)),
        vector(f"{prefix}.D", inner, split="tp"),
        Weight(f"{prefix}.out_proj", "attention", (hidden, inner)),
    ]
    if conv_bias:
        weights.append(vector(f"{prefix}.conv1d.bias", inner, split="tp"))
    if proj_bias:
        weights += [
            vector(f"{prefix}.in_proj.bias", 2 * inner, split="tp"),
            vector(f"{prefix}.out_proj.bias", hidden),
        ]
    if inner_norms:
        widths = {"dt": dt_rank, "b": states, "c": states}
        weights += [vector(f"{prefix}.{name}_layernorm", width) for name, width in widths.items()]
    return tuple(weights)


def mamba2(
    hidden: int, layer: Mamba2, *, conv_bias: bool, in_bias: bool, out_bias: bool, gated_norm: bool = True,
    prefix: str = "mamba",
) -> tuple[Weight, ...]:  # fmt: skip
    """Projections, convolution, per-head scalars and the gated norm of a Mamba-2 mixer."""
    inner = layer.num_heads * layer.head_dim
    conv = inner + 2 * layer.n_groups * layer.d_state
    rows = inner + conv + layer.num_heads
    weights = [
        Weight(f"{prefix}.in_proj", "attention", (rows, hidden)),
        Weight(f"{prefix}.conv1d", "attention", (conv, 1, layer.d_conv)),
        *(vector(f"{prefix}.{name}", layer.num_heads, split="tp") for name in ("A_log", "D", "dt_bias")),
        Weight(f"{prefix}.out_proj", "attention", (hidden, inner)),
    ]
    if gated_norm:
        weights.append(vector(f"{prefix}.norm", inner, split="tp"))
    if conv_bias:
        weights.append(vector(f"{prefix}.conv1d.bias", conv, split="tp"))
    if in_bias:
        weights.append(vector(f"{prefix}.in_proj.bias", rows, split="tp"))
    if out_bias:
        weights.append(vector(f"{prefix}.out_proj.bias", hidden))
    return tuple(weights)
