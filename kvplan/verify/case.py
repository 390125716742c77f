"""What is being verified: a model and a deployment, from the log and from whatever the user adds."""

from dataclasses import dataclass, field
from typing import Any

from kvplan.capacity import Evaluation, evaluate
from kvplan.deployment import make_deployment
from kvplan.errors import KvplanError, SourceError, UsageError
from kvplan.gpu import Gpu, find_gpu
from kvplan.launch import Launch, read_values
from kvplan.launch.tables import load_table
from kvplan.logs.figures import Facts
from kvplan.model import Model
from kvplan.sources import resolve
from kvplan.sources.spellings import bundled_like
from kvplan.weights import WeightReport

_WHOLE_CONFIG = 60
"""A log that prints so many flags prints all of them, defaults too."""
_TP_FLAGS = {"vllm": "tensor-parallel-size", "sglang": "tp-size"}
_ANY_POOL = 1 << 40


@dataclass(slots=True)
class Case:
    """One deployment as the log states it; `evaluate` works it out with some flags changed."""

    facts: Facts
    model: Model
    flags: dict[str, Any]
    gpu: Gpu | None = None
    named: str | None = None
    """The name that the log, or else the user, gives the served checkpoint."""
    complete: bool = True
    """Whether the engine's arguments are known, from the log or from a command beside it."""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _placed: Evaluation | None = field(default=None, init=False, repr=False)

    @property
    def max_model_len(self) -> int:
        return int(self.flags.get("max_model_len") or self.model.max_context_tokens or 131_072)

    def evaluate(self, weights: WeightReport | None = None, **changes: Any) -> Evaluation:
        """The deployment under one engine's rules. A pool in `changes` may exceed the GPU. Raises KvplanError."""
        given = changes.get("kv_cache_memory") is not None
        flags = {name: value for name, value in (self.flags | changes).items() if value is not None}
        if given:
            flags.pop("gpu_memory", None)
        gpu = None if given else self.gpu
        return evaluate(self.model, make_deployment(**flags), gpu, [self.max_model_len], weights)

    def figures(self, pool_bytes: int, **changes: Any) -> dict[str, Any]:
        """The engine's own figures for one pool; `changes` are flags that leave layout and dtypes alone."""
        if self._placed is None:
            self._placed = self.evaluate(kv_cache_memory=_ANY_POOL)
        placed = self._placed
        if placed.share is None:
            return {}
        flags = {name: value for name, value in (self.flags | changes).items() if value is not None}
        deployment = make_deployment(**flags)
        return placed.engine.allocate(placed.share, max(1, pool_bytes), deployment, [self.max_model_len]).figures


def make_case(facts: Facts, model: str | None, own: dict[str, Any], command: Launch | None = None) -> Case:
    """The log's flags, under those of a command given beside it, under the user's own.

    Raises UsageError where the log names no model that can be read.
    """
    _fill_ranks(facts)
    launch = read_values(facts.engine, _stated(facts))
    warnings, notes = list(launch.warnings), [*facts.notes, *launch.notes]
    flags = launch.flags
    if command is not None:
        if command.engine != facts.engine:
            raise UsageError(f"the log is {facts.engine}'s, the command is {command.engine}'s")
        flags = flags | command.flags
        warnings += command.warnings
    flags = {"engine": facts.engine} | flags | own
    if facts.version and "engine_version" not in own and facts.engine in ("vllm", "sglang"):
        flags["engine_version"] = facts.version
    logged = [str(name) for name in (launch.model, facts.values.get("hf-repo"), facts.values.get("alias")) if name]
    given = model or (command.model if command else None)
    if not given and not logged:
        raise UsageError("the log names no model; give it with --model")
    read, how = _find_model([given] if given else logged)
    if how is None and given and logged and given != logged[0]:
        how = f"the model is {given}, as given; the log says {logged[0][:80]}"
    notes += [how] if how else []
    named = logged[0] if logged else command.model if command else None
    complete = bool(facts.told) or command is not None or facts.engine not in ("vllm", "sglang")
    case = Case(facts, read, flags, _gpu(facts, flags, notes), named, complete, notes, warnings)
    _check(case)
    return case


def _fill_ranks(facts: Facts) -> None:
    """Where no line states --tp, the ranks that speak do: TP7 is one of eight, and widths are powers of two."""
    if facts.told or facts.engine not in _TP_FLAGS:
        return
    spoken = [int(word[2:]) for figure in facts.figures for word in figure.who.split() if word.startswith("TP")]
    if most := max(spoken, default=0):
        facts.fill(_TP_FLAGS[facts.engine], 1 << most.bit_length())
        facts.notes.append(f"--tp {1 << most.bit_length()}: from the ranks that speak, up to TP{most}")


def _find_model(names: list[str]) -> tuple[Model, str | None]:
    """(model, how it was found where it is not simply the first name). Bundled models come before anything fetched:
    the geometry of a quantised sibling is the same. Raises UsageError naming what to do."""
    if found := bundled_like(names):
        read, spelled = found
        return read, None if spelled == names[0] else f"{names[0]} is read as {read.name}"
    try:
        return resolve(names[0]), None
    except KvplanError as error:
        raise UsageError(f"the log's model cannot be read ({error}); give it with --model") from None


def _stated(facts: Facts) -> dict[str, Any]:
    """The flags that the log states. Where it lists every flag, those at rest say nothing about memory."""
    if len(facts.values) < _WHOLE_CONFIG:
        return facts.values
    table = load_table(facts.engine)
    return {
        flag: value
        for flag, value in facts.values.items()
        if flag in table.modelled
        or table.name(f"--{flag}")[0] in table.modelled
        or (flag in table.memory and value is True)
    }


def _gpu(facts: Facts, flags: dict[str, Any], notes: list[str]) -> Gpu | None:
    """The GPU asked for, else the one that the log names, where kvplan knows it."""
    if flags.get("gpu"):
        return find_gpu(str(flags["gpu"]).partition(":")[0])
    if facts.gpu is None:
        return None
    try:
        gpu = find_gpu(facts.gpu)
    except KvplanError:
        notes.append(f"the log names a GPU that kvplan does not know: {facts.gpu[:60]}")
        return None
    flags["gpu"] = gpu.name
    return gpu


def _check(case: Case) -> None:
    """Work the case out once, to say in the log's words what stands in the way.

    A version that the engine's rules do not reach is answered with the newest rules, and said. Raises UsageError for a
    draft that cannot be read: logs name it by a path of their own machine.
    """
    try:
        case.evaluate(kv_cache_memory=_ANY_POOL)
    except SourceError as error:
        raise UsageError(f"the log's draft model cannot be read ({error}); give it with --draft") from None
    except UsageError as error:
        if "--engine-version" not in str(error) or "engine_version" not in case.flags:
            raise
        case.warnings.append(f"{error}; the newest rules are used")
        case.flags.pop("engine_version")
        _check(case)
