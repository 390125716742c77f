"""Mistral, Mixtral, Pixtral, Mistral Large 3, and Whisper: windows, wrappers, encoder tokens."""

import pytest

from kit import read
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError
from kvplan.layers.mla import Mla
from kvplan.model import Model

MISTRAL = {
    "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "d_model": 1280, "decoder_attention_heads": 20, "decoder_ffn_dim": 5120,
    "decoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "encoder_layers": 32,
    "max_source_positions": 1500, "max_target_positions": 448, "num_hidden_layers": 32, "num_mel_bins": 128,
    "vocab_size": 51866,
}  # fmt: skip


def total_params(model: Model) -> int:
    assert model.weights is not None, model.weights_missing
    parts = [*model.weights.blocks, model.weights.outer, model.weights.mtp]
    return sum(weight.params for part in parts for weight in part)


def stored_bytes(model: Model, tokens: int) -> int:
    return sum(tensor.bytes(tokens) for layer in model.mixers() for tensor in layer.stored(Dtypes()))


def test_one_window_for_all_layers_or_none() -> None:
    assert read(MISTRAL | {"sliding_window": 4096}).layer_counts() == {"swa": 32}
    assert read(MISTRAL | {"sliding_window": None}).layer_counts() == {"full": 32}
    assert read(MISTRAL | {"sliding_window": 0}).layer_counts() == {"full": 32}
    assert read(MISTRAL | {"sliding_window": 4096, "use_sliding_window": False}).layer_counts() == {"full": 32}


def test_interleaved_windows_only_where_layer_types_say_so() -> None:
    types = ["full_attention", "sliding_attention"] * 16
    config = MISTRAL | {"model_type": "ministral", "sliding_window": 4096, "layer_types": types}
    assert read(config).layer_counts() == {"full": 16, "swa": 16}
    with pytest.raises(ConfigError, match="sliding_window"):
        read(MISTRAL | {"sliding_window": [4096, None]})


@pytest.mark.parametrize("wrapper", ["mistral3", "pixtral", "llava"])
def test_a_wrapper_takes_the_inner_reader(wrapper: str) -> None:
    nested = read({"model_type": wrapper, "text_config": MISTRAL, "vision_config": {"model_type": "pixtral"}})
    assert stored_bytes(nested, 1000) == stored_bytes(read(MISTRAL), 1000)
    assert any("vision tower not weighed" in line for line in nested.defaults)


def test_a_latent_rank_inside_mistral_3_means_latent_attention() -> None:
    config = {
        "model_type": "mistral3", "num_hidden_layers": 61, "num_attention_heads": 128, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64, "hidden_size": 7168,
    }  # fmt: skip
    model = read(config)
    assert set(model.mixers()) == {Mla(512, 64)}
    assert stored_bytes(model, 1) == 70_272


def test_parameters_of_mistral_7b_and_mixtral_8x22b_instruct() -> None:
    assert total_params(read(MISTRAL)) == 7_241_732_096
    mixtral = MISTRAL | {
        "model_type": "mixtral", "hidden_size": 6144, "intermediate_size": 16384, "num_attention_heads": 48,
        "num_hidden_layers": 56, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32768,
    }  # fmt: skip
    assert total_params(read(mixtral)) == 140_630_071_296


def test_whisper_keeps_the_encoder_beside_its_own_tokens() -> None:
    model, row = read(WHISPER), 20 * 64 * 2 * 2
    assert model.layer_counts() == {"full": 32, "cross": 32}
    assert stored_bytes(model, 100) == 32 * (100 + 1500) * row
    assert model.max_context_tokens == 448


def test_parameters_of_whisper() -> None:
    """Exact tensor counts of large-v3 and tiny, encoder included and the tied head once."""
    assert total_params(read(WHISPER)) == 1_543_490_560
    tiny = {"d_model": 384, "decoder_attention_heads": 6, "decoder_ffn_dim": 1536, "decoder_layers": 4}
    tiny |= {"encoder_ffn_dim": 1536, "encoder_layers": 4, "num_mel_bins": 80, "vocab_size": 51865}
    assert total_params(read(WHISPER | tiny)) == 37_760_640
