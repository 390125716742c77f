"""Numbers as people type them, and integers as kvplan keeps them.

Token counts follow vLLM's rule: `1k` = 1,000, `1K` = 1,024, `1m` = 1,000,000, `1M` = 1,048,576.
Sizes: an integer is bytes; otherwise a number with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB.
"""

import re
from fractions import Fraction

from kvplan.errors import UsageError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

MAX_TOKENS = 1 << 40
MAX_BYTES = 1 << 60
MAX_LENGTHS = 256

_TOKEN_SUFFIX = {"": 1, "k": 10**3, "K": 1 << 10, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30}
_SIZE_SUFFIX = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_NUMBER = re.compile(r"\s*(\d+(?:_\d{3})*(?:,\d{3})*(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)


def ceil_div(value: int, by: int) -> int:
    """Integer division that rounds up; storage always does."""
    return -(-value // by)


def _scaled(text: str, suffixes: dict[str, int], suffix_of: str, what: str, example: str) -> int:
    match = _NUMBER.fullmatch(text) if len(text) <= 40 else None
    if match is None or suffix_of not in suffixes:
        raise UsageError(f"{what} {text[:40]!r} is not a number with a known suffix; write {example}")
    value = Fraction(match[1].replace("_", "").replace(",", "")) * suffixes[suffix_of]
    if value.denominator != 1 and suffixes[suffix_of] == 1:
        raise UsageError(f"{what} {text!r} is not a whole number")
    return int(value)


def parse_tokens(text: str) -> int:
    """Tokens, at least 1: `128k` = 128,000, `128K` = 131,072."""
    suffix = _suffix(text)
    tokens = _scaled(text, _TOKEN_SUFFIX, suffix, "token count", "131072, 128k (thousands) or 128K (1,024s)")
    if not 1 <= tokens <= MAX_TOKENS:
        raise UsageError(f"token count {text!r} is out of range: 1 to {MAX_TOKENS:,}")
    return tokens


def parse_token_list(text: str) -> list[int]:
    """Comma-separated token counts, each once, in the order given."""
    parts = text.split(",", MAX_LENGTHS)
    if not all(part.strip() for part in parts):
        raise UsageError(f"--context {text[:40]!r} holds an empty length; write for example --context 128K,1M")
    if len(parts) > MAX_LENGTHS:
        raise UsageError(f"--context holds more than {MAX_LENGTHS} lengths")
    for part in parts[1:]:
        if part.strip().startswith("0") and part.strip() != "0":
            raise UsageError(f"--context {text[:40]!r}: the comma separates lengths; write 131072 and not 131,072")
    return list(dict.fromkeys(parse_tokens(part) for part in parts))


def parse_size(text: str) -> int:
    """Bytes, at least 1: `80GiB`, `141GB` or a plain integer."""
    size = _scaled(text, _SIZE_SUFFIX, _suffix(text).lower(), "size", "80GiB, 141GB or plain bytes")
    if not 1 <= size <= MAX_BYTES:
        raise UsageError(f"size {text!r} is out of range: 1 B to {MAX_BYTES:,} B")
    return size


def _suffix(text: str) -> str:
    return text.strip().lstrip("0123456789_,. ") if len(text) <= 40 else "?"


def printable(text: str) -> str:
    """Text safe for a terminal: line ends, control and direction characters as escapes (`\\x1b`)."""
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def format_gib(size_bytes: int) -> str:
    """Memory as people read it: `42.23 GiB`, with MiB, KiB and B below one of each."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(size_bytes) >= unit:
            return f"{size_bytes / unit:,.2f} {name}"
    return f"{size_bytes:,} B"


def format_short(size_bytes: int) -> str:
    """Memory in three significant digits, for table cells beside an exact figure: `414 MiB`, `3.79 GiB`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit:
            value = size_bytes / unit
            return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {name}"
    return f"{size_bytes:,} B"


def format_gb(size_bytes: int) -> str:
    """Decimal gigabytes, for the places where a published claim is quoted."""
    return f"{size_bytes / 10**9:,.2f} GB"


def format_tokens(tokens: int) -> str:
    """The shortest exact spelling: 131072 → `128K`, 128000 → `128k`, 5654 → `5,654`."""
    for suffix in ("m", "M", "k", "K"):
        scale = _TOKEN_SUFFIX[suffix]
        if tokens >= scale and tokens % scale == 0:
            return f"{tokens // scale}{suffix}"
    return f"{tokens:,}"
