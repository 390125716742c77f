"""A search's answers as a buyer reads them: deployments with what they hold and cost, and why others lost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvplan.agents.candidates import Candidate, Field
from kvplan.agents.prices import Prices, parse_prices
from kvplan.agents.search import Found, Load, Search
from kvplan.errors import UsageError

DEFAULT_MOST_GPUS = 256


@dataclass(frozen=True, slots=True)
class Asked:
    """The load: sessions open at once, overflow risk of a replica's pool, groups to spare, and what GPUs cost."""

    sessions: int
    risk: float
    spare: int
    prices: Prices
    most_gpus: int = DEFAULT_MOST_GPUS
    """Of one kind."""
    seed: int = 0


def ask(
    sessions: int | None, risk_percent: float, spare: int, gpu_price: str | None, most_gpus: int, seed: int
) -> Asked:
    """The load as it is typed. Raises UsageError naming the flag."""
    if not 0.01 <= risk_percent <= 99.99:
        raise UsageError(f"--risk {risk_percent:g}: a percentage from 0.01 to 99.99")
    if sessions is None and gpu_price is not None:
        raise UsageError("--gpu-price needs --sessions: without a load there is nothing to buy")
    return Asked(sessions or 0, risk_percent / 100, spare, parse_prices(gpu_price), most_gpus, seed)


@dataclass(frozen=True, slots=True)
class Option:
    """A deployment that holds a load. A group is the fewest GPUs that serve on their own."""

    load: int
    gpu: str
    gpus: int
    groups: int
    """Spares included."""
    group_gpus: int
    layout: dict[str, int]
    settings: dict[str, str | float]
    """Engine settings beside what was typed."""
    sessions_per_replica: int
    sessions: int
    """With the spares lost."""
    memory_bytes: int
    price_per_hour: float | None
    flags: dict[str, Any]
    change: str = ""
    """The choice that the answer made otherwise."""


@dataclass(frozen=True, slots=True)
class NotHeld:
    """A GPU that does not hold the load, and why."""

    gpu: str
    reason: str


@dataclass(frozen=True, slots=True)
class Searched:
    """How much was looked at. A configuration is a layout, its settings and a number of groups."""

    gpus: list[str]
    axes: dict[str, list[Any]]
    candidates: int
    configurations: int
    evaluated: int
    """Candidates for which the engine's own rules were worked out: the others could not have won."""
    left_out: list[str]


class Options:
    """The options of one search."""

    def __init__(self, search: Search, field: Field, asked: Asked) -> None:
        self.search, self.field, self.asked = search, field, asked

    def cost(self, one: Candidate, gpus: int) -> float:
        """Per hour where prices are given, else bytes of GPU memory."""
        price = self.asked.prices.of(one.gpu)
        return gpus * (one.gpu.memory_bytes if price is None else price)

    def order(self, option: Option) -> tuple[float, int, int]:
        """Cheapest first."""
        cost = option.memory_bytes if option.price_per_hour is None else option.price_per_hour
        return cost, option.gpus, len(option.settings)

    def on(self, gpu: str) -> list[int]:
        return [index for index, one in enumerate(self.search.candidates) if one.gpu.name == gpu]

    def best(self, indices: Sequence[int], load: int) -> Found | None:
        return self.search.cheapest(indices, Load(load, self.asked.spare), self.cost, self.field.most_gpus)

    def option(self, found: Found, load: int | None = None, change: str = "") -> Option:
        one = self.search.candidates[found.index]
        layout, price = one.layout, self.asked.prices.of(one.gpu)
        return Option(
            load=load or self.asked.sessions,
            gpu=one.gpu.name,
            gpus=found.gpus,
            groups=found.groups,
            group_gpus=one.group_gpus,
            layout={"tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "dcp": layout.dcp, "ep": layout.ep},
            settings=dict(one.settings),
            sessions_per_replica=found.sessions,
            sessions=(found.groups - self.asked.spare) * one.group_replicas * found.sessions,
            memory_bytes=found.gpus * one.gpu.memory_bytes,
            price_per_hour=None if price is None else round(found.gpus * price, 6),
            flags=one.flags(found.groups),
            change=change,
        )

    def nearest(self, best: Found) -> list[Option]:
        """The answer's GPU with one choice of the answer ruled out, the cheapest of each, cheapest first."""
        found: dict[int, Option] = {}
        for change, indices in self._changes(best.index):
            other = self.best(indices, self.asked.sessions)
            if other is not None:
                same = found.get(other.index)
                found[other.index] = self.option(other, change=f"{same.change}, {change}" if same else change)
        return sorted(found.values(), key=self.order)

    def _changes(self, index: int) -> Iterator[tuple[str, list[int]]]:
        best = self.search.candidates[index]
        same = [(place, one) for place, one in enumerate(self.search.candidates) if one.gpu == best.gpu]
        for name in self.field.axes:
            if name in ("tp", "pp", "dcp", "ep"):
                continue
            mine, others = dict(best.settings).get(name), {dict(one.settings).get(name) for _, one in same}
            for value in sorted(others - {mine}, key=str):
                kept = [place for place, one in same if dict(one.settings).get(name) == value]
                yield f"{name} {value if value is not None else 'auto'}", kept
        for axis in ("tp", "pp", "dcp"):
            mine = getattr(best.layout, axis)
            for size in sorted({getattr(one.layout, axis) for _, one in same} - {mine}):
                yield f"{axis} {size}", [place for place, one in same if getattr(one.layout, axis) == size]
        yield "experts shared", [place for place, one in same if one.wide != best.wide]
        yield from self._without_reuse(best)

    def _without_reuse(self, best: Candidate) -> Iterator[tuple[str, list[int]]]:
        """The answer without vLLM's prefix cache: what keeping prefixes costs. Never the answer itself."""
        if best.base.get("engine", "vllm") != "vllm" or "enable_prefix_caching" in best.base:
            return
        self.search.add(replace(best, base=best.base | {"enable_prefix_caching": False}))
        yield "no prefix cache", [len(self.search.candidates) - 1]

    def reason(self, gpu: str) -> str:
        """Why a GPU does not hold the load, however it is laid out."""
        places, most = self.on(gpu), self.field.most_gpus[gpu]
        if not places:
            return "no layout of the model is legal on so few"
        if not any(self.search.bounds[place] for place in places):
            return "the weights leave no pool in any layout searched"
        if not any(self.search.exact(place) for place in places if self.search.rough(place)):
            return f"no pool holds one sequence of {self.search.limit:,} tokens, which the engine asks for at its start"
        return f"more than {most:,} GPUs"

    def searched(self) -> Searched:
        limits = self.field.most_gpus
        return Searched(
            gpus=sorted(limits),
            axes=self.field.axes,
            candidates=len(self.field.candidates),
            configurations=sum(limits[one.gpu.name] // one.group_gpus for one in self.field.candidates),
            evaluated=self.search.evaluated,
            left_out=list(self.field.left_out),
        )
