"""A log as clean lines, however it was captured, in bounded memory."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAX_LINE_BYTES = 1 << 16
MAX_LOG_BYTES = 1 << 31
"""Figures of a boot stand near the start; what follows this much is not read."""

_COLOUR = re.compile(
    r"(?:\x1b|\\u001b|\\x1b|\\033)\[[0-9;?]*[ -/]*[@-~]"  # colours and cursor moves, also as a logger escapes them
    r"|\x1b\][^\x07]*\x07"  # window titles
    r"|\[(?:0|1|3\d|9\d)(?:;\d+)*m"  # colours whose escape character was lost
)
_MARKS = ("\x1b", "\\u001b[", "\\x1b[", "\\033[", "[0m", "[0;", "[1;", "[3", "[9", "[1m")
"""What every colour code holds one of."""
_CUT_NUMBER = re.compile(r"[\d.,]+$")
"""A number at the end of a line that was cut is a part of one."""
_RANK = re.compile(r"(?<![A-Za-z])(DP|PP|TP|EP|RANK|rank)[ =_:]?(\d{1,4})(?!\d)")


@dataclass(frozen=True, slots=True)
class Line:
    """One line without colours; `number` counts from 1."""

    number: int
    text: str

    def who(self, before: int) -> str:
        """The rank that speaks, from what stands before the message: `DP0 TP3`, or nothing."""
        found = {match[1].upper(): match[2] for match in _RANK.finditer(self.text[:before])}
        return " ".join(f"{axis}{found[axis]}" for axis in ("DP", "PP", "TP", "RANK") if axis in found)


def clean_lines(stream: BinaryIO) -> Iterator[Line]:
    """Every line, cut at MAX_LINE_BYTES, split at carriage returns (progress bars), colours and NULs taken out."""
    number = read = 0
    while read < MAX_LOG_BYTES and (raw := stream.readline(MAX_LINE_BYTES)):
        number += 1
        read += len(raw)
        whole = raw.endswith(b"\n")
        text = raw.decode("utf-8", errors="replace").replace("\x00", "")
        if not whole:
            text = _CUT_NUMBER.sub("", text)
        while not whole and (more := stream.readline(MAX_LINE_BYTES)):
            read += len(more)
            whole = more.endswith(b"\n")
        if any(mark in text for mark in _MARKS):
            text = _COLOUR.sub("", text)
        for part in text.split("\r"):
            if stripped := part.strip():
                yield Line(number, stripped)
