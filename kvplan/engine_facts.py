"""What is known about each engine: its memory rules by release, and what it supports on hybrid layers.

The rules come from the engine's own rule table where it has one (`kvplan.engines.<name>.rules`); dates, sources, the
parity cells and the rules of engines without a table are data, `profiles/engines/<name>.toml`.
"""

import re
from dataclasses import asdict, dataclass
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kvplan.capacity import engine_names, find_engine
from kvplan.errors import ProfileError, UsageError
from kvplan.profiles import load, paths

Feature = Literal["prefix_caching", "offload", "disaggregation", "speculation", "dcp", "unified_memory"]
FEATURES: tuple[Feature, ...] = get_args(Feature)
"""Columns of the parity matrix. Unified memory: one pool for states and KV, not memory shared with the host."""

OLD_DAYS = 183

Url = Annotated[str, Field(pattern=r"^https://[^\s]+$", max_length=200)]
Day = Annotated[str, Field(pattern=r"^20\d\d-[01]\d-[0-3]\d$")]
Words = Annotated[str, Field(min_length=1, max_length=140)]
Note = Annotated[str, Field(pattern=r"^\S[^\n]*\.$", max_length=140)]
"""One sentence."""
Since = Annotated[str, Field(pattern=r"^(\d+(\.\d+)+|20\d\d-[01]\d-[0-3]\d)$")]
"""The release from which it holds, or the date of the source that says it."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Reference(_Strict):
    """Where the rules were read."""

    title: str
    url: Url
    date: Day
    note: str = ""


class RuleRow(_Strict):
    """A rule that the engine's code has no table for; `attribute` takes its releases from the code's rules."""

    name: Words
    effect: Annotated[str, Field(min_length=1, max_length=200)]
    source: Words
    since: Annotated[tuple[Since, ...], Field(strict=False)] = ()
    attribute: str | None = None


class Cell(_Strict):
    """Whether the engine has the feature on layers with a recurrent state."""

    support: Literal["yes", "no", "partial", "unknown"]
    note: Note
    since: Since | None = None
    source: Url | None = None

    @model_validator(mode="after")
    def _sourced(self) -> "Cell":
        if (self.source is None) != (self.support == "unknown") or (self.since is None) != (self.source is None):
            raise ValueError("a known cell has a source and a release or date, an unknown one has neither")
        return self


class _Profile(_Strict):
    schema_: Literal["kvplan.engine/1"] = Field(alias="schema")
    name: str
    title: str
    checked: Day
    source: Reference
    release_dates: dict[str, str] = {}
    rules: Annotated[tuple[RuleRow, ...], Field(strict=False)] = ()
    parity: dict[Feature, Cell]

    @model_validator(mode="after")
    def _whole(self) -> "_Profile":
        if missing := [feature for feature in FEATURES if feature not in self.parity]:
            raise ValueError(f"parity lacks {', '.join(missing)}")
        for release, day in self.release_dates.items():
            if release != "url" and re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", day) is None:
                raise ValueError(f"release_dates {release}: {day!r} is not a date")
        return self


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: the releases at which it came in or changed, and the one that counts for the release asked about."""

    name: str
    since: tuple[str, ...]
    """Empty where the release is not known."""
    in_force: str | None
    """The newest of `since` up to the release asked about; None where that is older than the rule."""
    effect: str
    source: str


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Everything that `kvplan engines` shows of one engine."""

    name: str
    title: str
    rules_version: str
    """The release whose rules are in force."""
    released: str | None
    """Its date; None where it is not known."""
    released_source: str | None
    source: dict[str, str]
    values: dict[str, Any]
    """The rules in force, as the engine's rule table answers them; empty without such a table."""
    rules: tuple[Rule, ...]
    checked: str | None
    """When the parity cells were looked up."""
    parity: dict[str, dict[str, str | None]]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def age_warning(self, today: date) -> str | None:
        """A sentence where the rules are older than half a year."""
        if self.released is None or (age := (today - date.fromisoformat(self.released)).days) <= OLD_DAYS:
            return None
        return f"the rules of {self.title} {self.rules_version} are {age} days old ({self.released})"

    def newer_warning(self, asked: str | None) -> str | None:
        """A sentence where the release asked for came out after the last one whose code was read."""
        if asked is None or "dev" in asked or version_key(asked)[:3] <= version_key(self.rules_version):
            return None
        return f"{self.title} {asked[:40]} is newer than any release read; the rules are those of {self.rules_version}"


