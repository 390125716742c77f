"""From a model to the share of one rank: tensor parallelism splits layers, pipeline parallelism splits the depth."""

from kvplan.deployment import Layout
from kvplan.dtypes import Dtypes
from kvplan.errors import PlacementError
from kvplan.layers.base import Layer
from kvplan.model import Model
from kvplan.stages import stage_bounds


def check_layout(model: Model, layout: Layout) -> None:
    """Raise PlacementError where the model cannot be spread like this."""
    if model.num_attention_heads % layout.tp:
        raise PlacementError(
            f"--tp {layout.tp} does not divide num_attention_heads {model.num_attention_heads} of {model.name}"
        )
    if layout.pp > len(model.blocks):
        raise PlacementError(f"--pp {layout.pp} is more than the {len(model.blocks)} layers of {model.name}")
    if 0 < model.num_experts < layout.ep:
        raise PlacementError(f"--ep {layout.ep} is more than the {model.num_experts} experts of {model.name}")
    most = max_dcp(model, layout.tp)
    if layout.dcp > most:
        raise PlacementError(
            f"--dcp {layout.dcp}: the growing cache of {model.name} has {most} "
            f"{'copy' if most == 1 else 'copies'} under --tp {layout.tp}, so dcp can be at most {most}"
        )


def max_dcp(model: Model, tp: int) -> int:
    """The largest dcp: copies of the growing cache over the tp ranks, in the layer with the fewest."""
    growing = [mixer for mixer in set(model.mixers()) if any(tensor.grows for tensor in mixer.stored(Dtypes()))]
    return min((mixer.copies(tp) for mixer in growing), default=1)


def stage_layers(model: Model, layout: Layout) -> list[list[Layer]]:
    """Per pipeline stage, the share of each mixer that one tp rank holds."""
    split = {mixer: mixer.on_rank(layout.tp) for mixer in set(model.mixers())}
    return [
        [split[mixer] for block in model.blocks[start:stop] for mixer in block]
        for start, stop in stage_bounds(len(model.blocks), layout.pp)
    ]
