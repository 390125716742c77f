"""Reading a config.json without trusting it: typed getters that name the field, and a memory of what was read."""

import re
from typing import Any

from kvplan.errors import ConfigError, MissingField

MAX_INT = 1 << 31
MAX_LAYERS = 4096

_MAY_STORE = re.compile(
    r"window|sliding|chunk|kv|key_value|cache|compress|index|sparse|^linear_|mamba|ssm|conv|state|recurr|latent|lora_rank"
    r"|layer_types|pattern|block_type|shared_layer|share_|yoco|cross_att|memory|retention|delta|head_dim|num_.*heads"
    r"|num_.*groups|attention_type|attn_type|block_configs|per_layer_config|encoder_decoder|multi_query|head_size|loop"
    r"|swa_|hybrid|local_att|global_att|full_att|attn_layer_|attention_layers|layer_id|layer_ind|interval|period"
    r"|_mla|mla_|use_cla|cla_share|lightning|kda|attention_config|attn_config|other_setting|bidirectional|_dsa|nsa_|layer_sharing|meta_token|sink_token"
    r"|ut_steps|decoder_layers|layer_group|attention_method|att_impl"
)
_HARMLESS = re.compile(
    r"initializer|_bias$|dropout|use_cache$|hidden_states|cache_implementation|rope_theta|^rope_|^_(?!sliding)|_norm$"
    r"|token_id|token_index|mlp_layer_types|loss|aux_|rescale|checkpointing|return_|alpha_factor|beta_factor|moe_|expert"
    r"|vision|image|video|audio|img_|^transformers|^layernorm_"
)
_GENERATION = frozenset({
    "chunk_size_feed_forward", "num_beam_groups", "diversity_penalty", "pruned_heads", "encoder_no_repeat_ngram_size",
    "is_decoder", "num_return_sequences", "ignore_index", "remove_invalid_values",
})  # fmt: skip
_MTP_BLOCKS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_SHAPE = ("num_hidden_layers", "hidden_size")
_REQUIRED: Any = object()


