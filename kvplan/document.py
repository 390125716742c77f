"""The plan as a document: the names that scripts rely on, schema `kvplan.plan/1`."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Binds = Literal["kv", "state", "window", "slots", "weights", "max_num_seqs", "max_running_requests", "tpot", "ttft"]


ENGINE_FIGURES = (
    "block_tokens", "page_bytes", "group_layers", "groups", "padding_layers", "layer_padding_fraction",
    "page_padding_fraction", "num_blocks", "blocks_per_sequence", "kv_cache_tokens", "max_concurrency", "state_slots",
    "max_running_requests",
)  # fmt: skip
"""Every engine's part has these; null where an engine has no such thing. Engines add their own."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """One thing that the figures rest on."""

    name: str
    value: str | int | float | bool | None
    kind: Literal["given", "derived", "measured", "assumed"]
    source: str = ""


@dataclass(frozen=True, slots=True)
class ModelPart:
    name: str
    source: str
    architecture: str
    layers: dict[str, int]
    params_total: int | None
    params_active: int | None
    weights_bytes: int | None
    weights_kind: str | None
    max_context_tokens: int | None


@dataclass(frozen=True, slots=True)
class BaselineTotal:
    name: str
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """What one sequence of this length keeps. bytes = fixed + slope × tokens holds at this length."""

    context_tokens: int
    kv_bytes: int
    window_bytes: int
    state_bytes: int
    conv_bytes: int
    index_bytes: int
    snapshot_bytes: int
    total_bytes: int
    bytes_per_token: int | float
    fixed_bytes: int | float
    snapshots: int
    read_bytes_per_step: int
    baseline: BaselineTotal | None
    saving: float | None


@dataclass(frozen=True, slots=True)
class LedgerLine:
    context_tokens: int | None
    owner: str
    name: str
    scope: str
    role: str
    bytes: int
    formula: str
    kind: str
    source: str


@dataclass(frozen=True, slots=True)
class PerRank:
    sequences: list[Sequence]
    weights_bytes: int | None
    weights_source: str
    layout: dict[str, int]


@dataclass(frozen=True, slots=True)
class Crossings:
    """Lengths at which the comparison turns. None: it never does."""

    break_even_tokens: int | None
    """The smallest context at which the model stores no more than its baseline."""
    break_even_tokens_per_rank: int | None
    snapshot_equals_kv_tokens: int | None
    """Up to here one snapshot is at least as large as the sequence's own growing cache."""


@dataclass(frozen=True, slots=True)
class PoolBreakdown:
    total_bytes: int | None
    weights_bytes: int | None
    activation_bytes: int | None
    graphs_bytes: int | None
    other_bytes: int | None


@dataclass(frozen=True, slots=True)
class PoolPart:
    bytes: int
    low_bytes: int
    high_bytes: int
    source: Literal["given", "predicted", "logged"]
    breakdown: PoolBreakdown


@dataclass(frozen=True, slots=True)
class Capacity:
    context_tokens: int
    sequences: int
    packed: int
    low: int
    high: int
    deployment_sequences: int
    node_sequences: int
    ideal: int
    binds: Binds


@dataclass(frozen=True, slots=True)
class TrySequences:
    context_tokens: int
    sequences: int


@dataclass(frozen=True, slots=True)
class Try:
    flags: str
    sequences: list[TrySequences]


@dataclass(frozen=True, slots=True)
class Verdict:
    fits: Literal["yes", "no", "close"]
    reason: str
    try_: list[Try]


@dataclass(frozen=True, slots=True)
class Ends:
    """A time or rate between two ends. `value` is None where there are bounds alone, which have no middle."""

    value: float | None
    low: float
    high: float
    how: Literal["exact", "measured", "fitted", "published", "datasheet", "assumed", "bounds"]


@dataclass(frozen=True, slots=True)
class StepTime:
    """One decode step of `sequences` sequences of this length on one replica."""

    context_tokens: int
    sequences: int
    tpot_ms: Ends
    tokens_per_s_each: Ends
    tokens_per_s_per_gpu: Ends


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Seconds to the first token of one session of this length, alone on one replica."""

    context_tokens: int
    replay_tokens: int
    """Of a resumed session: what follows its last snapshot."""
    new_tokens: int
    cold_s: Ends
    resumed_s: Ends
    reloaded_s: Ends | None
    """Cache and state from the host first; None where the GPU's profile has no link to it."""


@dataclass(frozen=True, slots=True)
class TermTime:
    """One kind of kernel in a step or prefill, all its calls on one rank together."""

    name: str
    calls: int
    bytes: int
    flops: int
    seconds: Ends
    source: str


@dataclass(frozen=True, slots=True)
class TimeCrossings:
    reads_equal_state_tokens: int | None
    """The smallest context whose cache reads are at least the state's read and write; None where there is none."""
    reads_equal_state_tokens_per_rank: int | None
    reload_context_tokens: int
    reload_bytes_per_s: Ends
    """The rate from which reloading a session of that length beats computing it again, over all ranks."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds from a calibration. `basis`: of this GPU, scaled from one of its architecture, or bounds alone."""

    calibration: str
    basis: Literal["measured", "scaled", "bounds"]
    says: str
    decode: list[StepTime]
    """Empty, as are the lists below, where not one sequence can be held."""
    first_token: list[FirstToken]
    decode_terms: list[TermTime]
    """The last row of `decode`."""
    prefill_terms: list[TermTime]
    """A cold prefill of the longest context."""
    crossings: TimeCrossings


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that `kvplan estimate` knows; every table is a view of it."""

    kvplan_version: str
    inputs: dict[str, Any]
    assumptions: list[Assumption]
    model: ModelPart
    per_sequence: list[Sequence]
    crossings: Crossings
    per_rank: PerRank | None
    engine: dict[str, Any] | None
    pool: PoolPart | None
    capacity: list[Capacity]
    verdict: Verdict | None
    run: str | None
    """The engine's command for the deployment, with the flags of the last suggestion."""
    ledger: list[LedgerLine]
    latency: Times | None = None
    """None without --calibration or a limit on time."""
    schema_: Literal["kvplan.plan/1"] = "kvplan.plan/1"

    def to_dict(self) -> dict[str, Any]:
        """The document as JSON takes it, the schema first."""
        fields: dict[str, Any] = asdict(self, dict_factory=_plain_names)
        return {"schema": fields.pop("schema")} | fields


def _plain_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """`try` and `schema` carry an underscore in Python, where `try` is a keyword."""
    return {name.rstrip("_"): value for name, value in pairs}
