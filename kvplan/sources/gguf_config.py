"""GGUF metadata as the config.json that the same model has in the transformers format.

Keys are those of gguf/constants.py; what each architecture writes into them is llama.cpp's convert_hf_to_gguf.py.
"""

from collections.abc import Callable
from typing import Any

from kvplan.errors import ConfigError, MissingField

_HARMLESS = (
    "layer_norm", "group_norm", "scale", "alibi", "clamp_kqv", "causal", "temperature", "dt_b_c_rms", "indexer.top_k",
)  # fmt: skip
_STORES = ("attention.", "ssm.", "kda.", "wkv.", "shortconv.")


class Metadata:
    """The `arch.*` fields of a GGUF header. Getters raise ConfigError naming the field, and remember what was read."""

    def __init__(self, arch: str, fields: dict[str, Any]) -> None:
        self.arch, self.fields = arch, fields
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return self.fields.get(f"{self.arch}.{key}", default)

    def need(self, key: str) -> int:
        """A whole number that has to be there."""
        value = self.get(key)
        if value is None:
            raise MissingField(f"{self.arch}.{key} is missing from the GGUF header")
        if type(value) is not int:
            raise ConfigError(f"{self.arch}.{key}: expected an integer, found {str(value)[:40]}")
        return value

    def per_layer(self, key: str, layers: int) -> list[int]:
        """One whole number for each layer, where the header gives one for all or a list."""
        value = self.get(key)
        values = [value] * layers if type(value) is int else value
        if not isinstance(values, list) or len(values) < layers or not all(type(item) is int for item in values):
            raise ConfigError(f"{self.arch}.{key}: expected an integer or one for each of {layers} layers")
        return values[:layers]

    def refuse_unread(self) -> None:
        """Raise for a field about what a layer stores that no rule has read."""
        for name in self.fields:
            key = name.removeprefix(f"{self.arch}.")
            if key != name and key not in self.read and key.startswith(_STORES) and not _is_harmless(key):
                raise ConfigError(f"{name}: not modelled for GGUF files of this architecture; give its config.json")


def _is_harmless(key: str) -> bool:
    return any(word in key for word in _HARMLESS)


Config = dict[str, Any]


def _common(meta: Metadata) -> Config:
    prediction = meta.get("nextn_predict_layers", 0)
    layers = meta.need("block_count") - (prediction if type(prediction) is int else 0)
    config: Config = {"hidden_size": meta.need("embedding_length"), "num_hidden_layers": layers}
    optional = {
        "max_position_embeddings": "context_length", "vocab_size": "vocab_size", "num_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length",
        "intermediate_size": "feed_forward_length",
    }  # fmt: skip
    found = {name: meta.get(key) for name, key in optional.items()}
    if isinstance(found["intermediate_size"], list):
        found["intermediate_size"] = max(found["intermediate_size"], default=None)
    return config | {name: value for name, value in found.items() if value}


def _heads(meta: Metadata) -> Config:
    """Ordinary attention with one width for keys and values."""
    heads = meta.need("attention.head_count")
    kv_heads = meta.get("attention.head_count_kv", heads)
    if isinstance(kv_heads, list) and len(set(kv_heads)) == 1:
        kv_heads = kv_heads[0]
    if type(kv_heads) is not int:
        raise ConfigError(f"{meta.arch}.attention.head_count_kv: one number for all layers is what is modelled here")
    key, value = meta.get("attention.key_length"), meta.get("attention.value_length")
    if key != value:
        raise ConfigError(f"{meta.arch}.attention.value_length: {value} differs from key_length {key}: not modelled")
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": key or meta.need("embedding_length") // max(heads, 1),
    }


def _dense(meta: Metadata) -> Config:
    return _common(meta) | _heads(meta)


def _windowed(meta: Metadata) -> Config:
    """Ordinary attention with one window for every layer, where the header states one; null says that it does not."""
    return _dense(meta) | {"sliding_window": meta.get("attention.sliding_window") or None}


def _gemma(meta: Metadata) -> Config:
    """A window in all but every second (Gemma 2) or sixth (Gemma 3) layer, which the header leaves to the reader."""
    pattern = meta.get("attention.sliding_window_pattern")
    period = {"gemma2": 2, "gemma3": 6}[meta.arch]
    config = _dense(meta) | {"sliding_window": meta.need("attention.sliding_window")}
    if isinstance(pattern, list):
        kinds = ["sliding_attention" if windowed else "full_attention" for windowed in pattern]
        return config | {"layer_types": kinds[: config["num_hidden_layers"]]}
    period = pattern if type(pattern) is int else period
    layers = range(config["num_hidden_layers"])
    kinds = ["sliding_attention" if (layer + 1) % period else "full_attention" for layer in layers]
    return config | {"layer_types": kinds}


def _gpt_oss(meta: Metadata) -> Config:
    config = _dense(meta) | {"sliding_window": meta.need("attention.sliding_window")}
    kinds = ["full_attention" if layer % 2 else "sliding_attention" for layer in range(config["num_hidden_layers"])]
    return config | {
        "layer_types": kinds, "num_local_experts": config.pop("num_experts"),
        "intermediate_size": config.pop("moe_intermediate_size", config.get("intermediate_size")),
    }  # fmt: skip


