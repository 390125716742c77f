"""The quantities that a claim can name. Each is computed through the library; none holds a figure of its own."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import Any

from kvplan.baseline import make_baseline
from kvplan.claims.schema import Flags, Sort
from kvplan.claims.speed import batch_gain, decode_speedup
from kvplan.deployment import Layout
from kvplan.document import Plan, Sequence
from kvplan.dtypes import Dtypes
from kvplan.errors import ProfileError
from kvplan.flops import step_flops
from kvplan.interval import Interval
from kvplan.layers.base import Layer
from kvplan.layers.full import Full
from kvplan.layers.mla import Mla
from kvplan.ledger import Holding
from kvplan.model import Model, Published
from kvplan.plan import plan
from kvplan.profiles import load, paths
from kvplan.sources import resolve
from kvplan.units import ceil_div, parse_tokens
from kvplan.weights import weigh


class NeedsMeasurement(Exception):
    """The quantity is not arithmetic; the message says what has to be measured."""


@dataclass
class Asked:
    """One figure's question, and afterwards the arguments that were looked at and the plan that was made for it."""

    name: str
    flags: Flags
    arguments: Flags
    used: set[str] = field(default_factory=set)
    made: Plan | None = None

    @property
    def model(self) -> Model:
        return _model(self.name)

    @property
    def plan(self) -> Plan:
        """The plan under these flags, its weights sized only where a pool has to be predicted from them."""
        predicted = not self.flags.keys().isdisjoint({"gpu", "gpu_memory"}) and "kv_cache_memory" not in self.flags
        return self.weighed_plan if predicted else self._keep(weighed=False)

    @property
    def weighed_plan(self) -> Plan:
        return self._keep(weighed=True)

    def _keep(self, *, weighed: bool) -> Plan:
        self.made = _plan(self.name, tuple(sorted(self.flags.items())), weighed)
        return self.made

    def argument(self, name: str, default: Any = None) -> Any:
        self.used.add(name)
        value = self.arguments.get(name, default)
        if value is None:
            raise ProfileError(f"the quantity lacks arguments.{name}")
        return value

    def number(self, name: str, default: Any = None) -> Fraction:
        """An argument that is a number: 8, "1/2" or "48e9"."""
        value = self.argument(name, default)
        try:
            return Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            raise ProfileError(f"arguments.{name} {str(value)[:40]!r} is not a number") from None


@dataclass(frozen=True, slots=True)
class Quantity:
    sort: Sort
    compute: Callable[[Asked], Fraction | int | Interval]
    """An Interval where the figure rests on measured times."""


@cache
def _model(name: str) -> Model:
    return resolve(name)


@cache
def _plan(name: str, flags: tuple[tuple[str, Any], ...], weighed: bool) -> Plan:
    model = _model(name)
    bare = replace(model, weights=None, tensors=(), published=Published())
    return plan(model if weighed else bare, **dict(flags))


def _whole(asked: Asked) -> Sequence:
    return asked.plan.per_sequence[-1]


def _rank(asked: Asked) -> Sequence:
    part = asked.plan.per_rank
    if part is None:
        raise ProfileError("a figure per rank needs flags that name a layout, for example tp = 8")
    return part.sequences[-1]


def _of_sequence(side: Callable[[Asked], Sequence], name: str) -> Callable[[Asked], Fraction]:
    return lambda asked: Fraction(getattr(side(asked), name))


def _moved(asked: Asked) -> int:
    """Cache and state read, and the state written back, by one decode step of one sequence; weights aside."""
    one = _whole(asked)
    return one.read_bytes_per_step + one.state_bytes + one.conv_bytes


def _baseline_bytes(side: Callable[[Asked], Sequence]) -> Callable[[Asked], Fraction]:
    def compute(asked: Asked) -> Fraction:
        twin = side(asked).baseline
        if twin is None:
            raise ProfileError("the model has no baseline under these flags; name one with flags.baseline")
        return Fraction(twin.total_bytes)

    return compute


