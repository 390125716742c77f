"""The plan as a document: the names that scripts rely on, schema `kvplan.plan/1`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

SCHEMA = "kvplan.plan/1"
Binds = Literal["kv", "state", "window", "slots", "weights", "max_num_seqs", "max_running_requests", "tpot"]


class Part(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        serialize_by_alias=True,
        validate_by_name=True,
        alias_generator=lambda name: name.rstrip("_"),  # `try` and `schema` are taken in Python
    )


class Assumption(Part):
    """One thing that the figures rest on."""

    name: str
    value: str | int | float | bool | None
    kind: Literal["given", "derived", "measured", "assumed"]
    source: str = ""


class ModelPart(Part):
    name: str
    source: str
    architecture: str
    layers: dict[str, int]
    params_total: int | None
    params_active: int | None
    weights_bytes: int | None
    weights_kind: str | None
    max_context_tokens: int | None


class BaselineTotal(Part):
    name: str
    total_bytes: int


class Sequence(Part):
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


class LedgerLine(Part):
    context_tokens: int | None
    owner: str
    name: str
    scope: str
    role: str
    bytes: int
    formula: str
    kind: str
    source: str


class PerRank(Part):
    sequences: list[Sequence]
    weights_bytes: int | None
    weights_source: str
    layout: dict[str, int]


class Crossings(Part):
    """Lengths at which the comparison turns. None: it never does."""

    break_even_tokens: int | None
    """The smallest context at which the model stores no more than its baseline."""
    break_even_tokens_per_rank: int | None
    snapshot_equals_kv_tokens: int | None
    """Up to here one snapshot is at least as large as the sequence's own growing cache."""


class PoolBreakdown(Part):
    total_bytes: int | None
    weights_bytes: int | None
    activation_bytes: int | None
    graphs_bytes: int | None
    other_bytes: int | None


class PoolPart(Part):
    bytes: int
    low_bytes: int
    high_bytes: int
    source: Literal["given", "predicted", "logged"]
    breakdown: PoolBreakdown


class Capacity(Part):
    context_tokens: int
    sequences: int
    packed: int
    low: int
    high: int
    deployment_sequences: int
    node_sequences: int
    ideal: int
    binds: Binds


class TrySequences(Part):
    context_tokens: int
    sequences: int


class Try(Part):
    flags: str
    sequences: list[TrySequences]


class Verdict(Part):
    fits: Literal["yes", "no", "close"]
    reason: str
    try_: list[Try]


class Plan(Part):
    """Everything that `kvplan estimate` knows; every table is a view of it."""

    schema_: Literal["kvplan.plan/1"] = SCHEMA
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
    ledger: list[LedgerLine]
