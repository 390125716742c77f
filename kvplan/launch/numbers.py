"""Numbers as the engines' command lines take them."""

import re
from typing import Any

from kvplan.errors import UsageError

_SCALE = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def whole(value: Any, flag: str) -> int:
    """An integer, or vLLM's `32k` (thousands), `32K` (1,024s), `1.5m`. Raises UsageError naming the flag."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    text = value.strip() if isinstance(value, str) else ""
    match = re.fullmatch(r"(-?\d{1,18})(?:\.(\d{1,6}))?([kKmMgGtT]?)", text, re.ASCII)
    if match is None or (match[2] and (not match[3] or match[3].isupper())):
        raise UsageError(f"--{flag} {str(value)[:40]}: expected a whole number")
    digits = match[2] or ""
    scaled = int(match[1] + digits) * _SCALE.get(match[3], 1)
    return scaled // int("1" + "0" * len(digits))


def absent(value: Any) -> bool:
    """`auto`, `none` and their like leave a flag to the engine."""
    return value is None or (isinstance(value, str) and value.strip().lower() in ("", "auto", "none", "null"))