def _saving(side: Callable[[Asked], Sequence]) -> Callable[[Asked], Fraction]:
    return lambda asked: 1 - Fraction(side(asked).total_bytes) / _baseline_bytes(side)(asked)


def _growth(asked: Asked) -> tuple[Fraction, Fraction]:
    """Bytes per further token, of the model and of its baseline, in the plan's KV format."""
    twin = make_baseline(asked.model, str(asked.argument("baseline", "all-mla")))
    if twin is None:
        raise ProfileError("the limit of a saving needs a baseline")
    dtypes = Dtypes(kv=str(asked.plan.inputs["kv_cache_dtype"]))
    return Holding(asked.model.mixers(), dtypes).growth(), Holding(twin.mixers(), dtypes).growth()


def _saving_limit(asked: Asked) -> Fraction:
    own, twin = _growth(asked)
    return 1 - own / twin


def _growth_ratio(asked: Asked) -> Fraction:
    own, twin = _growth(asked)
    return twin / own


def _latent_saving(asked: Asked) -> Fraction:
    """One token in one layer: a latent row against `kv_heads` keys and values of `head_dim`."""
    own = next((mixer for mixer in asked.model.mixers() if isinstance(mixer, Mla)), None)
    heads, width = int(asked.number("kv_heads")), int(asked.number("head_dim", 128))
    if own is None or heads < 1 or width < 1:
        raise ProfileError(f"{asked.name} needs an MLA layer, and the other side at least one head of one element")
    return 1 - Fraction(_entry(own), _entry(Full(heads, width, width)))


def _entry(layer: Layer) -> int:
    return sum(tensor.entry_bytes for tensor in layer.stored(Dtypes()))


def _tokens_per_entry(asked: Asked) -> int:
    """Compression of the growing cache of the layers of one kind."""
    kind = asked.argument("kind")
    for mixer in asked.model.mixers():
        if mixer.kind == kind:
            return max(tensor.tokens_per_entry for tensor in mixer.stored(Dtypes()) if tensor.grows)
    raise ProfileError(f"{asked.name} has no layer of kind {kind}")


def _crossing(name: str) -> Callable[[Asked], int]:
    def compute(asked: Asked) -> int:
        tokens: int | None = getattr(asked.plan.crossings, name)
        if tokens is None:
            raise ProfileError(f"{name} does not exist under these flags")
        return tokens

    return compute


def _engine(asked: Asked, name: str) -> Any:
    part = asked.plan.engine
    if part is None or part.get(name) is None:
        raise ProfileError(f"the engine of this plan gives no {name}; the flags have to name a pool")
    return part[name]


def _sequences(asked: Asked) -> int:
    if not asked.plan.capacity:
        raise ProfileError("sequences at once need flags that name a GPU or a pool")
    return asked.plan.capacity[-1].sequences


def _pool_tokens(asked: Asked) -> int:
    """Tokens of the growing cache that the pool of one rank holds, states aside."""
    pool = asked.plan.pool
    if pool is None:
        raise ProfileError("tokens of a pool need flags that name one")
    return int(pool.bytes / Fraction(_rank(asked).bytes_per_token))


def _expert_bytes(asked: Asked) -> Fraction:
    """One routed expert as served."""
    inventory = asked.model.weights
    layers = sum(any(weight.role == "expert" for weight in block) for block in inventory.blocks) if inventory else 0
    if not layers:
        raise ProfileError(f"{asked.name} has no routed experts whose shapes are known")
    stored = sum(line.bytes for line in weigh(asked.model, Layout()).lines if line.role == "expert")
    return Fraction(stored, layers * asked.model.num_experts)


def _residual_bytes(asked: Asked) -> int:
    """Attention Residuals: one row of the hidden size per block of layers and token in flight, in two bytes."""
    path = paths("models").get(asked.name)
    config: dict[str, Any] = load(path)["config"] if path else {}
    text = config.get("text_config", config)
    if "attn_res_block_size" not in text:
        raise ProfileError(f"{asked.name} is no bundled model with attn_res_block_size")
    return ceil_div(text["num_hidden_layers"], text["attn_res_block_size"]) * int(text["hidden_size"]) * 2


