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


SMALL_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": 256, "num_hidden_layers": 5, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512, "moe_intermediate_size": 128, "num_experts": 24,
    "num_experts_per_tok": 3, "vocab_size": 1000, "torch_dtype": "bfloat16", "decoder_sparse_step": 1,
    "mlp_only_layers": [], "tie_word_embeddings": False,
}  # fmt: skip


def small_moe(**changes: Any) -> Model:
    config = {key: value for key, value in (SMALL_MOE | changes).items() if value is not None}
    return read_config(config, name="small", source=Source("here"))
