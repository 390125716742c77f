"""Python reprs in log lines: `{'model': 'x', …}` and `Config(model='x', …)`, read without evaluating anything."""

import ast
from typing import Any

_OPEN, _CLOSE = "([{<", ")]}>"


def split_top(text: str) -> tuple[list[str], bool]:
    """(parts between the commas that stand in no bracket and no quote, whether a closing bracket ended them)."""
    parts: list[str] = []
    depth, start, quote, skip = 0, 0, "", False
    for place, char in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            if depth == 0:
                return [*parts, text[start:place].strip()], True
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return ([*parts, text[start:].strip()] if depth == 0 and not quote else parts), False


def literal(text: str) -> Any:
    """A Python literal, `Config(…)` as a mapping, or the text itself."""
    text = text.strip()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        pass
    if text.startswith("{"):
        return read_dict(text[1:])
    head, bracket, inside = text.partition("(")
    return read_pairs(inside) if bracket and head.isidentifier() else text


def read_dict(text: str) -> dict[str, Any]:
    """What follows the `{` of a dict's repr; values that are no literals stay text. A cut one loses its last item."""
    found: dict[str, Any] = {}
    parts, closed = split_top(text)
    for part in parts if closed else parts[:-1]:
        key, colon, value = part.partition(":")
        name = key.strip().strip("'\"")
        if colon and name:
            found[name] = literal(value)
    return found


def read_pairs(text: str) -> dict[str, Any]:
    """`key=value, key=value` up to the closing bracket or the end."""
    found: dict[str, Any] = {}
    for part in split_top(text)[0]:
        key, equals, value = part.partition("=")
        if equals and key.strip().isidentifier():
            found[key.strip()] = literal(value)
    return found
