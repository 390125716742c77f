"""Words of a command line → flags and their values, as the engines' own parsers pair them."""

import json
import re
from collections.abc import Iterable
from typing import Any

from kvplan.errors import UsageError
from kvplan.launch.tables import Table

MAX_VALUE_CHARS = 1 << 16
_NUMBER = re.compile(r"-\d+(\.\d*)?([eE][-+]?\d+)?")
_TRUE = {"true", "1", "yes", "on", ""}
_FALSE = {"false", "0", "no", "off"}


def is_flag(word: str) -> bool:
    """A word that names a flag: `-tp`, `--max-model-len=8k`, not `-1` nor `-`."""
    return len(word) > 1 and word.startswith("-") and not _NUMBER.fullmatch(word)


def split_words(words: list[str], table: Table) -> tuple[dict[str, Any], list[str]]:
    """(flag → value, words that belong to no flag). The last of a repeated flag wins; dotted ones build a mapping.

    Raises UsageError where a value is longer than an engine would take.
    """
    values: dict[str, Any] = {}
    loose: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if len(word) > MAX_VALUE_CHARS:
            raise UsageError(f"{word[:40]!r}… is longer than {MAX_VALUE_CHARS} characters")
        if word == "--":
            continue
        if not is_flag(word):
            loose.append(word)
            continue
        spelled, equals, inline = word.partition("=")
        flag, negated = _levelled(spelled, table)
        if flag in table.switches:
            values[flag] = truth(inline, flag) is not negated
        elif negated:
            values[flag] = False
        else:
            put(values, flag, _value([inline] if equals else _taken(flag, rest, table), flag))
    return values, loose


def _levelled(spelled: str, table: Table) -> tuple[str, bool]:
    """vLLM writes its optimisation level into the flag: `-O3`."""
    if re.fullmatch(r"-O\d", spelled) and "O" in table.short:
        return f"{table.short['O']}.level", False
    return table.name(spelled)


def _taken(flag: str, rest: list[str], table: Table) -> list[str]:
    """The words after a flag that are its values: all up to the next flag for a list, else one, if there is one."""
    taken: list[str] = []
    while rest and not is_flag(rest[-1]) and (not taken or flag in table.lists):
        taken.append(rest.pop())
    return taken


def _value(taken: list[str], flag: str) -> Any:
    if not taken:
        return True
    return taken if len(taken) > 1 else structured(taken[0], flag)


def structured(text: str, flag: str) -> Any:
    """A JSON object where the text begins like one, else the text. Raises UsageError naming the flag."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"--{flag} {text[:60]!r}: not valid JSON") from None


def truth(text: str, flag: str) -> bool:
    """`--flag`, `--flag=true` or `--flag=0`."""
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise UsageError(f"--{flag}={text[:40]}: expected true or false")


def put(values: dict[str, Any], flag: str, value: Any) -> None:
    """Set a flag; `speculative-config.method` sets a key inside `speculative-config`."""
    head, *path = flag.split(".")
    if not path:
        values[flag] = value
        return
    inner = values.get(head)
    if not isinstance(inner, dict):
        inner = values[head] = {}
    for key in path[:-1]:
        below = inner.get(key)
        if not isinstance(below, dict):
            below = inner[key] = {}
        inner = below
    inner[path[-1].removesuffix("+")] = _scalar(value)


def _scalar(value: Any) -> Any:
    """A dotted value as JSON where it is JSON: `3` is a number, `mtp` a word."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def values_of_mapping(pairs: Iterable[tuple[str, Any]], table: Table) -> dict[str, Any]:
    """Flags from a YAML file or a log: keys as on the command line, values already typed."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        flag, negated = table.name(f"--{key}")
        put(values, flag, not value if negated and isinstance(value, bool) else value)
    return values