def _latent(meta: Metadata) -> Config:
    """Multi-head latent attention; the header's key width is the latent and rope part together."""
    rope = meta.need("rope.dimension_count")
    config = _common(meta) | {
        "num_attention_heads": meta.need("attention.head_count"),
        "kv_lora_rank": meta.need("attention.kv_lora_rank"),
        "q_lora_rank": meta.get("attention.q_lora_rank"),
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": (meta.get("attention.key_length_mla") or meta.need("attention.key_length")) - rope,
        "v_head_dim": meta.get("attention.value_length_mla") or meta.need("attention.value_length"),
        "first_k_dense_replace": meta.get("leading_dense_block_count", 0),
        "n_shared_experts": meta.get("expert_shared_count", 0),
    }
    meta.read |= {"attention.head_count_kv", "attention.key_length", "attention.value_length"}
    return config | {"n_routed_experts": config.pop("num_experts", 0)}


def _gdn(meta: Metadata) -> Config:
    values, inner = meta.need("ssm.time_step_rank"), meta.need("ssm.inner_size")
    return _dense(meta) | {
        "linear_num_key_heads": meta.need("ssm.group_count"),
        "linear_num_value_heads": values,
        "linear_key_head_dim": meta.need("ssm.state_size"),
        "linear_value_head_dim": inner // max(values, 1),
        "linear_conv_kernel_dim": meta.need("ssm.conv_kernel"),
        "full_attention_interval": meta.get("full_attention_interval", 4),
        "num_nextn_predict_layers": 0,
    }


def _kimi_linear(meta: Metadata) -> Config:
    """KDA where the header says no KV heads, latent attention in the rest; layers are numbered from 1."""
    config = _latent(meta)
    kv_heads = meta.per_layer("attention.head_count_kv", config["num_hidden_layers"])
    config["num_experts"] = config.pop("n_routed_experts")
    config["num_experts_per_token"] = config.pop("num_experts_per_tok", 0)
    config["num_shared_experts"] = config.pop("n_shared_experts")
    return config | {
        "linear_attn_config": {
            "full_attn_layers": [number for number, heads in enumerate(kv_heads, 1) if heads],
            "kda_layers": [number for number, heads in enumerate(kv_heads, 1) if not heads],
            "num_heads": config["num_attention_heads"],
            "head_dim": meta.need("kda.head_dim"),
            "short_conv_kernel_size": meta.need("ssm.conv_kernel"),
        }
    }


def _mamba(meta: Metadata) -> Config:
    meta.read |= {"attention.head_count", "attention.head_count_kv"}
    return _common(meta) | {
        "intermediate_size": meta.need("ssm.inner_size"),
        "state_size": meta.need("ssm.state_size"),
        "conv_kernel": meta.need("ssm.conv_kernel"),
        "time_step_rank": meta.need("ssm.time_step_rank"),
    }


def _mamba2(meta: Metadata) -> Config:
    meta.read |= {"attention.head_count", "attention.head_count_kv"}
    heads, inner = meta.need("ssm.time_step_rank"), meta.need("ssm.inner_size")
    return _common(meta) | {
        "num_heads": heads,
        "head_dim": inner // max(heads, 1),
        "state_size": meta.need("ssm.state_size"),
        "n_groups": meta.need("ssm.group_count"),
        "conv_kernel": meta.need("ssm.conv_kernel"),
    }


_READERS: dict[str, tuple[str, Callable[[Metadata], Config]]] = {
    "llama": ("llama", _dense), "qwen2": ("qwen2", _dense), "qwen3": ("qwen3", _dense),
    "mistral3": ("mistral", _windowed), "qwen2moe": ("qwen2_moe", _dense), "qwen3moe": ("qwen3_moe", _dense),
    "minimax-m2": ("minimax_m2", _dense), "glm4": ("glm4", _dense), "glm4moe": ("glm4_moe", _dense),
    "gemma2": ("gemma2", _gemma), "gemma3": ("gemma3_text", _gemma), "gpt-oss": ("gpt_oss", _gpt_oss),
    "deepseek2": ("deepseek_v3", _latent), "qwen3next": ("qwen3_next", _gdn), "qwen35": ("qwen3_5_text", _gdn),
    "qwen35moe": ("qwen3_5_moe_text", _gdn), "kimi-linear": ("kimi_linear", _kimi_linear), "mamba": ("mamba", _mamba),
    "mamba2": ("mamba2", _mamba2),
}  # fmt: skip


def config_of(arch: str, fields: dict[str, Any], *, vocab_size: int | None, tied: bool) -> Config:
    """The config.json of a GGUF header. Raises ConfigError naming the architecture or field that is not modelled."""
    if arch not in _READERS:
        raise ConfigError(
            f"general.architecture: {arch[:40]!r} is not modelled for GGUF files (known: {', '.join(_READERS)}); "
            "give the model's config.json"
        )
    model_type, reader = _READERS[arch]
    meta = Metadata(arch, fields)
    config = reader(meta)
    meta.refuse_unread()
    if vocab_size is not None:
        config["vocab_size"] = vocab_size
    return config | {"model_type": model_type, "torch_dtype": "float16", "tie_word_embeddings": tied}
