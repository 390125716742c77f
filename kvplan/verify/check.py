"""From the facts of a log to a report: the right rules, every figure, and what misleads."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kvplan.document import Assumption
from kvplan.errors import KvplanError
from kvplan.launch import Launch
from kvplan.logs.figures import Facts, Printed
from kvplan.units import GIB
from kvplan.verify import llamacpp, sglang, trtllm, vllm
from kvplan.verify.case import Case, make_case
from kvplan.verify.report import Report, Row, estimate, spread, unmodelled
from kvplan.verify.served import as_printed, weight_rows

Checked = tuple[list[Row], list[str], int | None]
_ENGINES: dict[str, Callable[[Case], Checked]] = {
    "vllm": vllm.rows, "sglang": sglang.rows, "llamacpp": llamacpp.rows, "trtllm": trtllm.rows,
}  # fmt: skip
_RELEASES = {
    "vllm": (
        "0.33.0", "0.32.0", "0.30.0", "0.29.0", "0.28.0", "0.27.1", "0.26.0", "0.25.1", "0.20.2", "0.19.1", "0.18.1",
        "0.15.1", "0.13.0", "0.12.0", "0.11.0",
    ),
    "sglang": ("0.5.23", "0.5.21", "0.5.20", "0.5.17", "0.5.15", "0.5.13", "0.5.10", "0.5.9", "0.5.8"),
}  # fmt: skip
"""The first release of each set of rules, newest first: what a build without a release number is tried against."""
_OPEN = {"mamba_ssm_dtype": ("bf16", "fp16"), "kv_cache_dtype": ("fp8",)}
_ENOUGH = 2
"""Figures that two inferred inputs have to give."""
_AS_HEADS = 1.5


def verify_log(
    facts: Facts,
    *,
    model: str | None = None,
    command: Launch | None = None,
    from_scratch: bool = False,
    **own: Any,
) -> tuple[Report, Case, int | None]:
    """(report, the case as it was taken, blocks or pool bytes that the log implies).

    `own` are kvplan's flags, which win over the log. Raises KvplanError where nothing can be recomputed.
    """
    case = make_case(facts, model, own, command)
    lines, steps, settled = _matching(case, "engine_version" in own)
    lines = lines if case.complete else [_undecided(row) for row in lines]
    weights = weight_rows(case)
    lines = [*lines, *weights, *(_scratch_rows(case, settled, weights) if from_scratch else ())]
    lines += _untouched(facts, {row.line for row in lines})
    return _report(case, lines, steps, settled), case, settled


def _matching(case: Case, asked: bool) -> Checked:
    """The figures under the log's release, with what it leaves open settled by its own figures where they can.

    A build without a release number is tried against each set of rules, newest first; then dtypes that no line states.
    """
    check = _ENGINES[case.facts.engine]
    best = check(case)
    version = case.facts.version
    built = version is None or "dev" in version or "+" in version or "engine_version" not in case.flags
    if built and not asked:
        for release in _RELEASES.get(case.facts.engine, ()):
            if best_is := _better(check, case, best, "engine_version", release, all_of_it=True):
                case.notes.append(f"{version or 'no version in the log'}: the rules of {release} match these figures")
                return best_is
        if not case.complete and (best_is := _two_unknowns(check, case, best)):
            return best_is
    for flag, choices in _OPEN.items():
        for choice in choices if case.flags.get(flag, "auto") == "auto" else ():
            alone = (
                case.facts.engine == "sglang"
            )  # whose states and KV are sized apart; elsewhere all figures hang together
            if best_is := _better(check, case, best, flag, choice, all_of_it=not alone):
                case.notes.append(f"--{flag.replace('_', '-')} {choice}: not in the log, inferred from its sizes")
                best = best_is
                break
    return best


def _two_unknowns(check: Callable[[Case], Checked], case: Case, best: Checked) -> Checked | None:
    """A log without version and arguments: release and KV dtype together, where they then give every figure."""
    if sum(row.verdict in ("differs", "within", "exact") for row in best[0]) < _ENOUGH:
        return None
    for release in _RELEASES.get(case.facts.engine, ()):
        for choice in _OPEN["kv_cache_dtype"] if case.flags.get("kv_cache_dtype", "auto") == "auto" else ():
            both = replace(case, flags=case.flags | {"engine_version": release})
            if found := _better(check, both, best, "kv_cache_dtype", choice, all_of_it=True):
                case.flags |= both.flags
                case.notes.append(
                    f"rules of {release} and --kv-cache-dtype {choice} match these figures; neither is in it"
                )
                return found
    return None


def _better(
    check: Callable[[Case], Checked], case: Case, best: Checked, flag: str, value: str, *, all_of_it: bool = False
) -> Checked | None:
    """The figures with one flag changed, where fewer differ (with `all_of_it`: none); the case then keeps the flag."""
    if not _differ(best[0]):
        return None
    try:
        tried = check(replace(case, flags=case.flags | {flag: value}))
    except KvplanError:
        return None
    if _differ(tried[0]) >= (1 if all_of_it else _differ(best[0])):
        return None
    case.flags[flag] = value
    return tried


def _undecided(row: Row) -> Row:
    """A figure that other arguments than those assumed may have given."""
    if row.verdict != "differs":
        return row
    why = "the log shows none of the engine's arguments: give its command after --"
    return replace(row, verdict="not-modelled", note=f"{row.note}; {why}" if row.note else why)


def _differ(lines: list[Row]) -> int:
    """Figures that the rules do not give exactly; what is predicted with a range is no such figure."""
    return sum(row.verdict in ("differs", "within") for row in lines)


def _gib(size: int) -> Fraction:
    return Fraction(size, GIB)


def _scratch_rows(case: Case, settled: int | None, weights: list[Row]) -> list[Row]:
    """The pool predicted from the GPU alone, beside the printed one; SGLang's follows from its memory lines."""
    printed = case.facts.smallest("pool")
    after = case.facts.smallest("memory_loaded")
    if printed is None and after is not None and settled is not None and case.facts.engine == "sglang":
        printed = Printed("pool", f"{settled / GIB:.2f}", "GiB", after.line)
    if printed is None or printed.unit != "GiB":
        return []
    memory = case.facts.smallest("gpu_memory")
    if case.gpu is None and case.flags.get("gpu_memory") is None:
        if memory is None:
            return [unmodelled(printed, "--from-scratch needs the GPU: give it with --gpu")]
        case = replace(case, flags=case.flags | {"gpu_memory": str(memory.bytes)})
    known = any(row.what == "weights" and row.verdict in ("exact", "within") for row in weights)
    try:
        now = case.evaluate(kv_cache_memory=None, num_gpu_blocks_override=None)
        loaded = None if known else as_printed(case, now)
    except KvplanError as error:
        return [unmodelled(printed, str(error))]
    pool = (loaded or now).pool
    if pool is None:
        return [unmodelled(printed, "the pool cannot be predicted from these flags")]
    row = estimate(
        printed, _gib(pool.bytes), _gib(pool.low_bytes), _gib(pool.high_bytes),
        f"predicted{' with the weights as printed' if loaded else ''}, "
        f"{pool.low_bytes / GIB:.2f} to {pool.high_bytes / GIB:.2f} GiB",
    )  # fmt: skip
    return [replace(row, what="pool from scratch")]


