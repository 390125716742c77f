"""`kvplan engines`: the memory rules in force, and what each engine supports on hybrid layers."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kvplan.cli.sentences import Sentences

if TYPE_CHECKING:
    from kvplan.engine_facts import EngineFacts, Rule
    from kvplan.tables import Table

app = typer.Typer(cls=Sentences, help="The engines whose memory rules kvplan follows.", no_args_is_help=True)

_LABELS = {"dcp": "DCP"}


@app.command("list")
def list_command(json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """Every engine: its newest rules, and what works on hybrid layers."""
    from kvplan.engine_facts import list_engine_facts
    from kvplan.tables import print_text

    found = list_engine_facts()
    if json:
        _print_json(found, {})
        return
    print_text([], [_overview(found), _matrix(found)])


@app.command("show")
def show_command(
    name: Annotated[str | None, typer.Argument(help="vllm, sglang, trtllm, …; every engine by default.")] = None,
    engine_version: Annotated[str | None, typer.Option(help="Rules of this release; the newest by default.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """The rules in force with the release that each came in with, and every parity cell with its source."""
    from datetime import date

    from kvplan.engine_facts import engine_facts, list_engine_facts
    from kvplan.errors import UsageError
    from kvplan.tables import print_text

    if name is None and engine_version is not None:
        raise UsageError("--engine-version needs the engine's name, for example `kvplan engines show vllm`")
    found = list_engine_facts() if name is None else [engine_facts(name.lower(), engine_version)]
    for facts in found:
        for warning in (facts.newer_warning(engine_version), facts.age_warning(date.today())):
            if warning:
                print(f"kvplan: warning: {warning}", file=sys.stderr)
    if json:
        _print_json(found, {"name": name, "engine_version": engine_version})
        return
    for number, facts in enumerate(found):
        if number:
            print()
        print_text(_head(facts), _details(facts))


def _print_json(found: "list[EngineFacts]", inputs: dict[str, str | None]) -> None:
    from kvplan import __version__
    from kvplan.tables import print_json

    head = {"schema": "kvplan.engines/1", "kvplan_version": __version__, "inputs": inputs, "assumptions": []}
    print_json(head | {"engines": [facts.to_dict() for facts in found]})


def _overview(found: "list[EngineFacts]") -> "Table":
    from kvplan.tables import Table

    rows = [(facts.name, facts.rules_version, facts.released or "unknown", str(len(facts.rules))) for facts in found]
    return Table("RULES, newest by default", ("engine", "rules of", "released", "rules"), rows)


def _matrix(found: "list[EngineFacts]") -> "Table":
    """Features down, engines across."""
    from kvplan.engine_facts import FEATURES
    from kvplan.tables import Table

    known = [facts for facts in found if facts.parity]
    checked = max((facts.checked or "" for facts in known), default="")
    rows = [(_label(feature), *(str(facts.parity[feature]["support"]) for facts in known)) for feature in FEATURES]
    return Table(f"ON HYBRID LAYERS, checked {checked}", ("feature", *(facts.name for facts in known)), rows)


def _head(facts: "EngineFacts") -> list[str]:
    released = f"released {facts.released}" if facts.released else "release date unknown"
    lines = [f"{facts.title}, rules of {facts.rules_version}, {released}"]
    note = facts.source.get("note")
    lines.append(f"READ       {facts.source['title']}{f'; {note}' if note else ''}")
    links = [facts.source.get("url"), facts.released_source]
    return lines + [f"SOURCE     {link}" for link in links if link]


def _details(facts: "EngineFacts") -> "list[Table]":
    from kvplan.tables import Table

    rules = [(_step(rule), f"{rule.name}: {rule.effect}{_came(rule)} [{rule.source}]") for rule in facts.rules]
    cells = [
        (_label(name), str(cell["support"]), cell["since"] or "", str(cell["note"]))
        for name, cell in facts.parity.items()
    ]
    links = [(_label(name), cell["source"] or "none found") for name, cell in facts.parity.items()]
    tables = [
        Table("RULES", ("in force", "rule (releases that changed it) [source]"), rules),
        Table(f"ON HYBRID LAYERS, checked {facts.checked}", ("feature", "support", "since", "note"), cells),
        Table("SOURCES of the cells", ("feature", "url"), links),
    ]
    return [table for table in tables if table.rows]


def _step(rule: "Rule") -> str:
    """The release whose version of the rule counts."""
    return rule.in_force or ("not yet" if rule.since else "unknown")


def _came(rule: "Rule") -> str:
    return f" ({', '.join(rule.since)})" if len(rule.since) > 1 or (rule.since and rule.in_force is None) else ""


def _label(feature: str) -> str:
    return _LABELS.get(feature, feature.replace("_", " "))
