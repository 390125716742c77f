"""What `kvplan frontier` looks like: lines and tables, CSV, Markdown, or one JSON document."""

import dataclasses
import shlex
from collections.abc import Iterable
from typing import Any

from kvplan.agents.frontier import Frontier
from kvplan.agents.options import Option
from kvplan.agents.screen import warn
from kvplan.agents.users import UsersTable
from kvplan.tables import Table, print_csv, print_json, print_markdown, print_text
from kvplan.units import GIB, format_tokens

_SHORT = {"kv_cache_dtype": "kv", "mamba_ssm_dtype": "state", "mamba_full_memory_ratio": "ratio"}
_QUALITY = {"kv_cache_dtype": "quality with an {} cache", "mamba_ssm_dtype": "quality with a {} state"}


def show_frontier(found: Frontier, form: str, *, seconds: float | None = None) -> None:
    """Print it as text, json, csv or markdown; with `seconds`, also how long it took."""
    warn(found.warnings)
    if form == "json":
        print_json(to_dict(found))
    elif form == "csv":
        print_csv(_csv_rows(found))
    else:
        lines = _lines(found) if found.searched else _deployed_lines(found)
        if found.searched and seconds is not None:
            lines.append(f"COUNT      {found.searched.configurations:,} configurations in {seconds:.2f} s")
        (print_markdown if form == "markdown" else print_text)(lines, _tables(found))


def to_dict(found: Frontier) -> dict[str, Any]:
    """The document as JSON takes it, the schema first."""
    fields = dataclasses.asdict(found)
    return {"schema": fields.pop("schema_")} | fields


def spelled(flags: dict[str, Any]) -> str:
    """Flags as they are typed."""
    words: list[str] = []
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", shlex.quote(str(value))]
    return " ".join(words)


def _lines(found: Frontier) -> list[str]:
    asked, searched = found.inputs, found.searched
    assert searched is not None, "without a search there are other lines"
    risk = f"{asked['risk'] * 100:g} %"
    load = (
        f"{asked['sessions']:,} sessions of {found.workload} at {risk} risk, {_count(asked['spare'], 'group')} to spare"
    )
    lines = [f"{found.model}: {load}"]
    if found.answer is None:
        lines.append("NOT HELD   by any kind of GPU that was searched, in the numbers allowed; a table says why")
    else:
        lines += _answer_lines(found, found.answer)
    axes = "; ".join(f"{_SHORT.get(name, name)} {_values(name, values)}" for name, values in searched.axes.items())
    lines.append(
        f"SEARCHED   {searched.configurations:,} configurations, {searched.candidates:,} layouts and settings on "
        f"{_count(len(searched.gpus), 'kind')} of GPU: {axes}; the engine's rules were needed for "
        f"{searched.evaluated:,} of them, the others cannot be cheaper"
    )
    return [*lines, f"LEFT OUT   {'; '.join(searched.left_out)}"]


def _values(name: str, values: list[Any]) -> str:
    tried = ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    return tried if name in ("tp", "pp", "dcp", "ep") else f"as it is, {tried}"


def _answer_lines(found: Frontier, best: Option) -> list[str]:
    spare = found.inputs["spare"]
    lost = f" with {_count(spare, 'group')} lost" if spare else ""
    holds = "hold" if best.groups > 1 else "holds"
    lines = [
        f"CHEAPEST   {best.gpus:,}x {best.gpu.upper()}: {_count(best.groups, 'group')} of {best.group_gpus} "
        f"({_layout(best)}{_comma(_settings(best))}) {holds} {best.sessions:,} sessions{lost}, "
        f"{best.sessions_per_replica:,} a replica ({found.engine} {found.rules_version})"
    ]
    memory = f"{best.memory_bytes / GIB:,.0f} GiB of GPU memory"
    if best.price_per_hour is None:
        lines.append(
            f"PRICE      none given, so sorted by GPU memory in all, {memory}; --gpu-price H200=X/h sorts by it"
        )
    else:
        lines.append(f"PRICE      {best.price_per_hour:,.2f} an hour by --gpu-price, {memory}")
    flags = spelled(best.flags)
    words = shlex.join([found.inputs["model"], *shlex.split(flags), "--workload", found.inputs["workload"]])
    lines.append(f"CHECK      kvplan agents sessions {words} --risk {found.inputs['risk'] * 100:g}")
    times = f"    (once for each of {best.groups:,} groups)" if best.groups > 1 else ""
    lines += [f"RUN        {found.run}{times}"] if found.run else []
    assumed = [one for one in found.assumptions if one.kind == "assumed"]
    lines += [f"ASSUMED    {'; '.join(_assumed(one.name, one.value) for one in assumed)}"] if assumed else []
    narrow = [_QUALITY[name].format(value) for name, value in best.settings.items() if name in _QUALITY]
    runs = f"whether {found.engine} runs the model on this GPU"
    return [*lines, f"UNKNOWN    {'; '.join(['speed', runs, *narrow])}"]


def _assumed(name: str, value: object) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{name.removesuffix('_bytes')} {value / GIB:.2f} GiB"
    return f"{name} {value:,}" if type(value) is int else f"{name} {value}"


