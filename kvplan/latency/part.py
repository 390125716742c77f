"""Time as a part of the plan document: rows of a decode step and of the first token, terms, crossings."""

from kvplan.deployment import Deployment
from kvplan.document import Assumption, Capacity, Ends, FirstToken, StepTime, TermTime, TimeCrossings, Times
from kvplan.errors import ConfigError, UsageError
from kvplan.gpu import Gpu
from kvplan.interval import Interval
from kvplan.latency.clock import Clock
from kvplan.latency.collectives import from_host_s
from kvplan.latency.crossings import reads_equal_state_tokens, reload_bytes_per_s
from kvplan.latency.make import make_clock
from kvplan.latency.meter import Term
from kvplan.ledger import Holding
from kvplan.model import Model
from kvplan.placement import stage_layers

NEW_TOKENS = 1024
_BATCHES = (1, 8, 64)
_REPLAY = {
    True: "half of --snapshot-every: what a resume repeats on average",
    False: "a snapshot where the last turn ended; --snapshot-every N assumes one every N tokens",
}


def time_part(
    model: Model, deployment: Deployment, gpu: Gpu | None, contexts: list[int], capacity: tuple[Capacity, ...]
) -> tuple[Times, list[Assumption]]:
    """The plan's `latency`, and what it rests on. Raises UsageError without a GPU, else as make_clock does.

    Lengths of which not one sequence can be held have no times.
    """
    if gpu is None:
        asked = ("max_tpot_ms", "max_ttft_s", "calibration")
        flag = next((name for name in asked if getattr(deployment, name)), asked[-1])
        raise UsageError(f"--{flag.replace('_', '-')} needs --gpu: times are those of a GPU")
    clock = make_clock(model, deployment, gpu)
    rows = {row.context_tokens: row for row in capacity}
    batches = {tokens: _batches(rows.get(tokens)) for tokens in contexts}
    held = [tokens for tokens in contexts if batches[tokens]]
    replay, new = (deployment.snapshot_every or 0) // 2, deployment.new_tokens or NEW_TOKENS
    part = Times(
        calibration=str(clock.assumptions[0].value),
        basis=clock.basis,
        says=clock.assumptions[0].source,
        decode=[_step(clock, n, tokens) for tokens in held for n in batches[tokens]],
        first_token=[_first(clock, tokens, replay, new) for tokens in held],
        decode_terms=_terms(clock, clock.decode_terms(batches[held[-1]][-1], held[-1])) if held else [],
        prefill_terms=_terms(clock, clock.prefill_terms(held[-1])) if held else [],
        crossings=_crossings(clock, (held or contexts)[-1]),
    )
    given = deployment.new_tokens is not None
    resumed = Assumption(
        "new_tokens", new, "given" if given else "assumed", "what a resumed session adds (--new-tokens)"
    )
    replayed = Assumption("replay_tokens", replay, "derived" if replay else "assumed", _REPLAY[bool(replay)])
    return part, [*clock.assumptions, resumed, replayed]


def _batches(row: Capacity | None) -> list[int]:
    """One sequence, some between, and as many as there may be; none where memory cannot hold one.

    One that a limit on time alone rules out is held, and its time says by how much the limit is missed.
    """
    if row is not None and not row.high and row.binds not in ("tpot", "ttft"):
        return []
    most = max(1, row.sequences) if row else 1
    return sorted({most, *(count for count in _BATCHES if count < most)})


def _ends(clock: Clock, interval: Interval, scale: float = 1.0) -> Ends:
    low, high = interval.low * scale, interval.high * scale
    if clock.basis == "bounds":
        return Ends(None, low, high, "bounds")
    return Ends(interval.value * scale, low, high, interval.how)


def _step(clock: Clock, sequences: int, tokens: int) -> StepTime:
    step = clock.decode_step_s(sequences, tokens)
    gpus = clock.layout.tp * clock.layout.pp
    per_gpu = _ends(clock, step.inverse(sequences / gpus))
    return StepTime(tokens, sequences, _ends(clock, step, 1e3), _ends(clock, step.inverse()), per_gpu)


def _first(clock: Clock, tokens: int, replay: int, new: int) -> FirstToken:
    """Cold: everything. Resumed: what follows the last snapshot, and the new tokens. Reloaded: from the host first."""
    repeated = min(replay, tokens)
    again = clock.prefill_s(repeated + new, tokens - repeated)
    cold = _ends(clock, clock.prefill_s(tokens, 0))
    return FirstToken(tokens, repeated, new, cold, _ends(clock, again), _reloaded(clock, tokens, again))


def _reloaded(clock: Clock, tokens: int, again: Interval) -> Ends | None:
    """The fullest rank's cache and state over its link to the host; at best layer by layer under the computation."""
    try:
        moved = from_host_s(clock.meter, _held_bytes(clock, tokens))
    except ConfigError:
        return None
    both = moved + again
    return _ends(clock, Interval(both.value, max(moved.low, again.low), both.high, both.how))


def _held_bytes(clock: Clock, tokens: int) -> int:
    stages = stage_layers(clock.model, clock.layout)
    return max(Holding(stage, clock.dtypes, clock.layout.dcp).bytes(tokens) for stage in stages)


def _terms(clock: Clock, terms: list[Term]) -> list[TermTime]:
    return [
        TermTime(term.name, term.calls, term.bytes, term.flops, _ends(clock, term.seconds), term.source)
        for term in terms
    ]


def _crossings(clock: Clock, tokens: int) -> TimeCrossings:
    """Whole model and fullest rank: where cache reads pass the state's traffic; the rate from which a reload pays."""
    whole = list(clock.model.mixers())
    rank = [layer for stage in stage_layers(clock.model, clock.layout) for layer in stage]
    held = Holding(whole, clock.dtypes).bytes(tokens)
    return TimeCrossings(
        reads_equal_state_tokens(whole, clock.dtypes),
        reads_equal_state_tokens(rank, clock.dtypes),
        tokens,
        _ends(clock, reload_bytes_per_s(held, clock.prefill_s(tokens, 0))),
    )
