"""A workflow's memory over its life: what is shared is kept once, every live branch has a state of its own.

A prefix keeps its tokens and one saved state from its first use to its last, forks of its users included. States,
convolution tails and windows are never shared, as they differ from the first token after the branch.
"""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from kvplan.agents.tree import Live, place
from kvplan.agents.workflow import Workflow
from kvplan.ledger import Footprint, Holding


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes at a time in seconds from the start; `agents` are those at work or waiting, not those that have ended."""

    at_s: float
    bytes: int
    agents: int


@dataclass(frozen=True, slots=True)
class Branch:
    """What all agents of one name keep of their own, shared tokens aside."""

    name: str
    count: int
    most_bytes: int
    """One of them at its largest."""
    byte_seconds: int
    """Over all of them."""


@dataclass(frozen=True, slots=True)
class Account:
    """A workflow's memory over its life."""

    moments: tuple[Moment, ...]
    peak: Moment
    byte_seconds: int
    seconds: float
    most_agents: int
    branches: tuple[Branch, ...]


class Bytes:
    """What one agent or prefix keeps, from a model's tensors."""

    def __init__(self, holding: Holding) -> None:
        self.holding, self.snapshot = holding, holding.snapshot_bytes()
        self._known: dict[int, Footprint] = {}

    def _at(self, tokens: int) -> Footprint:
        if tokens not in self._known:
            self._known[tokens] = self.holding.footprint(tokens)
        return self._known[tokens]

    def cache(self, start: int, stop: int) -> int:
        """What the tokens from `start` to `stop` add to a cache that grows."""
        if stop <= start:
            return 0
        low, high = self._at(start), self._at(stop)
        return high.kv + high.index - low.kv - low.index

    def own(self, tokens: int, snapshots: int) -> int:
        """State, tails and windows of one live context, and its saved states."""
        one = self._at(tokens)
        return one.state + one.conv + one.window + snapshots * self.snapshot


def account(workflow: Workflow, holding: Holding) -> Account:
    """Bytes over time, exact at every start, end and departure; byte-seconds take growth in between as straight."""
    agents, sizes = place(workflow), Bytes(holding)
    prefixes = _prefix_spans(workflow, agents)
    turns = {
        turn
        for one in agents
        for turn in (one.start, one.end, one.gone, *(edge for span in one.waits for edge in span))
    }
    times = sorted(turns)
    moments, area = [], Fraction(0)
    most = {agent.name: 0 for agent in workflow.agents}
    twice_held = {agent.name: Fraction(0) for agent in workflow.agents}
    for start, stop in pairwise(times):
        alive = [one for one in agents if one.start <= start < one.gone or one.needed(start) > 0]
        at_work = sum(one.start <= start < one.end for one in alive)
        ends = []
        for at in (start, stop):
            shared = sum(
                sizes.cache(0, tokens) + sizes.snapshot for tokens, (one, other) in prefixes if one <= start < other
            )
            parts = {id(one): _held(one, sizes, start, at) for one in alive}
            ends.append(shared + sum(parts.values()))
            together = Counter[str]()
            for one in alive:
                most[one.spec.name] = max(most[one.spec.name], parts[id(one)])
                together[one.spec.name] += parts[id(one)]
            for name, held in together.items():
                twice_held[name] += held * (stop - start)
        moments += [Moment(float(start), ends[0], at_work), Moment(float(stop), ends[1], at_work)]
        area += Fraction(ends[0] + ends[1]) * (stop - start) / 2
    return Account(
        moments=tuple(moments),
        peak=max(moments, key=lambda moment: moment.bytes),
        byte_seconds=round(area),
        seconds=float(times[-1] - times[0]),
        most_agents=max(moment.agents for moment in moments),
        branches=tuple(
            Branch(name, sum(one.spec.name == name for one in agents), largest, round(twice_held[name] / 2))
            for name, largest in most.items()
        ),
    )


def _held(one: Live, sizes: Bytes, since: Fraction, at: Fraction) -> int:
    """What one agent keeps at `at`, in an interval that began at `since` and has no turn inside."""
    stands = one.start <= since < one.gone
    tokens = one.tokens(at) if stands else one.needed(since)
    cache = sizes.cache(one.base_tokens, tokens)
    return cache + (sizes.own(tokens, one.spec.snapshots) if stands else 0)


def _prefix_spans(workflow: Workflow, agents: list[Live]) -> list[tuple[int, tuple[Fraction, Fraction]]]:
    """Tokens of each prefix that is used, and from when to when: to the end of the last agent that descends from it."""
    found = []
    for prefix in workflow.prefixes:
        users = [one for one in agents if one.spec.prefix == prefix.name]
        if users:
            found.append((prefix.tokens, (min(one.start for one in users), max(map(_last, users)))))
    return found


def _last(one: Live) -> Fraction:
    """When the last fork below has gone, and the agent itself."""
    return max([one.gone, *(_last(child) for child in one.children if child.spec.context == "fork")])
