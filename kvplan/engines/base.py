"""The contract between an engine's rules and everything after them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from kvplan.deployment import Deployment, Layout
from kvplan.document import Assumption, Binds
from kvplan.dtypes import Dtypes
from kvplan.engines._command import CommandLine
from kvplan.errors import UsageError
from kvplan.layers.base import Layer
from kvplan.ledger import Holding
from kvplan.model import Model
from kvplan.pool import Pool, bytes_only_pool


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank has to hold: per pipeline stage, its part of every mixer."""

    model: Model
    layout: Layout
    dtypes: Dtypes
    stages: list[list[Layer]]

    def holdings(self) -> list[Holding]:
        return [Holding(stage, self.dtypes, self.layout.dcp) for stage in self.stages]


@dataclass(frozen=True, slots=True)
class Fit:
    """How many sequences of one length fit one replica."""

    context_tokens: int
    sequences: int
    """What stays safe while all of them decode."""
    packed: int
    """What prefill alone would admit."""
    binds: Binds


@dataclass(frozen=True, slots=True)
class Allocation:
    """A pool in the engine's own units."""

    fits: tuple[Fit, ...]
    figures: dict[str, Any] = field(default_factory=dict)
    """The engine's own figures, under the names of the plan document."""
    assumptions: tuple[Assumption, ...] = ()
    """Defaults of the engine that were filled in."""


@dataclass(frozen=True, slots=True)
class Loading:
    """Which weights an engine loads and how it pads them, as `kvplan.weights.weigh` takes them."""

    with_mtp: bool = False
    with_vision: bool = True
    moe_shard_multiple: int = 1
    experts_over_dp: bool = False
    """Whether replicas that `--dp` makes share the routed experts even without expert parallelism."""


@dataclass(frozen=True, slots=True)
class Units:
    """A pool as sequences of different lengths fill it together, in the unit that the engine hands out."""

    name: str
    """What one is, in the plural: "blocks", "tokens", "bytes"."""
    capacity: int
    of: Callable[[int], int]
    """Units that a sequence of so many tokens holds; never fewer for a longer one."""
    rule: str
    """`of` in words."""
    most_running: int | None = None
    """Sequences that may run at once, whatever their length."""
    most_open: int | None = None
    """Sequences that can be kept at all, whatever their length: slots."""
    key: Hashable = None
    """Pools of one model with equal keys have equal `of`; None says nothing."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """A pool as a prefix cache: what a context that nobody works on keeps, and where it can be resumed."""

    keeps: Literal["blocks", "pages"]
    """Blocks: vLLM's, shared by caches and states. Pages: tokens in one pool, states in slots of another."""
    capacity: int
    """Blocks, or pages."""
    block_tokens: int
    shares: int = 1
    """Ranks that a block of those that grow is spread over; capacity and states then count in shares of a block."""
    lists: int = 1
    """Blocks that so many tokens take together: one of each group that grows."""
    state_units: int = 0
    """Blocks of one saved state; 0 where the model keeps none."""
    states_first: bool = True
    """Whether groups of states are let go before those that grow."""
    retention_tokens: int | None = 0
    """Tokens between saved states; 0 keeps resume points alone, None every boundary that a step ends on."""
    step_tokens: int = 8192
    """Most tokens of a prefill step."""
    slots: int | None = None
    slots_per_request: int = 1
    track_tokens: int = 1
    """Grid on which slots are saved."""
    assumptions: tuple[Assumption, ...] = ()


class Engine(ABC):
    """One engine's rules. A module in `kvplan.engines` makes itself known by a module-level `ENGINE`."""

    name: ClassVar[str]
    rules_version: ClassVar[str]
    source: ClassVar[str]
    command_line: ClassVar[CommandLine | None] = None
    """How the engine is started; None where it has no command that kvplan can spell."""

    @abstractmethod
    def dtypes(self, model: Model, deployment: Deployment) -> Dtypes:
        """Every `auto` resolved as this engine does."""

    def pool(self, share: "Share", memory_bytes: int, weights_bytes: int, deployment: Deployment) -> Pool:
        """The pool of one rank with `memory_bytes` of memory and `weights_bytes` of weights, when it is not given."""
        return bytes_only_pool(memory_bytes, weights_bytes, deployment.gpu_memory_utilization)

    def loading(self, model: Model, deployment: Deployment) -> Loading:
        """What of the checkpoint ends up in memory."""
        return Loading()

    def state_reason(self, model: Model) -> str:
        """Why `auto` became the state dtype that it became."""
        return "the config asks for it" if model.state_dtype else "the engine's default"

    def says(self, figures: dict[str, Any]) -> str:
        """The figures of an allocation in one sentence; empty where there is nothing to say."""
        return ""

    def units(self, share: Share, pool_bytes: int, deployment: Deployment, max_model_len: int) -> Units:
        """The pool as open sessions share it. Raises UsageError where the engine's rules for that are not modelled."""
        raise UsageError(
            f"--engine {self.name}: sessions of different lengths in one pool are not modelled; use vllm, sglang, ideal"
        )

    def reuse(self, share: Share, pool_bytes: int, deployment: Deployment, max_model_len: int) -> Reuse | None:
        """The pool as a prefix cache; None where the engine's is not modelled, so that contexts count as wholes.

        Raises UsageError where flags rule out that anything is found again.
        """
        return None

    @abstractmethod
    def allocate(self, share: Share, pool_bytes: int, deployment: Deployment, contexts: list[int]) -> Allocation:
        """What a pool of `pool_bytes` per rank becomes, and how many sequences of each length it holds."""


def snapshots_of(deployment: Deployment, tokens: int) -> int:
    """Saved copies of the state in a sequence of so many tokens: one every N, the end included, or a fixed count."""
    if deployment.snapshot_every is not None:
        return tokens // deployment.snapshot_every
    return deployment.snapshots or 0


def resolve_dtypes(model: Model, deployment: Deployment, *, kv_auto: str, state_auto: str, conv_auto: str) -> Dtypes:
    """The deployment's dtypes, with an engine's own answers where the user left `auto`."""
    kv, state = deployment.kv_cache_dtype, deployment.mamba_ssm_dtype
    return Dtypes(
        kv=kv_auto if kv == "auto" else kv,
        index=deployment.index_dtype,
        state=state_auto if state == "auto" else state,
        conv=conv_auto if deployment.conv_state else None,
    )
