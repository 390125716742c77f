"""ERNIE 4.5 MoE: full attention, routed experts in a range of layers."""

from kvplan.architectures._attention import projections, read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._parts import block_norms, embeddings, mlp, moe, norm
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.errors import MissingField
from kvplan.model import Inventory, Weight


@reads("ernie4_5_moe")
def layers(cfg: Config) -> Decoder:
    heads = read_heads(cfg)
    cfg.ignore("compression_ratio")
    return Decoder(
        ((heads.full,),) * cfg.layers(),
        mtp=(heads.full,) * cfg.count("num_nextn_predict_layers"),
        num_attention_heads=heads.query,
        num_experts=cfg.count("moe_num_experts"),
        experts_per_token=cfg.count("moe_k"),
    )


@weighs("ernie4_5_moe")
def weights(cfg: Config) -> Inventory:
    """A prediction layer is a dense block with a projection of two inputs and a norm for each."""
    hidden, bias, depth = cfg.integer("hidden_size"), cfg.flag("use_bias"), cfg.layers()
    if bias:
        raise MissingField("the weights of ernie4_5_moe with use_bias true are not modelled")
    attention = (*projections(cfg, read_heads(cfg)), *block_norms(hidden))
    inner = cfg.integer("moe_intermediate_size")
    shared = cfg.integer("moe_num_shared_experts", minimum=0) * inner
    routed = (
        *attention,
        *moe(hidden, inner, cfg.integer("moe_num_experts"), shared_inner=shared, router_bias=True),
    )
    dense = (*attention, *mlp(hidden, cfg.integer("intermediate_size")))
    start, step = cfg.integer("moe_layer_start_index", minimum=0), cfg.integer("moe_layer_interval", default=1)
    end = cfg.integer("moe_layer_end_index", default=-1, minimum=-1)
    last = depth - 1 if end < 0 else end
    blocks = tuple(routed if (number + 1) % step == 0 and start <= number <= last else dense for number in range(depth))
    ahead = (
        *dense,
        Weight("mtp_linear_proj", "other", (hidden, 2 * hidden), "none"),
        norm("mtp_emb_norm", hidden),
        norm("mtp_hidden_norm", hidden),
    )
    outer = embeddings(cfg, hidden, tied_default=True)
    return Inventory(blocks, outer, ahead * cfg.count("num_nextn_predict_layers"))
