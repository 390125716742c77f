"""Models of Mamba layers alone: Mamba, Falcon Mamba and Mamba-2. Nothing they keep grows with the sequence."""

from kvplan.architectures._config import Config
from kvplan.architectures._parts import embeddings, norm
from kvplan.architectures._recurrent import mamba1, mamba2, state_dtype
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.mamba import Mamba1, Mamba2
from kvplan.model import Inventory
from kvplan.units import ceil_div


def _mamba1(cfg: Config) -> Mamba1:
    """The inner width is intermediate_size where it is shipped: falcon-mamba-7b ships an `expand` that is not used."""
    inner = cfg.maybe("intermediate_size")
    if inner is None:
        inner = cfg.integer("expand") * cfg.integer("hidden_size")
    cfg.ignore("expand", "d_inner")
    return Mamba1(inner, cfg.integer("state_size"), cfg.integer("conv_kernel"))


def _mamba2(cfg: Config) -> Mamba2:
    """transformers requires heads × width to be expand × hidden_size; a config where it is not is refused."""
    count, dim = cfg.integer("num_heads"), cfg.integer("head_dim")
    inner = cfg.integer("expand") * cfg.integer("hidden_size") if cfg.has("expand") else count * dim
    if inner != count * dim:
        raise cfg.fail("num_heads", f"{count} × head_dim {dim} is not expand × hidden_size {inner}")
    return Mamba2(count, dim, cfg.integer("state_size"), cfg.integer("n_groups"), cfg.integer("conv_kernel"))


@reads("mamba", "falcon_mamba")
def layers(cfg: Config) -> Decoder:
    cfg.ignore("use_mambapy", "use_falcon_mambapy", "residual_in_fp32")
    return Decoder(((_mamba1(cfg),),) * cfg.layers(), state_dtype=state_dtype(cfg))


@reads("mamba2")
def mamba2_layers(cfg: Config) -> Decoder:
    cfg.ignore("chunk_size")
    return Decoder(((_mamba2(cfg),),) * cfg.layers(), state_dtype=state_dtype(cfg))


@weighs("mamba", "falcon_mamba")
def weights(cfg: Config) -> Inventory:
    """Falcon Mamba norms dt, B and C without weights, so both have the same parameters. Ties by class default."""
    hidden = cfg.integer("hidden_size")
    automatic = cfg.get("time_step_rank") == "auto"
    rank = ceil_div(hidden, 16) if automatic else cfg.integer("time_step_rank")
    mixer = mamba1(
        hidden, _mamba1(cfg), rank, conv_bias=cfg.flag("use_conv_bias", True), proj_bias=cfg.flag("use_bias"),
        inner_norms=False, prefix="mixer",
    )  # fmt: skip
    return Inventory(((*mixer, norm("norm", hidden)),) * cfg.layers(), embeddings(cfg, hidden, tied_default=True))


@weighs("mamba2")
def mamba2_weights(cfg: Config) -> Inventory:
    hidden, bias = cfg.integer("hidden_size"), cfg.flag("use_bias")
    conv_bias = cfg.flag("use_conv_bias", True)
    mixer = mamba2(hidden, _mamba2(cfg), conv_bias=conv_bias, in_bias=bias, out_bias=bias, prefix="mixer")
    return Inventory(((*mixer, norm("norm", hidden)),) * cfg.layers(), embeddings(cfg, hidden))
