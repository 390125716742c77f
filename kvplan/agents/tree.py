"""A workflow's agents placed in time.

A fork begins with its parent's context of that moment: the cache of those tokens is the parent's, and stays as long as
any fork needs it, even when the parent has ended. A parent waits, and does not grow, while a synchronous child lives.
Growth is even over the time not waited.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from kvplan.agents.workflow import MOST_AGENTS, Agent, Workflow
from kvplan.errors import ProfileError


@dataclass(slots=True, eq=False)
class Live:
    """One agent of the tree, placed in time. Seconds are exact fractions."""

    spec: Agent
    start: Fraction
    end: Fraction
    parent: "Live | None"
    children: list["Live"] = field(default_factory=list)
    waits: list[tuple[Fraction, Fraction]] = field(default_factory=list)
    base_tokens: int = 0
    """Tokens before its own: of its prefix, or of its parent at the fork."""
    _whole: Fraction | None = None
    """Seconds that it works in all, once they were asked for; `waits` stand by then."""

    gone: Fraction = field(init=False)
    """When its memory goes."""

    def __post_init__(self) -> None:
        self.gone = self.end + _exact(self.spec.persists_s)

    def tokens(self, at: Fraction) -> int:
        """The whole context at a time from start to end, and what it ended with later on."""
        if self._whole is None:
            self._whole = self._worked(self.end)
        whole = self._whole
        share = self._worked(min(at, self.end)) / whole if whole else Fraction(1)
        return self.base_tokens + self.spec.start_tokens + int((self.spec.end_tokens - self.spec.start_tokens) * share)

    def _worked(self, at: Fraction) -> Fraction:
        """Seconds until `at` in which it did not wait."""
        if not self.waits:
            return at - self.start
        idle = sum((max(Fraction(0), min(stop, at) - start) for start, stop in self.waits), Fraction(0))
        return at - self.start - idle

    def needed(self, at: Fraction) -> int:
        """Tokens of its context whose cache has to be there: its own while it stands, after that what forks use."""
        if at < self.start:
            return 0
        forks = (child for child in self.children if child.spec.context == "fork" and child.needed(at) > 0)
        return max((child.base_tokens for child in forks), default=0) if at >= self.gone else self.tokens(at)


def place(workflow: Workflow) -> list[Live]:
    """Every agent in time, parents first. Raises ProfileError for what cannot be: a child that its parent cannot wait
    for, or more agents than `MOST_AGENTS`."""
    placed: dict[str, list[Live]] = {}
    order: list[Live] = []
    sizes = {prefix.name: prefix.tokens for prefix in workflow.prefixes}
    for spec in _parents_first(workflow):
        above: list[Live | None] = [None] if spec.parent is None else list(placed[spec.parent])
        if len(order) + len(above) * spec.count > MOST_AGENTS:
            raise ProfileError(f"{workflow.name}: more than {MOST_AGENTS:,} agents")
        placed[spec.name] = [one for parent in above for one in _copies(spec, parent)]
        order += placed[spec.name]
    for one in order:
        one.waits = _joined([(child.start, child.end) for child in one.children if child.spec.mode == "sync"])
        waited = sum((stop - start for start, stop in one.waits), Fraction(0))
        if waited >= one.end - one.start and one.spec.end_tokens > one.spec.start_tokens:
            raise ProfileError(f"agent {one.spec.name} grows, but waits for synchronous children all its life")
    for one in order:
        if one.spec.context == "fork" and one.parent is not None:
            one.base_tokens = one.parent.tokens(one.start)
        elif one.spec.prefix is not None:
            one.base_tokens = sizes[one.spec.prefix]
    return order


def _parents_first(workflow: Workflow) -> Iterator[Agent]:
    below: dict[str | None, list[Agent]] = {}
    for agent in workflow.agents:
        below.setdefault(agent.parent, []).append(agent)
    waiting = list(below.get(None, []))
    while waiting:
        agent = waiting.pop(0)
        yield agent
        waiting += below.get(agent.name, [])


def _copies(spec: Agent, parent: Live | None) -> Iterator[Live]:
    for index in range(spec.count):
        start = (parent.start if parent else Fraction(0)) + _exact(spec.start_s) + index * _exact(spec.stagger_s)
        one = Live(spec, start, start + _exact(spec.duration_s), parent)
        if parent is not None:
            if start > parent.end or (spec.mode == "sync" and one.end > parent.end):
                what = "starts" if start > parent.end else "ends"
                raise ProfileError(f"agent {spec.name} {what} after its parent {parent.spec.name} has ended")
            parent.children.append(one)
        yield one


def _joined(spans: list[tuple[Fraction, Fraction]]) -> list[tuple[Fraction, Fraction]]:
    """Spans that overlap as one."""
    found: list[tuple[Fraction, Fraction]] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def _exact(seconds: float) -> Fraction:
    return Fraction(str(seconds))
