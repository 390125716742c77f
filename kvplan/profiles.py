"""Find and load TOML profiles: the user's own, then those that ship with kvplan."""

import os
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from kvplan.errors import ProfileError

MAX_PROFILE_BYTES = 4 << 20
MAX_KEY_DOTS = 1000
"""The parser takes time with the square of the parts of one key."""


def profiles_root() -> Path:
    """`kvplan/profiles` of an installed wheel, else `profiles/` beside the package."""
    package = Path(str(files("kvplan")))
    inside = package / "profiles"
    return inside if inside.is_dir() else package.parent / "profiles"


def user_root() -> Path:
    """Where the user's own profiles live: `$KVPLAN_HOME`, else `$XDG_DATA_HOME/kvplan`, else ~/.local/share/kvplan."""
    if home := os.environ.get("KVPLAN_HOME"):
        return Path(home)
    return Path(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")) / "kvplan"


@cache
def paths(kind: str) -> dict[str, Path]:
    """Profiles of a kind ("models", "gpus", …) by lower-case file name; the user's win."""
    found: dict[str, Path] = {}
    for root in (profiles_root(), user_root()):
        try:
            found |= {path.stem.lower(): path for path in sorted((root / kind).glob("*.toml"))}
        except OSError as error:
            raise ProfileError(f"{root / kind}: {error.strerror or error}") from None
    return found


def text_of(path: Path) -> str:
    """A profile as text. Raises ProfileError for what is no ordinary file, too large, or too slow to parse."""
    try:
        if not path.is_file():
            raise ProfileError(f"{path}: {'not an ordinary file' if path.exists() else 'no such file'}")
        with path.open("rb") as file:
            raw = file.read(MAX_PROFILE_BYTES + 1)
        text = raw.decode("utf-8")
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ProfileError(f"{path}: not UTF-8 text") from None
    if len(raw) > MAX_PROFILE_BYTES:
        raise ProfileError(f"{path}: larger than {MAX_PROFILE_BYTES >> 20} MiB, so not a profile")
    if any(line.partition("=")[0].count(".") > MAX_KEY_DOTS for line in text.splitlines()):
        raise ProfileError(f"{path}: a key of more than {MAX_KEY_DOTS} parts")
    return text


def parse(text: str, path: Path) -> dict[str, Any]:
    """The TOML document. Raises ProfileError where it is none."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ProfileError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise ProfileError(f"{path}: nested too deeply") from None


@cache
def load(path: Path) -> dict[str, Any]:
    """One parsed profile. Raises ProfileError where the file is unreadable, too large or not TOML."""
    return parse(text_of(path), path)
