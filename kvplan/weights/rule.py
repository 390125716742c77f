"""The rule that gives each weight matrix its format, and the checks that its sources share."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvplan.errors import ConfigError
from kvplan.weights.formats import Format
from kvplan.weights.patterns import Patterns

FIELD = "quantization_config"
LINEAR = frozenset({"attention", "mlp", "shared_expert", "expert", "other"})
_NEVER = ("conv1d", "weights_proj", "latent_down_proj", "latent_up_proj", "compressor", "eh_proj")
"""Parts that checkpoints keep in the model's dtype whatever the lists say: short convolutions, the index weights of
DSA, the projections around latent experts (vLLM builds them without quantisation), DeepSeek V4's compressors, and what
joins the two inputs of a multi-token-prediction block."""


@dataclass(frozen=True)
class Rule:
    """Which format a weight has. Vectors, embeddings and routers stay plain unless `chosen` names them."""

    name: str
    plain: Format
    linear: Format | None = None
    """What linear layers are in; None = plain."""
    experts: Format | None = None
    """What routed experts are in, where that differs."""
    router_bias: Format | None = None
    """What the correction bias of a router is in; None = plain."""
    ignored: tuple[str, ...] = ()
    chosen: tuple[tuple[Patterns, Format], ...] = ()
    """Formats by module path; the first that matches wins."""
    roles: frozenset[str] = LINEAR
    method: str = ""
    notes: tuple[str, ...] = ()
    requantised: bool = False
    """True where the user asked for another format than the checkpoint's."""

    @cached_property
    def _ignored(self) -> Patterns:
        return Patterns(self.ignored, f"{FIELD}.ignore")

    def format_of(self, paths: tuple[str, ...], role: str, shape: tuple[int, ...]) -> Format:
        """The format of a weight that checkpoints may spell as any of `paths`."""
        if self.router_bias and paths[0].endswith("e_score_correction_bias"):
            return self.router_bias
        if len(shape) != 2 or any(part in paths[0] for part in _NEVER):
            return self.plain
        wanted = self.experts if role == "expert" and self.experts else self.linear
        if role not in self.roles:
            wanted = None
        if (wanted or self.chosen) and any(self._ignored.match(path) for path in paths):
            return self.plain
        for patterns, format_ in self.chosen:
            if any(patterns.match(path) for path in paths):
                return format_
        return wanted or self.plain


def text(q: dict[str, Any], key: str, default: str | None = None) -> str:
    """A string field of a quantisation config."""
    value = q.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise ConfigError(f"{FIELD}.{key}: expected a string, found {str(value)[:40]!r}")
    return value


def integer(q: dict[str, Any], key: str, default: int, minimum: int = 1) -> int:
    """A small integer field of a quantisation config."""
    value = q.get(key)
    if value is None:
        return default
    if type(value) is not int or not minimum <= value <= 1 << 20:
        raise ConfigError(f"{FIELD}.{key}: expected an integer from {minimum}, found {str(value)[:40]!r}")
    return value


def names(q: dict[str, Any], *keys: str) -> tuple[str, ...]:
    """The module patterns under any of `keys`."""
    found: list[str] = []
    for key in keys:
        value = q.get(key)
        if value is None:
            continue
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{FIELD}.{key}: expected a list of strings")
        found += value
    return tuple(found)
