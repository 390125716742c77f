"""Flags of one engine, sorted into what kvplan models, what touches memory all the same, and what does not matter."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from kvplan.deployment import Deployment
from kvplan.launch import llamacpp, sglang, trtllm, vllm
from kvplan.launch.tables import Table, load_table

_OFF: tuple[Any, ...] = (None, False, "", 0, "0", "0.0", "none", "None", "null", "{}", {}, [], ())
_ENGINES: dict[str, Callable[[dict[str, Any], "Reading"], None]] = {
    "vllm": vllm.translate, "sglang": sglang.translate, "llamacpp": llamacpp.translate, "trtllm": trtllm.translate,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Launch:
    """A deployment as an engine's command line states it."""

    engine: str
    model: str | None
    flags: dict[str, Any]
    """For make_deployment; only flags that the command names, or that the engine's default settles."""
    spelled: dict[str, str] = field(default_factory=dict)
    """Flag of kvplan → the engine's flag that set it."""
    warnings: tuple[str, ...] = ()
    """What touches memory and is not modelled."""
    notes: tuple[str, ...] = ()
    served: str | None = None
    """The checkpoint's name with what it says about its weights, where that is more than `model`."""


@dataclass(slots=True)
class Reading:
    """What is collected while the flags are sorted."""

    table: Table
    model: str | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    served: str | None = None

    def set(self, name: str, value: Any, flag: str) -> None:
        """Take a flag over under kvplan's name; where kvplan has none by that name, it is not modelled."""
        if name not in Deployment.model_fields:
            self.unmodelled(flag)
            return
        if _refused(name, value):
            self.unmodelled(flag, f"the value {str(value)[:40]}")
            return
        self.flags[name] = value
        self.spelled[name] = flag

    def unmodelled(self, flag: str, why: str = "") -> None:
        reason = f": {why}" if why else ""
        self.warnings.append(f"--{flag} touches memory and is not modelled{reason}")

    def rest(self, values: dict[str, Any]) -> None:
        """Take over every flag that needs no translation."""
        for flag, value in values.items():
            self.set(self.table.modelled[flag], value, flag)

    def launch(self) -> Launch:
        flags = {name: value for name, value in self.flags.items() if value is not None}
        return Launch(
            self.table.engine, self.model, flags, self.spelled,
            tuple(dict.fromkeys(self.warnings)), tuple(dict.fromkeys(self.notes)), self.served,
        )  # fmt: skip


def read_values(engine: str, values: dict[str, Any]) -> Launch:
    """A Launch from flags that are already paired with their values, under the engine's names with dashes."""
    table = load_table(engine)
    into = Reading(table)
    modelled: dict[str, Any] = {}
    for flag, value in _flattened(values, table).items():
        if flag in table.modelled:
            modelled[flag] = value
        elif flag in table.memory:
            if not _is_off(value):
                into.unmodelled(flag, table.memory[flag])
        elif flag in table.environment_memory:
            if "=" in flag or not _is_off(value):
                into.warnings.append(f"{flag} touches memory and is not modelled: {table.environment_memory[flag]}")
        elif flag not in table.ignored:
            into.notes.append(f"--{flag[:60]} is not a flag of {engine} that kvplan knows; it is left out")
    _ENGINES[engine](modelled, into)
    return into.launch()


def _refused(name: str, value: Any) -> bool:
    """Whether the flag is a choice and kvplan does not model this one. Other mistakes are make_deployment's to name."""
    try:
        Deployment.model_validate({name: value})
    except ValidationError as error:
        return any(found["type"] == "literal_error" for found in error.errors())
    return False


def _is_off(value: Any) -> bool:
    return any(value is off or (type(value) is type(off) and value == off) for off in _OFF)


def _flattened(values: dict[str, Any], table: Table) -> dict[str, Any]:
    """Mappings whose keys are flags in their own right, spelled out: `kv-cache-config.dtype`."""
    nested = {flag.partition(".")[0] for flag in (*table.modelled, *table.memory) if "." in flag}
    found: dict[str, Any] = {}
    for flag, value in values.items():
        if flag in nested and isinstance(value, dict):
            found |= {f"{flag}.{str(key).replace('_', '-')}": inner for key, inner in value.items()}
        else:
            found[flag] = value
    return found
