"""The common part of reading a config: find the text model, call its family, refuse what is not modelled."""

from difflib import get_close_matches
from functools import cache
from typing import Any

from kvplan.architectures._config import Config
from kvplan.architectures._registry import LAYERS, WEIGHTS, Decoder
from kvplan.dtypes import canonical
from kvplan.errors import ConfigError, MissingField
from kvplan.layers.full import Full
from kvplan.model import Inventory, Model, Published, Source, Tensor
from kvplan.registry import import_all

_TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")
_TOWERS = ("vision_config", "audio_config", "video_config")
_NOT_TEXT = (
    "vision_config", "audio_config", "video_config", "quantization_config", "compression_config", "rope_scaling",
    "rope_parameters", "auto_map", "generation_config", "task_specific_params", "id2label", "label2id",
    "torch_dtype", "dtype", "architectures", "model_type", "transformers_version",
)  # fmt: skip
_CONTEXT_KEYS = ("max_position_embeddings", "model_max_length", "max_sequence_length", "max_seq_len", "seq_length")
_ACTIVATION_DTYPES = ("bf16", "fp16", "fp32")


@cache
def _load_families() -> None:
    import_all("kvplan.architectures")


def known_model_types() -> list[str]:
    """Every `model_type` that can be read."""
    _load_families()
    return sorted(LAYERS)


def read_config(
    data: Any, *, name: str, source: Source, published: Published | None = None, snapshot: str | None = None,
    tensors: tuple[Tensor, ...] = (), tensors_missing: str = "", hf_id: str = "",
) -> Model:  # fmt: skip
    """A parsed config.json as a Model. Raises ConfigError naming the field that is unknown, missing or malformed."""
    if not isinstance(data, dict):
        raise ConfigError(f"config.json of {name} is not a JSON object")
    _load_families()
    cfg = _text_config(Config(data))
    model_type = cfg.text("model_type")
    decoder = LAYERS[model_type](cfg)
    if not decoder.blocks:
        raise cfg.fail("num_hidden_layers", "the config describes no decoder layer")
    _check_heads(cfg, decoder)
    weights, weights_missing = _weights(cfg, model_type)
    quantization = _quantization(cfg)
    outermost = cfg.outer or cfg
    outermost.ignore(*_NOT_TEXT, *_TEXT_KEYS, *cfg.read)
    cfg.ignore(*_NOT_TEXT)
    context = decoder.max_context_tokens or _max_context(cfg)
    if cfg.get("is_causal", default=True) is False:
        raise cfg.fail("is_causal", "false (an encoder, no cache) is not modelled")
    cfg.refuse_contradictions()
    cfg.refuse_unread()
    if outermost is not cfg:
        outermost.refuse_unread()
    unread = cfg.unread() + (outermost.unread() if outermost is not cfg else [])
    return Model(
        name=name,
        source=source,
        model_type=str(data.get("model_type") or model_type),
        architecture=_architecture(outermost, model_type),
        dtype=_dtype(cfg),
        blocks=decoder.blocks,
        mtp=decoder.mtp,
        weights=weights,
        weights_missing=weights_missing,
        num_attention_heads=decoder.num_attention_heads,
        max_context_tokens=context,
        state_dtype=decoder.state_dtype,
        kv_cache_dtype=_kv_scheme(quantization),
        experts_per_token=decoder.experts_per_token,
        num_experts=decoder.num_experts,
        quantization=quantization,
        published=published or Published(),
        unread=tuple(unread),
        defaults=tuple(dict.fromkeys(cfg.defaults)),
        hf_id=hf_id,
        snapshot=snapshot,
        tensors=tensors,
        tensors_missing=tensors_missing,
        towers=tuple(key for key in _TOWERS if isinstance(outermost.data.get(key), dict)),
    )


def _text_config(root: Config) -> Config:
    """The config of the language model, inside a multimodal one or not."""
    cfg = root
    for key in _TEXT_KEYS * 2:
        nested = cfg.data.get(key)
        if isinstance(nested, dict):
            cfg = Config(nested, cfg.name(key), outer=cfg)
        elif nested is not None:
            raise cfg.fail(key, "expected an object")
    outer_type, inner_type = root.data.get("model_type"), cfg.data.get("model_type")
    for where, model_type in ((root, outer_type), (cfg, inner_type)):
        if model_type is not None and (not isinstance(model_type, str) or model_type not in LAYERS):
            raise _unknown(where, model_type)
    if outer_type is None and inner_type is None:
        raise root.fail("model_type", "is missing, so the architecture is unknown")
    return cfg


def _check_heads(cfg: Config, decoder: Decoder) -> None:
    """Query heads share KV heads evenly, whatever the family."""
    for layer in {layer for block in decoder.blocks for layer in block if isinstance(layer, Full)}:
        if decoder.num_attention_heads % layer.kv_heads:
            raise cfg.fail(
                "num_attention_heads", f"{decoder.num_attention_heads} is not a multiple of {layer.kv_heads} KV heads"
            )


def _weights(cfg: Config, model_type: str) -> tuple[Inventory | None, str]:
    """The weights, or the name of the field without which they cannot be sized."""
    weigher = WEIGHTS.get(model_type)
    if weigher is None:
        return None, f"no weight rules for model_type {model_type!r}"
    try:
        return weigher(cfg), ""
    except MissingField as missing:
        return None, str(missing)


def _unknown(where: Config, model_type: Any) -> ConfigError:
    shown = model_type if isinstance(model_type, str) else repr(model_type)
    near = get_close_matches(shown, LAYERS, n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]!r}?" if near else "; `kvplan models types` lists what is modelled"
    return where.fail("model_type", f"{shown[:60]!r} is not modelled{hint}")


def _architecture(root: Config, model_type: str) -> str:
    names = root.data.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else model_type


def _dtype(cfg: Config) -> str:
    value = cfg.get("dtype", "torch_dtype", default=None)
    if value is None:
        cfg.defaults.append("dtype = bfloat16")
        return "bf16"
    short = canonical(value) if isinstance(value, str) else ""
    if short == "auto":
        return "bf16"
    if short not in _ACTIVATION_DTYPES:
        raise cfg.fail("dtype", f"{str(value)[:40]!r} is not bfloat16, float16 or float32")
    return short


def _max_context(cfg: Config) -> int | None:
    for key in _CONTEXT_KEYS:
        if cfg.has(key):
            return cfg.integer(key, maximum=1 << 40)
    return None


def _quantization(cfg: Config) -> dict[str, Any]:
    value = cfg.get("quantization_config", "compression_config", "quantization", default={})
    if not isinstance(value, dict):
        raise cfg.fail("quantization_config", "expected an object")
    expert_dtype = cfg.get("expert_dtype", default=None)
    return value if expert_dtype is None else value | {"expert_dtype": expert_dtype}


def _kv_scheme(quantization: dict[str, Any]) -> str | None:
    scheme = quantization.get("kv_cache_scheme") or quantization.get("kv_cache_quant_algo")
    if isinstance(scheme, dict):
        return "fp8" if scheme.get("num_bits") == 8 and scheme.get("type") == "float" else None
    return canonical(scheme) if isinstance(scheme, str) else None