def _required(value: int | None, what: str) -> int:
    if value is None:
        raise ProfileError(f"the model states no {what}")
    return value


def _rank_weights(asked: Asked) -> int:
    part = asked.weighed_plan.per_rank
    return _required(part.weights_bytes if part else None, "weights per rank under these flags")


def _step(asked: Asked) -> Fraction:
    """Operations of one decode step, its terms weighted by the arguments: attention = "2" counts bf16 as two of fp8."""
    counted = step_flops(asked.model, parse_tokens(str(asked.argument("tokens"))))
    terms = ("linear", "attention", "index", "state")
    return sum((asked.number(term, 1) * getattr(counted, term) for term in terms), Fraction(0))


def _measured(what: str) -> Callable[[Asked], int]:
    def refuse(_: Asked) -> int:
        raise NeedsMeasurement(what)

    return refuse


_COLUMNS: dict[str, Sort] = {
    "total_bytes": "bytes", "kv_bytes": "bytes", "window_bytes": "bytes", "state_bytes": "bytes",
    "conv_bytes": "bytes", "index_bytes": "bytes", "snapshot_bytes": "bytes", "fixed_bytes": "bytes",
    "bytes_per_token": "bytes", "read_bytes_per_step": "bytes", "snapshots": "count",
}  # fmt: skip

QUANTITIES: dict[str, Quantity] = {
    **{name: Quantity(sort, _of_sequence(_whole, name)) for name, sort in _COLUMNS.items()},
    **{f"rank_{name}": Quantity(sort, _of_sequence(_rank, name)) for name, sort in _COLUMNS.items()},
    "moved_bytes_per_step": Quantity("bytes", _moved),
    "baseline_bytes": Quantity("bytes", _baseline_bytes(_whole)),
    "saving": Quantity("share", _saving(_whole)),
    "rank_saving": Quantity("share", _saving(_rank)),
    "saving_limit": Quantity("share", _saving_limit),
    "growth_ratio": Quantity("share", _growth_ratio),
    "latent_saving": Quantity("share", _latent_saving),
    "tokens_per_entry": Quantity("count", _tokens_per_entry),
    "break_even_tokens": Quantity("tokens", _crossing("break_even_tokens")),
    "rank_break_even_tokens": Quantity("tokens", _crossing("break_even_tokens_per_rank")),
    "blocks": Quantity("count", lambda asked: int(_engine(asked, "blocks_per_sequence")[-1]["blocks"])),
    "kv_cache_tokens": Quantity("tokens", lambda asked: int(_engine(asked, "kv_cache_tokens"))),
    "pool_tokens": Quantity("tokens", _pool_tokens),
    "sequences": Quantity("count", _sequences),
    "rank_weights_bytes": Quantity("bytes", _rank_weights),
    "weights_bytes": Quantity("bytes", lambda asked: _required(asked.weighed_plan.model.weights_bytes, "weights")),
    "params_total": Quantity("count", lambda asked: _required(asked.weighed_plan.model.params_total, "parameters")),
    "params_active": Quantity(
        "count", lambda asked: _required(asked.weighed_plan.model.params_active, "active parameters")
    ),
    "experts_share": Quantity("share", lambda asked: Fraction(asked.model.experts_per_token, asked.model.num_experts)),
    "expert_bytes": Quantity("bytes", _expert_bytes),
    "residual_bytes": Quantity("bytes", _residual_bytes),
    "step_flops": Quantity("count", _step),
    "given": Quantity("count", lambda asked: asked.number("value")),
    "decode_speedup": Quantity("share", decode_speedup),
    "batch_gain": Quantity("share", batch_gain),
    "async_subagents": Quantity("count", _measured("a trace of agents, which kvplan does not ship")),
}
