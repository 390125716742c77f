"""Sessions made up from a workload profile: every table keeps its percentiles, a session keeps to its size.

Each session draws how large it is compared with others, a normal score that explains `session_share` of the variance.
Its requests fall short of its largest by an exponential score, as most of them come late, and the profile's percentiles
turn scores into contexts. Within a session they are put in ascending order, so that it grows; that leaves the
distribution over all requests as it was. Not modelled: compaction (a context never shrinks), sub-agents, and a tie
between length and pauses.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np

from kvplan.agents.columns import Floats
from kvplan.agents.quantiles import Quantiles, midpoints
from kvplan.agents.request import Request
from kvplan.agents.workload import Workload

_SCORES = 1 << 17


def generate(workload: Workload, sessions: int, seed: int = 0) -> Iterator[Request]:
    """So many sessions, one after another, each on its own clock. Equal seeds give equal sessions."""
    random = np.random.default_rng(seed)
    lengths = workload.table("requests_per_session")
    for number in range(sessions):
        count = max(1, round(float(lengths.at(random.random())))) if lengths else 1
        yield from _session(workload, f"{workload.name}-{number}", count, random)


def _session(workload: Workload, name: str, count: int, random: np.random.Generator) -> Iterator[Request]:
    tie = workload.session_share
    scores = np.sqrt(tie) * random.standard_normal() + np.sqrt(1 - tie) * (1 - random.standard_exponential(count))
    contexts = np.sort(_required(workload).at(np.interp(scores, _everyone(tie), _shares())))
    answers = _draw(workload, "output_tokens", count, random)
    service = _draw(workload, "service_s", count, random)
    pauses = {kind: _draw(workload, f"{kind}_pause_s", count, random) for kind in ("tool", "user")}
    by_user = random.random(count) < (1.0 if workload.user_share is None else workload.user_share)
    preamble = _draw(workload, "preamble_tokens", 1, random)
    clock, before = 0.0, 0
    for index in range(count):
        answer = min(0 if answers is None else round(float(answers[index])), round(float(contexts[index])) - 1)
        prompt = max(1, round(float(contexts[index])) - max(0, answer))
        kind = "user" if index == 0 or by_user[index] else "tool"
        drawn = pauses[kind]
        pause = 0.0 if index == 0 or drawn is None else float(drawn[index])
        seconds = None if service is None else float(service[index])
        clock += pause
        yield Request(
            session=name,
            input_tokens=prompt,
            output_tokens=max(0, answer),
            at_s=clock,
            service_s=seconds,
            pause_s=pause if drawn is not None else None,
            shared_tokens=min(before, prompt),
            preamble_tokens=None if preamble is None else round(float(preamble[0])),
            trigger="user" if kind == "user" else "tool",
        )
        clock, before = clock + (seconds or 0.0), prompt


def _required(workload: Workload) -> Quantiles:
    found = workload.table("context_tokens")
    assert found is not None, "a Workload has this table or is refused"
    return found


def _draw(workload: Workload, name: str, count: int, random: np.random.Generator) -> Floats | None:
    table = workload.table(name)
    return None if table is None else table.at(random.random(count))


@cache
def _shares() -> Floats:
    return midpoints(_SCORES)


@cache
def _everyone(tie: float) -> Floats:
    """Scores of many requests of as many sessions, ascending: where one stands among them is its share."""
    random = np.random.default_rng(0)
    found: Floats = np.sort(
        np.sqrt(tie) * random.standard_normal(_SCORES) + np.sqrt(1 - tie) * (1 - random.standard_exponential(_SCORES))
    )
    return found
