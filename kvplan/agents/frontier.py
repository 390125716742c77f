"""The buyer's question: which GPUs, layout and flags hold so many sessions at such a risk for the least money."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from kvplan import __version__
from kvplan.agents.candidates import search_field
from kvplan.agents.contexts import Contexts
from kvplan.agents.options import Asked, NotHeld, Option, Options, Searched
from kvplan.agents.pools import session_pool
from kvplan.agents.report import read_contexts
from kvplan.agents.search import Found, Search
from kvplan.agents.sessions import count_sessions
from kvplan.agents.users import LOADS, UsersTable, users_table
from kvplan.capacity import Evaluation, engine_for, evaluate
from kvplan.deployment import Deployment
from kvplan.document import Assumption
from kvplan.errors import NO, YES, UsageError
from kvplan.gpu import Gpu, list_gpus
from kvplan.model import Model
from kvplan.plan import settle

LADDER = (0.25, 0.5, 1, 2, 4)
"""Loads that are answered beside the one asked about, as multiples of it."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """`kvplan frontier`, schema `kvplan.frontier/1`. Without a load there is only `users`, for the deployment typed."""

    kvplan_version: str
    inputs: dict[str, Any]
    assumptions: list[Assumption]
    model: str
    engine: str
    rules_version: str | None
    """None where nothing holds the load."""
    workload: str
    sorted_by: Literal["price", "memory"] | None
    answer: Option | None
    run: str | None
    """The command that starts one group of the answer."""
    by_gpu: list[Option]
    not_held: list[NotHeld]
    nearest: list[Option]
    by_load: list[Option]
    searched: Searched | None
    users: UsersTable | None
    warnings: list[str]
    schema_: Literal["kvplan.frontier/1"] = "kvplan.frontier/1"

    @property
    def exit_code(self) -> int:
        held = self.answer is not None if self.searched else self.users is not None and self.users.holds
        return YES if held else NO


def frontier(
    model: str | Model, workload: str, asked: Asked, *, flags: dict[str, Any], notes: Iterable[Assumption] = ()
) -> Frontier:
    """The cheapest deployment for the load. `flags` fix what they name; `gpu` may name several, each with a limit."""
    contexts, name, _, warnings = read_contexts(workload, "time", None, False)
    read, deployment, _, lengths = settle(model, **{key: value for key, value in flags.items() if key != "gpu"})
    priced = [gpu for gpu in list_gpus() if asked.prices.of(gpu) is not None] if asked.prices.given else None
    field = search_field(read, deployment, flags, asked.most_gpus, priced)
    limit = deployment.max_model_len or lengths[-1]
    view = Options(Search(read, field.candidates, contexts, limit, asked.risk, asked.seed), field, asked)
    every = range(len(field.candidates))
    best = view.best(every, asked.sessions)
    if best is None and view.search.refused is not None and not view.search.answered:
        raise UsageError(view.search.refused)
    answer, run, rules, stated = _settled(read, view, best, contexts) if best else (None, None, None, [])
    loads = [max(1, round(asked.sessions * part)) for part in LADDER]
    rungs = [view.best(every, load) for load in dict.fromkeys(loads)]
    by_gpu = {gpu: view.best(view.on(gpu), asked.sessions) for gpu in field.most_gpus}
    return Frontier(
        kvplan_version=__version__,
        inputs=_inputs(model, workload, asked) | flags,
        assumptions=[*notes, *_rests_on(asked, contexts), *stated],
        model=read.name,
        engine=engine_for(deployment, with_gpu=True).name,
        rules_version=rules,
        workload=name,
        sorted_by="price" if asked.prices.given else "memory",
        answer=answer,
        run=run,
        by_gpu=sorted((view.option(one) for one in by_gpu.values() if one), key=view.order),
        not_held=[NotHeld(gpu, view.reason(gpu)) for gpu, one in by_gpu.items() if one is None],
        nearest=view.nearest(best) if best else [],
        by_load=[view.option(one, load) for one, load in zip(rungs, dict.fromkeys(loads), strict=True) if one],
        searched=view.searched(),
        users=_users(read, answer.flags, contexts, asked) if answer else None,
        warnings=list(warnings),
    )


def deployed_users(
    model: str | Model, workload: str, asked: Asked, *, flags: dict[str, Any], notes: Iterable[Assumption] = ()
) -> Frontier:
    """Users × context for the deployment that the flags describe, with no search."""
    contexts, name, _, warnings = read_contexts(workload, "time", None, False)
    pool = session_pool(model, **flags)
    table = _users(pool.model, flags, contexts, asked)
    return Frontier(
        kvplan_version=__version__,
        inputs=_inputs(model, workload, asked) | flags,
        assumptions=[*notes, *_rests_on(asked, contexts)],
        model=pool.model.name,
        engine=pool.engine,
        rules_version=pool.rules_version,
        workload=name,
        sorted_by=None,
        answer=None,
        run=None,
        by_gpu=[],
        not_held=[],
        nearest=[],
        by_load=[],
        searched=None,
        users=table,
        warnings=list(warnings),
    )


def _users(model: Model, flags: dict[str, Any], contexts: Contexts, asked: Asked) -> UsersTable:
    loads = tuple(sorted({*LOADS, *([asked.sessions] if asked.sessions else [])}))
    return users_table(model, flags, contexts, asked.risk, spare=asked.spare, loads=loads, seed=asked.seed)


def _settled(
    model: Model, view: Options, best: Found, contexts: Contexts
) -> tuple[Option, str | None, str, list[Assumption]]:
    """The answer with the sessions that `kvplan agents sessions` counts for its flags, its command and its grounds."""
    option, candidate = view.option(best), view.search.candidates[best.index]
    now = evaluate(*_one(model, option.flags))
    filled = now.allocation.assumptions if now.allocation else ()
    legal = next((one.value for one in filled if one.name == "legal_max_num_seqs"), None)
    flags = option.flags | ({"max_num_seqs": legal} if legal is not None else {})
    pool = session_pool(model, **flags)
    held = count_sessions(pool, contexts, (view.asked.risk,), view.asked.seed).at_risk[0].sessions
    ready = (option.groups - view.asked.spare) * candidate.group_replicas
    option = replace(option, flags=flags, sessions_per_replica=held, sessions=held * ready)
    alone = candidate.flags(1) | ({"max_num_seqs": legal} if legal is not None else {})
    group = evaluate(*_one(model, alone))
    stated = [
        *(group.pool.assumptions if group.pool else ()),
        *(group.allocation.assumptions if group.allocation else ()),
    ]
    return option, _run(model, group, pool.max_model_len), pool.rules_version, stated


def _one(model: Model, flags: dict[str, Any]) -> tuple[Model, Deployment, Gpu | None, list[int]]:
    read, deployment, gpu, lengths = settle(model, **flags)
    return read, deployment, gpu, [deployment.max_model_len or lengths[-1]]


def _run(model: Model, group: Evaluation, limit: int) -> str | None:
    line = group.engine.command_line
    if line is None or group.fleet is None:
        return None
    return line.spell(model.hf_id or model.snapshot or model.name, group.fleet.layout, group.deployment, limit)


def _inputs(model: str | Model, workload: str, asked: Asked) -> dict[str, Any]:
    prices = asked.prices
    price: Any = prices.each if prices.each is not None else dict(prices.by_gpu) or None
    return {
        "model": model if isinstance(model, str) else model.name,
        "workload": workload,
        "sessions": asked.sessions or None,
        "risk": asked.risk,
        "spare": asked.spare,
        "gpu_price": price,
        "max_gpus": asked.most_gpus,
        "seed": asked.seed,
    }


def _rests_on(asked: Asked, contexts: Contexts) -> list[Assumption]:
    risk = Assumption("risk", asked.risk, "given", "that one replica's pool overflows; replicas fill evenly")
    how = "prices typed with --gpu-price, per GPU and hour" if asked.prices.given else (
        "no price is bundled, so GPU memory in all stands for money; give --gpu-price"
    )  # fmt: skip
    price = Assumption("gpu_price", None if not asked.prices.given else "given", "given", how)
    return [risk, price, *contexts.assumptions]
