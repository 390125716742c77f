"""What the architecture tests share: read a config, sum what it stores, count what it weighs."""

from typing import Any

from kvplan.architectures import read_config
from kvplan.dtypes import Dtypes
from kvplan.model import Model, Source, Weight
from kvplan.sources.bundled import from_profile


def read(config: dict[str, Any]) -> Model:
    return read_config(config, name="test", source=Source("test"))


def bundled(name: str) -> Model:
    model = from_profile(name)
    assert model is not None
    return model


def held(model: Model, tokens: int, **dtypes: Any) -> int:
    stored = (tensor for layer in model.mixers() for tensor in layer.stored(Dtypes(**dtypes)))
    return sum(tensor.bytes(tokens) for tensor in stored)


def weights(model: Model, *, mtp: bool = True) -> list[Weight]:
    assert model.weights is not None, model.weights_missing
    inventory = model.weights
    decoder = [weight for block in inventory.blocks for weight in block]
    return [*decoder, *inventory.outer, *(inventory.mtp if mtp else ())]


def params(model: Model, *, mtp: bool = True) -> int:
    return sum(weight.params for weight in weights(model, mtp=mtp))
