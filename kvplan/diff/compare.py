"""What differs between two plans. Reads documents; plans nothing."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from kvplan import __version__
from kvplan.diff.read import Bytes, PlanDocument
from kvplan.diff.rules import RuleChange, rule_changes
from kvplan.errors import NO, YES, UsageError

Value = str | int | float | bool | None

_SILENT = {"name", "rules"}
"""Parts of the engine's figures that are shown elsewhere."""
_LARGEST = 10**30
"""Figures beyond it are no counts, and have no percentage."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in both plans; None where a plan lacks it."""

    name: str
    before: Value
    after: Value
    context_tokens: int | None = None

    @property
    def share(self) -> Fraction | None:
        """(after − before) / before; None where that has no meaning."""
        if not _is_number(self.before) or not _is_number(self.after) or not self.before:
            return None
        share = (Fraction(self.after) - Fraction(self.before)) / Fraction(self.before)  # type: ignore[arg-type]
        return share if abs(share) <= _LARGEST else None

    def to_dict(self) -> dict[str, Any]:
        share = self.share
        return asdict(self) | {"change": None if share is None else float(share)}


@dataclass(frozen=True, slots=True)
class Diff:
    """Two plans, before and after. The lists hold what differs, `capacity` every length."""

    before: str
    after: str
    limit: Fraction | None
    inputs: list[Change]
    sizes: list[Change]
    pool: list[Change]
    engine: list[Change]
    rules: list[RuleChange]
    capacity: list[Change]
    """Sequences of one replica."""
    deployment: list[Change]
    """Sequences of all replicas, which the limit applies to."""
    binds: dict[int, tuple[str | None, str | None]]

    @property
    def worst(self) -> Change | None:
        """The length that lost most; None where no length lost anything."""
        lost = [row for row in self.deployment if row.share is not None and row.share < 0]
        return min(lost, key=lambda row: row.share or 0, default=None)

    @property
    def too_much(self) -> bool:
        worst = self.worst
        return self.limit is not None and worst is not None and -(worst.share or 0) > self.limit

    @property
    def exit_code(self) -> int:
        return NO if self.too_much else YES

    def to_dict(self) -> dict[str, Any]:
        worst = self.worst
        return {
            "schema": "kvplan.diff/1",
            "kvplan_version": __version__,
            "inputs": {
                "before": self.before,
                "after": self.after,
                "fail_if_capacity_drops": None if self.limit is None else float(self.limit),
            },
            "assumptions": [],
            "inputs_changed": [row.to_dict() for row in self.inputs],
            "bytes": [row.to_dict() for row in self.sizes],
            "pool": [row.to_dict() for row in self.pool],
            "engine": [row.to_dict() for row in self.engine],
            "rules": [asdict(rule) for rule in self.rules],
            "capacity": [row.to_dict() for row in self.capacity],
            "deployment_capacity": [row.to_dict() for row in self.deployment],
            "verdict": {"drops_too_much": self.too_much, "worst": worst.to_dict() if worst else None},
        }


def compare(before: PlanDocument, after: PlanDocument, names: tuple[str, str], limit: Fraction | None = None) -> Diff:
    """Everything that differs. With a `limit` both plans need a capacity at a common length; else UsageError."""
    changed = Diff(
        before=names[0],
        after=names[1],
        limit=limit,
        inputs=_differing(_flat_inputs(before), _flat_inputs(after)),
        sizes=_sizes(before, after),
        pool=_differing(_flat_pool(before), _flat_pool(after)),
        engine=_differing(_flat_engine(before.engine), _flat_engine(after.engine)),
        rules=rule_changes(before, after),
        capacity=_capacity(before, after, "sequences"),
        deployment=_capacity(before, after, "deployment_sequences"),
        binds=_binds(before, after),
    )
    if limit is not None and not any(None not in (row.before, row.after) for row in changed.capacity):
        raise UsageError("--fail-if-capacity-drops: the plans share no context with a capacity; plan both for a GPU")
    return changed


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


_Key = tuple[str, int | None]


def _differing(before: dict[_Key, Value], after: dict[_Key, Value]) -> list[Change]:
    keys = dict.fromkeys([*before, *after])
    rows = [Change(name, before.get((name, at)), after.get((name, at)), at) for name, at in keys]
    return [row for row in rows if row.before != row.after]


def _flat_inputs(plan: PlanDocument) -> dict[_Key, Value]:
    return {(name, None): _plain(value) for name, value in plan.inputs.items()}


def _plain(value: Any) -> Value:
    return value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value)


def _flat_pool(plan: PlanDocument) -> dict[_Key, Value]:
    return {(name, None): value for name, value in plan.pool.model_dump().items()} if plan.pool else {}


def _flat_engine(engine: dict[str, Any] | None) -> dict[_Key, Value]:
    figures = {name: value for name, value in (engine or {}).items() if name not in _SILENT}
    return {key: value for name, figure in figures.items() for key, value in _flat(name, figure)}


def _flat(name: str, value: Any) -> Iterator[tuple[_Key, Value]]:
    """A figure's parts: nested names joined with dots, lists over contexts by their context."""
    if isinstance(value, dict):
        for part, inner in value.items():
            yield from _flat(f"{name}.{part}", inner)
    elif _by_context(value):
        for row in value:
            rest = {part: inner for part, inner in row.items() if part != "context_tokens"}
            for part, inner in rest.items():
                yield (f"{name}.{part}" if len(rest) > 1 else name, row["context_tokens"]), _plain(inner)
    else:
        yield (name, None), _plain(value)


def _by_context(value: Any) -> bool:
    """Whether a list has one object per context."""
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) for row in value):
        return False
    return all(isinstance(row.get("context_tokens"), int) for row in value)


def _sizes(before: PlanDocument, after: PlanDocument) -> list[Change]:
    rows = [Change("model.weights_bytes", before.model.weights_bytes, after.model.weights_bytes)]
    ranks = [plan.per_rank.weights_bytes if plan.per_rank else None for plan in (before, after)]
    rows.append(Change("per_rank.weights_bytes", *ranks))
    found = [row for row in rows if row.before != row.after]
    found += _differing(
        _flat_bytes("per_sequence", before.per_sequence), _flat_bytes("per_sequence", after.per_sequence)
    )
    shares = [plan.per_rank.sequences if plan.per_rank else [] for plan in (before, after)]
    return found + _differing(_flat_bytes("per_rank", shares[0]), _flat_bytes("per_rank", shares[1]))


def _flat_bytes(where: str, rows: list[Bytes]) -> dict[_Key, Value]:
    return {
        (f"{where}.{name}", row.context_tokens): size
        for row in rows
        for name, size in row.model_dump().items()
        if name != "context_tokens"
    }


def _capacity(before: PlanDocument, after: PlanDocument, name: str) -> list[Change]:
    counts = [{row.context_tokens: getattr(row, name) for row in plan.capacity} for plan in (before, after)]
    return [Change(name, counts[0].get(at), counts[1].get(at), at) for at in sorted({*counts[0], *counts[1]})]


def _binds(before: PlanDocument, after: PlanDocument) -> dict[int, tuple[str | None, str | None]]:
    found = [{row.context_tokens: row.binds for row in plan.capacity} for plan in (before, after)]
    return {at: (found[0].get(at), found[1].get(at)) for at in sorted({*found[0], *found[1]})}