def _deployed_lines(found: Frontier) -> list[str]:
    table = found.users
    assert table is not None, "a deployment without a search has its table"
    groups = f"{_count(table.groups, 'group')} of {table.group_gpus}"
    spare = f", {_count(table.spare, 'group')} of them to spare" if table.spare else ""
    return [
        f"{found.model} on {table.gpus:,} GPUs, {groups}{spare}: contexts spread as in {found.workload}, "
        f"{table.risk * 100:g} % risk ({found.engine} {found.rules_version})",
        "SPREAD     the workload's contexts, all longer or shorter by one factor so that they have the mean shown",
        "ALIKE      every session exactly as long as the context shown, as `kvplan estimate` counts",
    ]


def _tables(found: Frontier) -> list[Table]:
    tables = []
    if found.by_gpu:
        tables.append(_options("CHEAPEST OF EACH GPU", found.by_gpu, found, "gpu"))
    if found.nearest and found.answer:
        tables.append(_options(f"CHEAPEST WITH ANOTHER CHOICE, on {found.answer.gpu}", found.nearest, found, "change"))
    if len(found.by_load) > 1:
        tables.append(_options("CHEAPEST BY LOAD", found.by_load, found, "load"))
    if found.not_held:
        tables.append(Table("NOT HELD by", ("gpu", "why"), [(one.gpu, one.reason) for one in found.not_held]))
    if found.users is not None:
        tables.append(_users(found.users))
    return tables


def _options(title: str, options: list[Option], found: Frontier, kind: str) -> Table:
    """One row an option; what tells them apart comes first."""
    heads = {"gpu": ("gpu",), "load": ("load", "gpu"), "change": ("with",)}
    rows = []
    for one in options:
        first = {"gpu": (one.gpu,), "load": (f"{one.load:,}", one.gpu), "change": (_change(one),)}[kind]
        price = f"{one.price_per_hour:,.2f}" if one.price_per_hour is not None else f"{one.memory_bytes / GIB:,.0f} GiB"
        spread = f"{_layout(one)}{_comma(_settings(one))}"
        rows.append((*first, f"{one.gpus:,}", f"{one.sessions:,}", price, _more(one, found), spread))
    money = "per hour" if found.sorted_by == "price" else "memory"
    return Table(title, (*heads[kind], "GPUs", "holds", money, "more", "layout and settings"), rows)


def _change(one: Option) -> str:
    """The first two of the choices that lead to this option."""
    words = [" ".join(_SHORT.get(word, word) for word in part.split()) for part in one.change.split(", ")]
    return ", ".join(words[:2]) + (", …" if len(words) > 2 else "")


def _more(one: Option, found: Frontier) -> str:
    """What an option costs beyond the answer."""
    best = found.answer
    if best is None or one.load != best.load:
        return ""
    mine, least = (one.memory_bytes, best.memory_bytes)
    if one.price_per_hour is not None and best.price_per_hour:
        return f"{one.price_per_hour / best.price_per_hour - 1:+.0%}"
    return f"{mine / least - 1:+.0%}"


def _users(table: UsersTable) -> Table:
    columns = ("context", "alike", "spread", *(f"{load:,}" for load in table.loads))
    rows = [
        (
            format_tokens(row.context_tokens),
            f"{row.alike:,}",
            "" if row.spread is None else f"{row.spread:,}",
            *("-" if gpus is None else f"{gpus:,}" for gpus in row.gpus),
        )
        for row in table.rows
    ]
    return Table("USERS × CONTEXT: sessions held, then GPUs that so many users take", columns, rows)


def _layout(one: Option) -> str:
    spread = [f"{axis}{one.layout[axis]}" for axis in ("tp", "pp", "dcp") if axis == "tp" or one.layout[axis] > 1]
    wide = one.layout["ep"] > one.layout["tp"]
    return " ".join(spread + ([f"dp{one.layout['dp']}", f"ep{one.layout['ep']}"] if wide else []))


def _settings(one: Option) -> str:
    return ", ".join(f"{_SHORT.get(name, name)} {value}" for name, value in one.settings.items())


def _comma(text: str) -> str:
    return f", {text}" if text else ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _csv_rows(found: Frontier) -> list[dict[str, Any]]:
    """Options where there was a search, else users × context."""
    if found.searched is None and found.users is not None:
        return [
            {"context_tokens": row.context_tokens, "alike": row.alike, "spread": row.spread}
            | {f"gpus_for_{load}": gpus for load, gpus in zip(found.users.loads, row.gpus, strict=True)}
            for row in found.users.rows
        ]
    rows: list[dict[str, Any]] = []
    kinds: Iterable[tuple[str, list[Option]]] = (
        ("answer", [found.answer] if found.answer else []),
        ("by_gpu", found.by_gpu),
        ("nearest", found.nearest),
        ("by_load", found.by_load),
    )
    for kind, options in kinds:
        for one in options:
            flat = {"kind": kind} | dataclasses.asdict(one)
            rows.append(flat | {"layout": _layout(one), "settings": _settings(one), "flags": spelled(one.flags)})
    return rows or [{"kind": "none"}]
