"""What `kvplan agents MODEL` says on a screen and as a document."""

import dataclasses
from math import inf
from typing import Any

from kvplan.agents.failover_screen import loss_line, why_none
from kvplan.agents.page import AgentsPage
from kvplan.agents.saving import Basis, Compared, Saving
from kvplan.agents.screen import document, risk_table, warn
from kvplan.agents.tiers import HBM, TierRow
from kvplan.agents.tiers_screen import CLASSES, assumed_lines, caching_line, plain, seconds
from kvplan.tables import print_json, print_text
from kvplan.units import format_short


def show_page(page: AgentsPage, *, as_json: bool) -> None:
    warn(page.usage.warnings)
    if as_json:
        print_json(document("kvplan.agents/1", page.inputs, page.assumptions, page_body(page)))
        return
    print_text(page_lines(page), [risk_table(page.sessions.at_risk, page.replica.pool.replicas)])


def page_body(page: AgentsPage) -> dict[str, Any]:
    pool, best = page.replica.pool, page.best
    sessions = dataclasses.asdict(page.sessions)
    sessions.pop("assumptions")
    found: dict[str, Any] = plain({
        "engine": {"name": pool.engine, "rules_version": pool.rules_version},
        "pool": {"bytes": pool.pool_bytes, "source": pool.pool_source, "replicas": pool.replicas},
        "workload": {"name": page.usage.name, "source": page.usage.source, "reuse": page.usage.reuse},
        "sessions": sessions,
        "stated": dataclasses.asdict(page.stated),
        "residency": {"knee": dataclasses.asdict(page.knee) if page.knee else None, "reason": page.no_knee or None},
        "snapshots": dataclasses.asdict(page.snapshots) if page.snapshots else None,
        "idle": {
            "tier": best.name if best else None,
            "context_tokens": page.context_tokens,
            "recompute_s": dataclasses.asdict(page.recompute_s) if page.recompute_s else None,
            "tiers": [dataclasses.asdict(row) for row in page.tiers],
        },
        "failover": {
            "losses": [dataclasses.asdict(one) | {"tier": page.loss_tiers.get(one.unit)} for one in page.losses],
            "promised_after_one_gpu": dataclasses.asdict(page.spare),
        },
        "saving": saving_body(page.saving),
        "warnings": list(page.usage.warnings),
    })  # fmt: skip
    return found


def saving_body(saving: Saving | None) -> dict[str, Any] | None:
    if saving is None:
        return None
    bases = {"model": saving.whole, "rank": saving.rank}
    found = {name: None if basis is None else _basis_body(basis) for name, basis in bases.items()}
    return {"twin": saving.twin, "median_tokens": saving.median_tokens, "saves": saving.saves} | found


def _basis_body(basis: Basis) -> dict[str, Any]:
    rows = {
        name: dataclasses.asdict(one) | {"saving": one.saving, "more_bytes": one.more_bytes}
        for name, one in (("median", basis.median), ("mean", basis.mean))
    }
    return rows | {"break_even_tokens": basis.break_even_tokens, "share_of_requests_below": basis.below}


def page_lines(page: AgentsPage) -> list[str]:
    pool, stated, fleet = page.replica.pool, page.stated, page.replica.fleet
    gpu = page.replica.gpu.name.upper() if page.replica.gpu else "GPU"
    many = f", {stated.deployment_sessions:,} on {pool.replicas} replicas" if pool.replicas > 1 else ""
    lines = [
        f"{pool.model.name} on {fleet.gpus}x {gpu}, tp{fleet.layout.tp}, {pool.engine} {pool.rules_version}: "
        f"{stated.sessions:,} {page.usage.name} sessions at {stated.risk * 100:g} % risk{many}",
        f"POOL       {page.sessions.capacity:,} {page.sessions.unit} a replica ({pool.pool_source}); a session takes "
        f"{page.sessions.mean_units:,.1f} ± {page.sessions.sd_units:,.1f}; {page.sessions.naive:,.1f} of the longest "
        "would fill it",
        *(
            part
            for lines in (_open_line, _knee_line, _snapshot_line, _idle_lines, _lost_lines)
            if stated.sessions
            for part in lines(page)
        ),
        *([] if stated.sessions else [f"NONE       {why_none(page.replica, stated.risk)}"]),
        *caching_line(page.replica),
        *saving_lines(page.saving, page.replica.gpus),
        *_engine_line(page),
    ]
    if page.recompute_s is None:
        lines.append("UNKNOWN    how long computing again takes: give --calibration auto or --prefill-tokens-per-s")
    return lines + assumed_lines(page.assumptions)


def _open_line(page: AgentsPage) -> list[str]:
    stated, duty, open_s = page.stated, page.sessions.duty, page.sessions.session_s
    if stated.running is None or duty is None or not open_s:
        return ["RUNNING    not known: the workload gives no times, so each request counts as a session at work"]
    rate = stated.sessions * 3600 / open_s
    return [
        f"RUNNING    {stated.running:,.1f} of the {stated.sessions:,} open sessions at a time ({duty:.1%}, pauses "
        f"capped); {rate:,.1f} new ones an hour keep them at that"
    ]


