"""How much faster a model decodes than its twin, from a calibration: at one batch, or at what fits each."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from kvplan.deployment import gpu_and_count, make_deployment
from kvplan.errors import ProfileError
from kvplan.gpu import find_gpu
from kvplan.interval import Interval
from kvplan.latency import Clock, make_clock
from kvplan.latency.compare import times_faster
from kvplan.sources import resolve

if TYPE_CHECKING:
    from kvplan.claims.quantities import Asked


@dataclass(frozen=True, slots=True)
class _Side:
    clock: Clock
    sequences: int


def decode_speedup(asked: "Asked") -> Interval:
    """Tokens per second of the model over those of its twin, with the arguments

    calibration, twin (default NAME-all-mla), batch: "fits" (the most that fits each), "twin" (as many as fit the twin,
    for both) or a number for both. Raises ProfileError where nothing fits or an argument is wrong.
    """
    batch, name = str(asked.argument("batch", "fits")), str(asked.argument("calibration", "auto"))
    twin = type(asked)(str(asked.argument("twin", f"{asked.name}-all-mla")), asked.flags, {})
    own, other = _side(asked, name), _side(twin, name)
    if batch != "fits":
        both = other.sequences if batch == "twin" else int(batch) if batch.isdecimal() else 0
        if not both:
            raise ProfileError(f'arguments.batch {batch[:20]!r} is not "fits", "twin" or a number of sequences')
        own, other = _Side(own.clock, both), _Side(other.clock, both)
    tokens = asked.plan.capacity[-1].context_tokens
    ratio = times_faster(
        own.clock.decode_terms(own.sequences, tokens), other.clock.decode_terms(other.sequences, tokens)
    )
    return ratio.scaled(own.sequences / other.sequences)


def batch_gain(asked: "Asked") -> Interval:
    """Tokens per second of the model at the most that fits it, over those at the most that fits its twin.

    Arguments: calibration and twin, as for decode_speedup.
    """
    name = str(asked.argument("calibration", "auto"))
    twin = type(asked)(str(asked.argument("twin", f"{asked.name}-all-mla")), asked.flags, {})
    own, fewer = _side(asked, name), _side(twin, name).sequences
    tokens = asked.plan.capacity[-1].context_tokens
    ratio = times_faster(own.clock.decode_terms(own.sequences, tokens), own.clock.decode_terms(fewer, tokens))
    return ratio.scaled(own.sequences / fewer)


def _side(asked: "Asked", calibration: str) -> _Side:
    if not asked.plan.capacity or not asked.plan.capacity[-1].sequences:
        raise ProfileError(f"{asked.name}: not one sequence fits under these flags, so there is no speed to compare")
    clock = _clock(asked.name, tuple(sorted(asked.flags.items())), calibration)
    return _Side(clock, asked.plan.capacity[-1].sequences)


@cache
def _clock(name: str, flags: tuple[tuple[str, str | int | float | bool], ...], calibration: str) -> Clock:
    deployment = make_deployment(**dict(flags))
    if deployment.gpu is None:
        raise ProfileError("a speed needs flags.gpu")
    gpu = find_gpu(gpu_and_count(deployment.gpu)[0])
    clock = make_clock(resolve(name), deployment, gpu, calibration)
    if clock.basis == "bounds":
        raise ProfileError(f"a speed on {gpu.name} needs a calibration of its architecture; {calibration} gives bounds")
    return clock
