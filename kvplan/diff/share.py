"""A share as people type it: `10%` or `0.1`."""

import re
from fractions import Fraction

from kvplan.errors import UsageError


def parse_share(text: str, flag: str) -> Fraction:
    """From 0 to 1. Raises UsageError naming the flag; a bare number of 1 and more could mean either and is refused."""
    match = re.fullmatch(r"\s*(\d{1,6}(?:\.\d{1,12})?)\s*(%?)\s*", text, re.ASCII)
    share = Fraction(match[1]) / (100 if match[2] else 1) if match else None
    if match is None or share is None or share > 1 or (share == 1 and not match[2]):
        raise UsageError(f"{flag} {text[:40]!r} is not a share; write for example 10% or 0.1")
    return share
