"""Several models, or one on several GPUs, side by side: each worked out, or refused with its reason."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvplan.capacity import Evaluation, evaluate
from kvplan.deployment import Deployment, make_deployment
from kvplan.document import Assumption, Plan
from kvplan.errors import KvplanError, UsageError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.plan import DEFAULT_CONTEXT, plan, settle
from kvplan.sources import resolve


@dataclass(frozen=True, slots=True)
class Asked:
    """One column of a comparison before it is worked out."""

    label: str
    model: str | Model
    flags: dict[str, Any]
    notes: tuple[Assumption, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One model under its flags, worked out. `contexts` are the lengths asked about that the model reaches."""

    label: str
    flags: dict[str, Any]
    model: Model
    deployment: Deployment
    gpu: Gpu | None
    contexts: tuple[int, ...]
    now: Evaluation
    plan: Plan

    @property
    def limit_tokens(self) -> int:
        """The engine's limit on a sequence."""
        return int(self.plan.inputs["max_model_len"])


@dataclass(frozen=True, slots=True)
class Refused:
    """A column that cannot be worked out."""

    label: str
    reason: str


def gpus_named(text: str) -> list[str]:
    """`B300:8, H200` as its names. Raises UsageError where there is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--gpu names no GPU; write NAME or NAME:COUNT, with commas between several")
    return names


def product(
    models: Sequence[tuple[str | Model, dict[str, Any], Iterable[Assumption]]], gpus: Sequence[str | None]
) -> list[Asked]:
    """Every model on every GPU, labelled by what differs. An empty list of GPUs leaves the flags as they are."""
    found = []
    for model, flags, notes in models:
        name = model if isinstance(model, str) else model.name
        for gpu in gpus or [None]:
            given = flags if gpu is None else flags | {"gpu": gpu}
            parts = [name] if len(models) > 1 or not gpu or len(gpus) == 1 else []
            label = ", ".join(parts + ([gpu] if gpu and len(gpus) > 1 else []))
            found.append(Asked(label, model, given, tuple(notes)))
    return found


def read_cases(
    columns: Sequence[Asked], progress: Callable[[str], None] = lambda label: None
) -> tuple[list[Case], list[Refused]]:
    """What could be worked out, and what was refused. Raises the first error where nothing could.

    A length beyond a model's maximum is left out for that model; without --context every one is asked about the usual
    length and the maximum of each.
    """
    models: dict[str, Model] = {}
    errors: dict[str, KvplanError] = {}
    for one in columns:
        try:
            models[one.label] = resolve(one.model) if isinstance(one.model, str) else one.model
        except KvplanError as error:
            errors[one.label] = error
    lengths = _usual(list(models.values()))
    cases = []
    for one in (one for one in columns if one.label in models):
        progress(one.label)
        try:
            cases.append(_case(one, models[one.label], lengths))
        except KvplanError as error:
            errors[one.label] = error
    refused = [Refused(one.label, _line(errors[one.label])) for one in columns if one.label in errors]
    if not cases:
        first = refused[0]
        named = first.reason if first.label in first.reason else f"{first.label}: {first.reason}"
        raise type(errors[first.label])(named if len(refused) > 1 else first.reason)
    return cases, refused


def _line(error: KvplanError) -> str:
    return " ".join(str(error).split())


def _usual(models: list[Model]) -> list[int]:
    """The lengths asked about where none are given, for all models together."""
    known = {model.max_context_tokens for model in models if model.max_context_tokens is not None}
    return sorted({min(DEFAULT_CONTEXT, most) for most in known} | known)


def _case(one: Asked, model: Model, usual: list[int]) -> Case:
    flags = _within(model, one.flags, usual)
    read, deployment, gpu, contexts = settle(model, **flags)
    now = evaluate(read, deployment, gpu, contexts)
    made = plan(read, notes=one.notes, **flags)
    return Case(one.label, flags, read, deployment, gpu, tuple(contexts), now, made)


def _within(model: Model, flags: dict[str, Any], usual: list[int]) -> dict[str, Any]:
    """The flags with the lengths that the model reaches; as they are where that leaves none."""
    most, deployment = model.max_context_tokens, make_deployment(**flags)
    asked = list(deployment.context)
    if not asked and deployment.max_model_len is None and most is not None:
        asked = usual
    fitting = [tokens for tokens in asked if most is None or tokens <= most]
    return flags | {"context": ",".join(map(str, fitting))} if fitting else flags