def _knee_line(page: AgentsPage) -> list[str]:
    knee, stated = page.knee, page.stated
    if knee is None:
        return [f"KNEE       not known: {page.no_knee}"]
    short = "" if knee.sessions >= stated.sessions else f", fewer than the {stated.sessions:,} that fit"
    return [
        f"KNEE       {knee.sessions:,} open sessions a replica are found again{short}: {knee.hit:.1%} of prompt "
        f"tokens, {knee.infinite_hit:.1%} without limits, x = {knee.x:.2f}; past it nothing is promised"
    ]


def _snapshot_line(page: AgentsPage) -> list[str]:
    """Tails and the preamble serve conversations, branch points serve openings that strangers share: checkpoints.py and
    branches.py measure both."""
    advice = page.snapshots
    if advice is None:
        return []
    where = "prompt ends and the preamble" if page.usage.has_sessions else "prompt ends and where prompts part"
    return [f"SNAPSHOTS  at {where}: {' '.join(advice.flags) or 'no flag'} ({advice.reason})"]


def _idle_lines(page: AgentsPage) -> list[str]:
    best, again = page.best, page.recompute_s
    gpus = next(row for row in page.tiers if row.name == HBM)
    if best is None:
        slow = f"; computing {page.context_tokens:,} tokens again takes {seconds(again)}" if again else ""
        lines = [f"IDLE       on the GPUs or nowhere: no tier is surely sooner{slow}"]
    else:
        room = "" if best.sessions_at_risk is None else f", which holds {best.sessions_at_risk:,}"
        instead = f" and not {seconds(again)}" if again else ""
        held = _holds(best)
        lines = [f"IDLE       in {best.name}{room}: back in {seconds(best.resume_s)}{instead}{held and f'; {held}'}"]
    return [*lines, f"NO TIER    a miss is computed again: {_holds(gpus)}"] if gpus.hold else lines


def _holds(row: TierRow) -> str:
    """How long to keep sessions on the GPUs where others want the memory, for each class of pause."""
    if not row.hold:
        return ""
    if not any(hold.seconds for hold in row.hold.values()):
        return "let go of the GPUs' memory at once where others want it"
    found = []
    for name, hold in row.hold.items():
        time = "to the end" if hold.seconds == inf else f"{hold.seconds:,.0f} s"
        found.append(f"{time} for {CLASSES[name]}")
    return f"hold it on the GPUs {', '.join(found)}"


def _lost_lines(page: AgentsPage) -> list[str]:
    lines = [loss_line(loss, page.loss_tiers.get(loss.unit)) for loss in page.losses if loss.unit != "replica"]
    if len(lines) == 2 and lines[0][10:] == lines[1][10:]:
        lines = [f"GPU/NODE  {lines[0][10:]}"]
    spare = page.spare
    said = (
        f"{spare.sessions:,} sessions may be promised so that a lost GPU loses no room"
        if spare.sessions
        else "nothing may be promised that survives a lost GPU: it takes the last replica"
    )
    return [*lines, f"SPARE      {said}"]


def saving_lines(saving: Saving | None, gpus: int) -> list[str]:
    """The verdict by workload: what its requests store here and on the twin with full attention."""
    if saving is None:
        return ["BYTES      no twin to compare with: the model has no state or no full attention of its own"]
    whole, rank = saving.whole, saving.rank
    if not whole.median.more_bytes:
        head = f"the median request of {saving.median_tokens:,} tokens stores as much as under {saving.twin}"
    elif saving.saves:
        head = (
            f"saves {whole.mean.saving:.1%} against {saving.twin} over all requests, {whole.median.saving:.1%} for the "
            f"median one of {saving.median_tokens:,} tokens"
        )
    else:
        head = (
            f"saves nothing: the median request of {saving.median_tokens:,} tokens stores "
            f"{format_short(whole.median.more_bytes)} more than under {saving.twin} ({_pair(whole.median)}); "
            f"{_shorter(whole)}"
        )
    if rank is None or gpus == 1:
        return [f"BYTES      {head}"]
    if not rank.median.more_bytes:
        return [f"BYTES      {head}; so does one of {gpus} ranks"]
    turn = "saves" if rank.median.more_bytes < 0 else "stores"
    size = f"{abs(rank.median.saving):.1%}" + ("" if turn == "saves" else " more")
    return [f"BYTES      {head}; one of {gpus} ranks {turn} {size} ({_pair(rank.median)})"]


def _pair(one: Compared) -> str:
    return f"{format_short(one.bytes)}, not {format_short(one.twin_bytes)}"


def _shorter(basis: Basis) -> str:
    if basis.break_even_tokens is None:
        return "no length would pay"
    return f"{basis.below:.0%} of the requests are below the {basis.break_even_tokens:,} tokens where it pays"


def _engine_line(page: AgentsPage) -> list[str]:
    """What the engine hands out for the median request, where its unit is larger than a byte or a token."""
    if page.unit_bytes <= 1:
        return []
    size = format_short(page.median_units * page.unit_bytes)
    return [f"{page.sessions.unit.upper():11}{page.median_units:,} = {size} a rank for the median request"]