class Config:
    """One (sub-)dictionary of a config.json. Getters raise ConfigError naming the full field path.

    Where a key is missing from a nested text config, the outer one is asked, as wrappers keep some keys outside.
    """

    def __init__(self, data: dict[str, Any], path: str = "", outer: "Config | None" = None) -> None:
        self.data = data
        self.path = path
        self.outer = outer
        self.read: set[str] = set()
        self.defaults: list[str] = []
        self.children: list[Config] = []

    def name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def fail(self, key: str, problem: str) -> ConfigError:
        """An error about one field, for the caller to raise."""
        return ConfigError(f"{self.name(key)}: {problem}")

    def get(self, *keys: str, default: Any = _REQUIRED) -> Any:
        """What stands under any of `keys`, which are spellings of one field, and is not null."""
        self.read.update(keys)
        stated = {key: self.data[key] for key in keys if self.data.get(key) is not None}
        for key, value in stated.items():
            first = next(iter(stated))
            if value != stated[first]:
                raise self.fail(key, f"{_shown(value)} contradicts {first} {_shown(stated[first])}")
        if stated:
            return next(iter(stated.values()))
        if self.outer is not None and any(self.outer.data.get(key) is not None for key in keys):
            return self.outer.get(*keys)
        if default is _REQUIRED:
            raise MissingField(f"{' or '.join(self.name(key) for key in keys)} is missing")
        return default

    def has(self, key: str) -> bool:
        """True when the key is present here or outside and not null. Does not count as reading it."""
        return self.data.get(key) is not None or (self.outer is not None and self.outer.has(key))

    def absent(self, key: str) -> bool:
        """True when the key stands nowhere, not even as null: then the default of the class holds."""
        return key not in self.data and (self.outer is None or self.outer.absent(key))

    def integer(self, *keys: str, default: Any = _REQUIRED, minimum: int = 1, maximum: int = MAX_INT) -> int:
        """An integer in range. With a default, an absent field is recorded as defaulted."""
        value = self.get(*keys, default=default)
        if value is default and not any(self.has(key) for key in keys):
            filled = f"{self.name(keys[0])} = {default}"
            if filled not in self.defaults:
                self.defaults.append(filled)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(keys[0], f"expected an integer, found {_shown(value)}")
        if not minimum <= value <= maximum:
            raise self.fail(keys[0], f"{value} is out of range {minimum} to {maximum}")
        return value

    def maybe(self, *keys: str, minimum: int = 1, maximum: int = MAX_INT) -> int | None:
        """An integer, or None when every key is absent or null."""
        if self.get(*keys, default=None) is None:
            return None
        return self.integer(*keys, minimum=minimum, maximum=maximum)

    def count(self, *keys: str, maximum: int = MAX_INT) -> int:
        """How many of something there are: absent and null mean none."""
        return self.maybe(*keys, minimum=0, maximum=maximum) or 0

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key, default=default)
        if not isinstance(value, bool):
            raise self.fail(key, f"expected true or false, found {_shown(value)}")
        return value

    def text(self, *keys: str, default: Any = _REQUIRED) -> str:
        value = self.get(*keys, default=default)
        if not isinstance(value, str):
            raise self.fail(keys[0], f"expected a string, found {_shown(value)}")
        return value

    def integers(self, key: str, minimum: int = 0) -> list[int]:
        """A list of integers."""
        value = self.get(key)
        if not isinstance(value, list) or len(value) > MAX_LAYERS:
            raise self.fail(key, f"expected a list of at most {MAX_LAYERS} integers, found {_shown(value)}")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int) or not minimum <= item <= MAX_INT:
                raise self.fail(key, f"expected integers from {minimum}, found {_shown(item)}")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        value = self.get(key)
        if not isinstance(value, list) or len(value) > MAX_LAYERS or not all(isinstance(item, str) for item in value):
            raise self.fail(key, f"expected a list of at most {MAX_LAYERS} strings, found {_shown(value)}")
        return value

    def only(self, key: str, *allowed: str) -> None:
        """Refuse a list of names that says anything but `allowed`; an absent one says nothing."""
        for name in self.texts(key) if self.has(key) else ():
            if name not in allowed:
                raise self.fail(key, f"{name[:40]!r} is not modelled for this architecture")

    def sub(self, key: str) -> "Config":
        """A nested object; asked for twice it is the same one, so that what was read of it is remembered."""
        value = self.get(key)
        if not isinstance(value, dict):
            raise self.fail(key, f"expected an object, found {_shown(value)}")
        for child in self.children:
            if child.data is value:
                return child
        child = Config(value, self.name(key))
        self.children.append(child)
        return child

    def ignore(self, *keys: str) -> None:
        """Keys that are present but unused, by this family's own code."""
        self.read.update(keys)

    def layers(self, *keys: str) -> int:
        """The number of decoder layers."""
        return self.integer(*(keys or ("num_hidden_layers",)), maximum=MAX_LAYERS)

    def cut(self, key: str, values: list[Any], layers: int) -> list[Any]:
        """A per-layer list cut at the depth of the decoder: one more entry for each MTP block may follow, no others."""
        blocks = [size for name in _MTP_BLOCKS if type(size := self.get(name, default=0)) is int]
        if not layers <= len(values) <= layers + max(blocks, default=0):
            raise self.fail(key, f"has {len(values)} entries for {layers} layers")
        return values[:layers]

    def unread(self) -> list[str]:
        """Keys that nobody asked for and that say something."""
        names = [self.name(key) for key, value in self.data.items() if key not in self.read and _says_something(value)]
        return names + [name for child in self.children for name in child.unread()]

    def refuse_unread(self) -> None:
        """Raise for an unread key that may change what is stored, here or in the wrapper around."""
        for key, value in self.data.items():
            if key not in self.read and _says_something(value) and _may_store(key, value):
                raise self.fail(
                    key, f"{_shown(value)} is not modelled for this architecture and may change what is stored"
                )
        for child in self.children:
            child.refuse_unread()

    def refuse_contradictions(self) -> None:
        """Raise where a wrapper repeats a key of its text config with another value."""
        outer = self.outer
        while outer is not None:
            for key in self.data.keys() & outer.data.keys():
                mine, theirs = self.data[key], outer.data[key]
                if (key in _SHAPE or _may_store(key, mine)) and None not in (mine, theirs) and mine != theirs:
                    raise outer.fail(key, f"{_shown(theirs)} contradicts {self.name(key)} {_shown(mine)}")
                outer.ignore(key)
            outer = outer.outer


def _may_store(key: str, value: Any) -> bool:
    """True for the name of something that may change what is stored, or an object that holds such a name."""
    if key in _GENERATION or _HARMLESS.search(key):
        return False
    if _MAY_STORE.search(key):
        return True
    return isinstance(value, dict) and any(
        _says_something(inner) and _may_store(str(name), None) for name, inner in value.items()
    )


def _says_something(value: Any) -> bool:
    return value not in (None, False, 0, "", [], {})


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