def list_engine_facts() -> list[EngineFacts]:
    """Every engine, with the rules of its newest release."""
    return [engine_facts(name) for name in engine_names()]


def engine_facts(name: str, version: str | None = None) -> EngineFacts:
    """One engine with the rules of `version`, the newest by default. Raises UsageError for one unknown."""
    engine = find_engine(name)
    profile, table = _profile(name), _table(name)
    if version is not None and table is None:
        raise UsageError(f"--engine-version {version[:40]}: {name} has one set of rules, {engine.rules_version}")
    rules = table.rules_for(version) if table else None
    release = rules.version if rules is not None else engine.rules_version
    dates = profile.release_dates if profile else {}
    released = dates.get(release, dates.get(release.rpartition(" ")[2]))
    return EngineFacts(
        name=name,
        title=profile.title if profile else name,
        rules_version=release,
        released=released,
        released_source=dates.get("url") if released else None,
        source=profile.source.model_dump() if profile else {"title": engine.source},
        values=_values(rules),
        rules=_rules(table, profile, release),
        checked=profile.checked if profile else None,
        parity={feature: profile.parity[feature].model_dump() for feature in FEATURES} if profile else {},
    )


def _profile(name: str) -> _Profile | None:
    path = paths("engines").get(name)
    if path is None:
        return None
    try:
        profile = _Profile.model_validate(load(path))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the profile"
        raise ProfileError(f"{path}: {field}: {first['msg'].removeprefix('Value error, ')}") from None
    if profile.name != name:
        raise ProfileError(f"{path}: name: {profile.name[:40]!r} is not the file's own name")
    return profile


def _table(name: str) -> ModuleType | None:
    """The engine's rule table, if it has one: a module with `rules_for(version)`."""
    package = import_module(f"kvplan.engines.{name}")
    module = f"{package.__name__}.rules"
    return import_module(module) if hasattr(package, "__path__") and find_spec(module) else None


def _values(rules: Any) -> dict[str, Any]:
    names = [name for name, kind in vars(type(rules)).items() if isinstance(kind, property)] if rules else []
    found = {name: getattr(rules, name) for name in names if name != "version"}
    return {name: value if isinstance(value, bool | int | str) or value is None else float(value)
            for name, value in found.items()}  # fmt: skip


def _rules(table: ModuleType | None, profile: _Profile | None, release: str) -> tuple[Rule, ...]:
    """The code's own catalogue first, then the profile's rows."""
    listed = table.catalogue() if table is not None and hasattr(table, "catalogue") else []
    rows = [(row["name"], tuple(row["since"].split(" / ")), row["effect"], row["source"]) for row in listed]
    for row in profile.rules if profile else ():
        since = row.since if row.attribute is None else _changes(table, profile, row.attribute)
        rows.append((row.name, since, row.effect, row.source))
    return tuple(Rule(name, since, _in_force(since, release), effect, source) for name, since, effect, source in rows)


def _changes(table: ModuleType | None, profile: _Profile | None, attribute: str) -> tuple[str, ...]:
    """The releases at which an attribute of the code's rules takes another value."""
    releases = [release for release in profile.release_dates if release != "url"] if profile else []
    if table is None or not releases or not hasattr(table.rules_for(None), attribute):
        raise ProfileError(f"rules: {attribute!r} is not an attribute of this engine's rule table")
    values = [getattr(table.rules_for(release), attribute) for release in releases]
    return tuple(release for release, value, before in zip(releases[1:], values[1:], values, strict=False)
                 if value != before)  # fmt: skip


def _in_force(since: tuple[str, ...], release: str) -> str | None:
    passed = [step for step in since if version_key(step) <= version_key(release)]
    return passed[-1] if passed else None


def version_key(version: str) -> tuple[int, ...]:
    """Release numbers in order; whatever carries none sorts after all."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else (1 << 30,)
