"""How long a replica takes to prefill: measured kernels where there are some, else a rate that someone states."""

from dataclasses import dataclass
from typing import Protocol

from kvplan.agents.idle import Replica
from kvplan.document import Assumption
from kvplan.errors import UsageError
from kvplan.interval import Interval
from kvplan.latency import make_clock

_K3_NODE = Interval(18_500.0, 15_000.0, 22_000.0, "published")
"""Kimi K3 on 8 × B300 from the times to first token at 8,193 and 16,385 tokens: 0.51-0.54 s and 0.86-0.91 s; the upper
end is what the second 8,192 tokens take (flashinfer-ai/flashinfer pull request 4445, 2026)."""


LEAST_RATE, MOST_RATE = 0.001, 1_000_000_000


class Prefill(Protocol):
    """Seconds for one replica to prefill `new_tokens` after `start_tokens` that are already cached."""

    def prefill_s(self, new_tokens: int, start_tokens: int) -> Interval: ...


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """The same tokens per second at every length: too fast for long prompts of a model with full attention."""

    tokens_per_s: Interval

    def prefill_s(self, new_tokens: int, start_tokens: int) -> Interval:
        return self.tokens_per_s.inverse(new_tokens)


def check_rate(tokens_per_s: float | None) -> None:
    """Raises UsageError for what no replica prefills in a second."""
    if tokens_per_s is not None and not LEAST_RATE <= tokens_per_s <= MOST_RATE:
        raise UsageError(
            f"--prefill-tokens-per-s {tokens_per_s:g}: tokens per second of a replica, {LEAST_RATE:g} to {MOST_RATE:,}"
        )


def find_prefill(replica: Replica, tokens_per_s: float | None) -> tuple[Prefill, tuple[Assumption, ...]] | None:
    """A stated rate, else the clock of `--calibration`, else the published rate of exactly this model on exactly these
    GPUs; None without any of them.

    Raises UsageError as `check_rate` does, and as `kvplan.latency.make_clock` does.
    """
    name, deployment = "prefill_tokens_per_s", replica.now.deployment
    if tokens_per_s is not None:
        check_rate(tokens_per_s)
        rate = Interval(tokens_per_s, tokens_per_s, tokens_per_s, "assumed")
        given = Assumption(name, tokens_per_s, "given", "--prefill-tokens-per-s, at every length")
        return ConstantRate(rate), (given,)
    if deployment.calibration is not None and replica.gpu is not None:
        clock = make_clock(replica.model, deployment, replica.gpu)
        return clock, tuple(clock.assumptions)
    known = replica.model.name == "kimi-k3" and replica.gpu is not None and replica.gpu.name == "b300"
    if not (known and replica.gpus == replica.fleet.per_node == 8):
        return None
    source = "published for K3 on 8 x B300 (flashinfer pull request 4445), 15,000 to 22,000, at every length"
    return ConstantRate(_K3_NODE), (Assumption(name, _K3_NODE.value, "assumed", source),)


def prefill_of(replica: Replica, tokens_per_s: float | None) -> tuple[Prefill, tuple[Assumption, ...]]:
    """The same. Raises UsageError where nothing says how fast the replica is."""
    found = find_prefill(replica, tokens_per_s)
    if found is None:
        raise UsageError(
            f"how fast a replica of {replica.model.name} prefills is not known here; give --calibration auto or "
            "--prefill-tokens-per-s"
        )
    return found
