"""Find and load TOML profiles: the user's own, then those that ship with kvplan."""

import os
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from kvplan.errors import ProfileError

MAX_PROFILE_BYTES = 4 << 20


def profiles_root() -> Path:
    """`kvplan/profiles` of an installed wheel, else `profiles/` beside the package."""
    package = Path(str(files("kvplan")))
    inside = package / "profiles"
    return inside if inside.is_dir() else package.parent / "profiles"


def user_root() -> Path:
    """Where the user's own profiles live: `$KVPLAN_HOME`, else `$XDG_DATA_HOME/kvplan`, else ~/.local/share/kvplan."""
    if home := os.environ.get("KVPLAN_HOME"):
        return Path(home)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "kvplan"


@cache
def paths(kind: str) -> dict[str, Path]:
    """Profiles of a kind ("models", "gpus", …) by lower-case file name; the user's win."""
    found: dict[str, Path] = {}
    for root in (profiles_root(), user_root()):
        folder = root / kind
        if folder.is_dir():
            found |= {path.stem.lower(): path for path in sorted(folder.glob("*.toml"))}
    return found


@cache
def load(path: Path) -> dict[str, Any]:
    """One parsed profile. Raises ProfileError where the file is unreadable, too large or not TOML."""
    try:
        if path.stat().st_size > MAX_PROFILE_BYTES:
            raise ProfileError(f"{path}: larger than {MAX_PROFILE_BYTES >> 20} MiB, so not a profile")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise ProfileError(f"{path}: nested too deeply") from None
