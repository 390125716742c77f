"""What a lost GPU, node or replica takes with it, and what may be promised so that the rest still holds everything.

A replica dies with any of its ranks; where experts are spread over several replicas, these die together. Replicas lie
on the GPUs in order, as launchers place them.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from kvplan.agents.links import Link, transfer_s
from kvplan.deployment import Fleet
from kvplan.errors import UsageError
from kvplan.interval import Interval
from kvplan.units import ceil_div

Unit = Literal["gpu", "node", "replica"]
UNITS: tuple[Unit, ...] = get_args(Unit)


@dataclass(frozen=True, slots=True)
class Groups:
    """Replicas of a fleet by what they die with."""

    replicas: int
    together: int
    """Replicas that die together, as they share experts."""
    replicas_of_node: tuple[frozenset[int], ...]
    """Of each node, the replicas that have a rank there, those that die with them included."""

    def lost(self, unit: Unit, failures: int) -> int:
        """The most replicas that so many failures of one kind take down."""
        if failures < 0:
            raise UsageError(f"--spare {failures}: failures to survive, at least 0")
        if unit == "node":
            return _worst(self.replicas_of_node, failures)
        return min(self.replicas, failures * self.together)


def groups_of(fleet: Fleet) -> Groups:
    """Replicas and nodes of a fleet."""
    layout, gpus = fleet.layout, fleet.layout.tp * fleet.layout.pp
    together = max(1, min(fleet.replicas, layout.expert_shares // layout.tp))
    nodes = []
    for first in range(0, fleet.gpus, fleet.per_node):
        touched = range(first // gpus, min(fleet.replicas, ceil_div(min(first + fleet.per_node, fleet.gpus), gpus)))
        starts = {replica // together * together for replica in touched}
        nodes.append(frozenset(n for start in starts for n in range(start, min(start + together, fleet.replicas))))
    return Groups(fleet.replicas, together, tuple(nodes))


def _worst(nodes: tuple[frozenset[int], ...], failures: int) -> int:
    """Replicas that the worst choice of nodes takes down: each time the node that takes most of what is left.

    Exact where replicas lie whole on nodes or nodes whole in replicas; at least close to it otherwise.
    """
    dead: frozenset[int] = frozenset()
    for _ in range(min(failures, len(nodes))):
        dead |= max(nodes, key=lambda node: len(node - dead))
    return len(dead)


@dataclass(frozen=True, slots=True)
class Loss:
    """One failure of a unit, with every replica at the sessions that it may hold."""

    unit: Unit
    replicas: int
    gpus: int
    sessions: int
    """Whose memory is gone."""
    running: float | None
    """Of those, being answered at that moment on average; None where nothing is timed."""
    tokens: int
    """To prefill again for all of them, at their mean context."""
    survivors: int
    """Replicas that are left."""
    storm_s: Interval | None
    """Until the survivors, doing nothing else, have prefilled the last; None where none survives, or nothing says how
    fast they are."""
    restored_s: Interval | None
    """The same for a replica that is back and has its own sessions again; its restart is not in it."""
    running_storm_s: Interval | None
    """The same for those that were being answered."""
    reload_s: Interval | None
    """The same for all from the tier; None without one that outlives the failure."""
    room: int
    """Sessions that the survivors hold at the stated risk, all of theirs included."""


@dataclass(frozen=True, slots=True)
class Fleetwide:
    """What losses are counted with."""

    groups: Groups
    gpus_per_replica: int
    sessions_per_replica: int
    duty: float | None
    context_tokens: int
    prefill_s: Interval | None
    """Of one mean context on one replica; None where nothing says."""

    def loss(self, unit: Unit, tier: tuple[Link, int] | None) -> Loss:
        """`tier` is a link that outlives the failure and the bytes that cross it for one session."""
        dead = self.groups.lost(unit, 1)
        survivors, sessions = self.groups.replicas - dead, dead * self.sessions_per_replica
        running = None if self.duty is None else sessions * self.duty
        reload = transfer_s(tier[1], tier[0]) if tier else None
        return Loss(
            unit=unit,
            replicas=dead,
            gpus=dead * self.gpus_per_replica,
            sessions=sessions,
            running=running,
            tokens=sessions * self.context_tokens,
            survivors=survivors,
            storm_s=_shared(self.prefill_s, sessions, survivors),
            restored_s=_shared(self.prefill_s, self.sessions_per_replica, 1),
            running_storm_s=_shared(self.prefill_s, running, survivors),
            reload_s=_shared(reload, sessions, survivors),
            room=survivors * self.sessions_per_replica,
        )


def _shared(each_s: Interval | None, count: float | None, workers: int) -> Interval | None:
    """Seconds for `count` pieces of work spread evenly over `workers`; None where any of it is unknown or missing."""
    return each_s.scaled(count / workers) if each_s is not None and count is not None and workers else None


@dataclass(frozen=True, slots=True)
class Promise:
    """With so many failures provided for."""

    spare: int
    replicas_left: int
    sessions: int
    """What may be open in all, so that after the failures the survivors still hold them at the stated risk."""
    per_replica: float
    """While nothing has failed."""


def promise(groups: Groups, unit: Unit, spare: int, sessions_per_replica: int) -> Promise:
    """More spares never promise more."""
    left = groups.replicas - groups.lost(unit, spare)
    sessions = left * sessions_per_replica
    return Promise(spare, left, sessions, sessions / groups.replicas)
