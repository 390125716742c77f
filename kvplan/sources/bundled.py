"""Models that ship with kvplan, or that the user keeps beside them: profiles/models/*.toml, schema kvplan.model/1."""

import re
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from kvplan import profiles
from kvplan.architectures import read_config
from kvplan.errors import ProfileError
from kvplan.model import Model, Published, Source

SCHEMA = "kvplan.model/1"
_KEYS = {
    "": ("schema", "name", "hf_id", "aliases", "twin", "twin_of", "source", "published", "config"),
    "source": ("origin", "via", "quality", "date", "note"),
    "published": tuple(field.name for field in fields(Published)),
}
_CONFIG_TABLE = re.compile(r"^\[config[.\]]", re.MULTILINE)


def list_models() -> list[dict[str, str]]:
    """Every bundled model: name, Hugging Face id, source and date. The configs themselves are not parsed."""
    return [
        {
            "name": str(head.get("name", stem)),
            "hf_id": str(head.get("hf_id", "")),
            "source": str(head.get("source", {}).get("origin", "")),
            "date": str(head.get("source", {}).get("date", "")),
        }
        for stem, head in sorted(_heads().items())
    ]


def from_profile(argument: str) -> Model | None:
    """The bundled model of that name, alias or Hugging Face id, in any case; None where there is none."""
    paths, wanted = profiles.paths("models"), argument.lower()
    stem = wanted if wanted in paths else _names().get(wanted)
    return None if stem is None else read_profile(paths[stem])


def near(argument: str) -> list[str]:
    """Bundled names that look like what was typed."""
    wanted = argument.lower().rsplit("/", 1)[-1]
    return list(dict.fromkeys(_names()[name] for name in get_close_matches(wanted, _names(), n=4, cutoff=0.6)))[:3]


def read_profile(path: Path) -> Model:
    """A profile as a Model. Raises ProfileError naming a key that its schema does not have."""
    document = profiles.load(path)
    if document.get("schema") != SCHEMA:
        raise ProfileError(f"{path}: schema is {str(document.get('schema'))[:40]!r}, expected {SCHEMA!r}")
    _check_keys(document, "", path)
    source, published = _table(document, "source", path), _table(document, "published", path)
    for key in ("params_total", "params_active", "checkpoint_bytes"):
        value = published.get(key)
        if value is not None and (type(value) is not int or not 0 < value < 1 << 60):
            raise ProfileError(f"{path}: published.{key}: expected a positive integer, found {str(value)[:40]}")
    config = document.get("config")
    if not isinstance(config, dict):
        raise ProfileError(f"{path}: the [config] table is missing")
    return read_config(
        config,
        name=str(document.get("name", path.stem)),
        hf_id=str(document.get("hf_id", "")),
        source=Source(str(source.get("origin", path)), str(source.get("date", "")), str(source.get("note", ""))),
        published=Published(**published),
    )


def _table(document: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise ProfileError(f"{path}: {name} is not a table")
    _check_keys(table, name, path)
    return table


def _check_keys(table: dict[str, Any], name: str, path: Path) -> None:
    for key in table:
        if key not in _KEYS[name]:
            close = get_close_matches(key, _KEYS[name], n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(_KEYS[name])}"
            raise ProfileError(f"{path}: unknown key {f'{name}.' if name else ''}{key[:40]}; {hint}")


@cache
def _heads() -> dict[str, dict[str, Any]]:
    """What stands before the [config] table of each profile, by file name; that is all a list needs."""
    found: dict[str, dict[str, Any]] = {}
    for stem, path in profiles.paths("models").items():
        try:
            found[stem] = profiles.parse(_CONFIG_TABLE.split(profiles.text_of(path), maxsplit=1)[0], path)
        except ProfileError:
            found[stem] = {}
    return found


@cache
def _names() -> dict[str, str]:
    """Every spelling that means a bundled profile, lower-case, and the profile's file name."""
    spelled: dict[str, str] = {}
    for stem, head in _heads().items():
        aliases = head.get("aliases", [])
        for name in (head.get("hf_id"), *(aliases if isinstance(aliases, list) else ())):
            if isinstance(name, str) and name:
                spelled.setdefault(name.lower(), stem)
    return (
        spelled
        | {str(head.get("name", stem)).lower(): stem for stem, head in _heads().items()}
        | {stem: stem for stem in _heads()}
    )
