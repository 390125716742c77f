"""Whisper: each decoder layer keeps its own tokens, and the encoder's keys and values for the whole audio window."""

from kvplan.architectures._config import Config
from kvplan.architectures._parts import norm, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.borrowed import Cross
from kvplan.layers.full import Full
from kvplan.model import Inventory, Weight


@reads("whisper")
def layers(cfg: Config) -> Decoder:
    """Audio is padded to `max_source_positions` encoder positions whatever its length."""
    heads, width = cfg.integer("decoder_attention_heads"), cfg.integer("d_model")
    if width % heads:
        raise cfg.fail("decoder_attention_heads", f"{heads} does not divide d_model {width}")
    dim = width // heads
    cfg.ignore("num_hidden_layers", "encoder_attention_heads", "is_encoder_decoder")
    block = (Full(heads, dim, dim), Cross(heads, dim, dim, cfg.integer("max_source_positions")))
    return Decoder(
        (block,) * cfg.layers("decoder_layers"),
        num_attention_heads=heads,
        max_context_tokens=cfg.integer("max_target_positions"),
    )


def _attention(prefix: str, width: int) -> tuple[Weight, ...]:
    """Four square projections, biases on all but the keys', and the norm before them."""
    return (
        *(Weight(f"{prefix}.{name}_proj", "attention", (width, width)) for name in ("q", "k", "v", "out")),
        *(vector(f"{prefix}.{name}_proj.bias", width, split="tp") for name in "qv"),
        vector(f"{prefix}.out_proj.bias", width),
        *(norm(f"{prefix}_layer_norm.{part}", width) for part in ("weight", "bias")),
    )


def _mlp(width: int, inner: int) -> tuple[Weight, ...]:
    return (
        Weight("fc1", "mlp", (inner, width)),
        vector("fc1.bias", inner, "mlp", "tp"),
        Weight("fc2", "mlp", (width, inner)),
        vector("fc2.bias", width, "mlp"),
        *(norm(f"final_layer_norm.{part}", width) for part in ("weight", "bias")),
    )


def _encoder(cfg: Config, width: int) -> tuple[Weight, ...]:
    """The audio tower: two convolutions over mel bins, positions, layers like the decoder's own half."""
    layer = sum(
        weight.params for weight in (*_attention("self_attn", width), *_mlp(width, cfg.integer("encoder_ffn_dim")))
    )
    return (
        Weight("encoder.layers", "vision", (layer,), "tp", cfg.layers("encoder_layers")),
        Weight("encoder.conv1", "vision", (width, cfg.integer("num_mel_bins"), 3), "none"),
        Weight("encoder.conv2", "vision", (width, width, 3), "none"),
        Weight("encoder.conv.bias", "vision", (width,), "none", 2),
        Weight("encoder.embed_positions", "vision", (cfg.integer("max_source_positions"), width), "none"),
        Weight("encoder.layer_norm", "vision", (width,), "none", 2),
    )


@weighs("whisper")
def weights(cfg: Config) -> Inventory:
    """The output head is the token embedding."""
    width = cfg.integer("d_model")
    block = (
        *_attention("self_attn", width),
        *_attention("encoder_attn", width),
        *_mlp(width, cfg.integer("decoder_ffn_dim")),
    )
    outer = (
        Weight("embed_tokens", "embedding", (cfg.integer("vocab_size"), width)),
        Weight("embed_positions", "other", (cfg.integer("max_target_positions"), width), "none"),
        *(norm(f"layer_norm.{part}", width) for part in ("weight", "bias")),
    )
    return Inventory((block,) * cfg.layers("decoder_layers"), (*outer, *_encoder(cfg, width)))
