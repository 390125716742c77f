"""Files and JSON that may be anything: bounded in size and time, and one clear line when they are not what they say."""

import json
import math
import os
import stat
from pathlib import Path
from typing import IO, Any

from kvplan.errors import SourceError

MAX_CONFIG_BYTES = 16 << 20
MAX_INDEX_BYTES = 128 << 20
"""A weight map names every tensor: a model of 500,000 tensors lists them in about 60 MB."""


def open_regular(path: Path) -> IO[bytes]:
    """An ordinary file, opened. Devices, pipes, directories and links that go in circles are a SourceError."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise SourceError(f"{path}: not an ordinary file")
        return open(path, "rb")
    except (OSError, ValueError) as error:
        raise SourceError(f"{shown(path)}: {reason(error)}") from None


def read_json(path: Path, limit: int = MAX_CONFIG_BYTES) -> Any:
    """The JSON document in a file of at most `limit` bytes."""
    with open_regular(path) as file:
        try:
            raw = file.read(limit + 1)
        except OSError as error:
            raise SourceError(f"{path}: {reason(error)}") from None
    return parse_json(raw, str(path), limit)


def parse_json(raw: bytes, what: str, limit: int = MAX_CONFIG_BYTES) -> Any:
    """Strict JSON in UTF-8: no NaN, no Infinity, no numbers that overflow to them, no lone surrogates."""
    if len(raw) > limit:
        raise SourceError(f"{what}: larger than {limit >> 20} MiB, so it is not a file of this kind")
    try:
        text = raw.decode("utf-8")
        data = json.loads(text, parse_constant=_constant, parse_float=_float)
        if "\\ud" in text.lower():
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeError as error:
        raise SourceError(f"{what}: not UTF-8 text ({error.reason} at byte {error.start})") from None  # type: ignore[attr-defined]
    except json.JSONDecodeError as error:
        raise SourceError(f"{what}: not valid JSON: {error.msg} at line {error.lineno}") from None
    except ValueError as error:
        raise SourceError(f"{what}: not valid JSON: {error}") from None
    except RecursionError:
        raise SourceError(f"{what}: nested too deeply") from None
    return data


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large")
    return value


def reason(error: Exception) -> str:
    """What went wrong, in the operating system's words, lower-case."""
    said = getattr(error, "strerror", None) or str(error)
    return said[:1].lower() + said[1:]


def shown(path: Path | str) -> str:
    """A path short and clean enough for one line."""
    text = str(path)
    return repr(text)[:120] if not text.isprintable() or len(text) > 200 else text