def _untouched(facts: Facts, seen: set[int]) -> list[Row]:
    """Memory figures that no rule speaks about, once each."""
    what = {
        "pool": "taken as it is",
        "graphs": "CUDA graphs are not recomputed",
        "graphs_estimate": "CUDA graphs are not recomputed",
        "activation": "activations are not recomputed",
        "memory_after_pools": "what is left for activations and graphs",
        "draft_kv_pool": "the draft's own pool",
        "draft_k_pool": "the draft's own pool",
        "weights_buffer": "weights in the format of the file",
        "compute_buffer": "buffers of the computation graph",
    }
    found = []
    for name, why in what.items():
        peers = facts.latest(name)
        if name.endswith("_buffer"):
            found += [unmodelled(peer, f"{peer.who}: {why}") for peer in peers]
        elif (figure := facts.smallest(name)) is not None and (name == "pool" or figure.line not in seen):
            same = [one for one in peers if one.unit == figure.unit]
            found.append(
                unmodelled(figure, why + (f"; {spread(same)} over {len(same)} ranks" if len(same) > 1 else ""))
            )
    return found


def _report(case: Case, lines: list[Row], steps: list[str], settled: int | None) -> Report:
    facts = case.facts
    warnings = list(case.warnings)
    rules = None
    if facts.engine == "vllm":
        now = vllm.figures_at(case, settled or 1)
        rules = str(now["rules_version"])
        warnings += vllm.misleading(case, now)
    if case.gpu is None and any(row.verdict == "differs" for row in lines) and facts.engine != "llamacpp":
        warnings.append("the log names no GPU, and what differs may depend on it: give it with --gpu")
    warnings += _stored_whole(case, lines)
    warnings += [
        f"{name}: one rank printed different values; its last is read"
        for name in ("kv_cache_tokens", "pool", "max_total_num_tokens")
        if facts.disagree(name) and not (name == "kv_cache_tokens" and len(facts.latest("pool")) > 1)
    ]
    assumptions = tuple(Assumption("log", note, "derived", "the log") for note in case.notes)
    inputs = {"model": case.model.name} | {name: value for name, value in case.flags.items() if name != "engine"}
    return Report(
        facts.engine,
        facts.version,
        rules,
        case.model.name,
        inputs,
        tuple(lines),
        tuple(steps),
        tuple(warnings),
        assumptions,
    )


def _stored_whole(case: Case, lines: list[Row]) -> list[str]:
    """A latent cache that takes many times its bytes is stored as full heads."""
    if not any(layer.latent for layer in case.model.mixers()):
        return []
    split = case.facts.last("k_pool") or case.facts.last("k_buffer")
    buffers = [
        row for row in lines if row.what in ("kv_buffer", "kv_pool") and row.verdict == "differs" and row.computed
    ]
    for row in buffers:
        times = row.printed / row.computed if row.computed else 0
        if times >= _AS_HEADS:
            return [f"MLA looks to be stored as full heads, or twice: {times:.1f} times the latent's bytes"]
    if split and case.facts.engine == "sglang":
        return ["MLA is stored as separate K and V: the latent form is one row of kv_lora_rank + rope per token"]
    return []
