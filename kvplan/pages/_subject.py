"""What a report of deployments is about, worked out once for all of its pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvplan.agents.report import SessionsReport, sessions_report
from kvplan.capacity import evaluate
from kvplan.cases import Asked, Case, Refused, read_cases
from kvplan.document import Capacity
from kvplan.errors import KvplanError, UsageError
from kvplan.pages._style import MOST_MODELS
from kvplan.pages._text import clean

LEAST_TOKENS = 1024
"""Where curves begin."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The cases of a report, those that were refused, and the sessions that they hold."""

    cases: tuple[Case, ...]
    refused: tuple[Refused, ...]
    curves: dict[str, list[Capacity]]
    """Sequences over context, by label."""
    workload: str | None = None
    sessions: dict[str, SessionsReport] = field(default_factory=dict)
    sessions_refused: dict[str, str] = field(default_factory=dict)

    @property
    def subtitle(self) -> str:
        """Models and deployment, for the head of each page; the models alone where they are deployed differently."""
        names = ", ".join(clean(case.label) for case in self.cases)
        places = {deployed(case) for case in self.cases}
        if len(self.cases) == 1:
            return f"{names} on {places.pop()}"
        return f"On {places.pop()}: {names}" if len(places) == 1 else names


def deployed(case: Case) -> str:
    """GPUs, layout and engine in short: `8x B300, tp8, vllm 0.33.0`."""
    layout, engine = case.plan.per_rank.layout if case.plan.per_rank else {}, case.plan.engine or {}
    gpus = f"{layout.get('gpus', 1)}x {str(case.plan.inputs['gpu'] or 'gpu').upper()}"
    spread = " ".join(f"{name}{layout[name]}" for name in ("tp", "pp", "dcp", "ep") if layout.get(name, 1) > 1)
    return ", ".join(part for part in (gpus, spread, f"{engine['name']} {engine['rules_version']}") if part)


def read_subject(columns: Sequence[Asked], workload: str | None, progress: Callable[[str], None]) -> Subject:
    """Everything that the pages draw from. Raises UsageError for more models than colours, or where all are refused."""
    if len(columns) > MOST_MODELS:
        raise UsageError(f"a report holds up to {MOST_MODELS} models, and here are {len(columns)}; `kvplan compare` "
                         "takes more")  # fmt: skip
    cases, refused = read_cases(columns, progress)
    for case in cases:
        if case.now.pool is None:
            raise UsageError(
                "a report needs the memory that sequences share: name the GPUs, for example --gpu B300:8, or the pool "
                "with --kv-cache-memory"
            )
    sessions: dict[str, SessionsReport] = {}
    sessions_refused: dict[str, str] = {}
    for case in cases if workload else ():
        progress(f"sessions of {case.label}")
        try:
            sessions[case.label] = sessions_report(case.model, workload or "", flags=case.flags)
        except UsageError as error:
            sessions_refused[case.label] = str(error)
    if workload and not sessions:
        raise UsageError(next(iter(sessions_refused.values())))
    curves = {case.label: curve(case, progress) for case in cases}
    return Subject(tuple(cases), tuple(refused), curves, workload, sessions, sessions_refused)


def grid(case: Case) -> list[int]:
    """Lengths at which curves are worked out: two an octave, and those asked about."""
    last = case.contexts[-1]
    steps = {round(LEAST_TOKENS * 2 ** (half / 2)) for half in range(80)}
    return sorted({tokens for tokens in steps if tokens < last} | set(case.contexts) | {min(LEAST_TOKENS, last)})


def curve(case: Case, progress: Callable[[str], None] = lambda label: None) -> list[Capacity]:
    """Sequences at every length of the grid, under the limit on a sequence that the plan has."""
    progress(f"capacity of {case.label}")
    bounded = case.deployment.with_flags(context=tuple(grid(case)), max_model_len=case.limit_tokens)
    try:
        return list(evaluate(case.model, bounded, case.gpu, grid(case), case.now.weights).capacity)
    except KvplanError:
        return list(case.now.capacity)  # rules that hold at some lengths alone: the lengths asked about, at least
