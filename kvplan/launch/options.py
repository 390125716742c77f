"""An engine's YAML options file, read strictly: bounded, plain data, no aliases."""

from pathlib import Path
from typing import Any

from kvplan.errors import UsageError

MAX_BYTES = 1 << 20
MAX_DEPTH = 20


def read_options(path: str) -> dict[str, Any]:
    """The mapping in a YAML file. Raises UsageError with one line for anything else."""
    import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - only a command that names a file needs it

    text = _text(Path(path).expanduser())
    try:
        _check(yaml.parse(text, Loader=yaml.SafeLoader), path)
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"--config {path}: not valid YAML: {str(error)[:120]}") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise UsageError(f"--config {path}: expected a mapping of flags to values")
    return found


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise UsageError(f"--config {path}: no such file here")
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"--config {path}: larger than {MAX_BYTES >> 20} MiB, so not an options file")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path}: {error}") from None


def _check(events: Any, path: str) -> None:
    """Aliases can multiply without bound, and no engine's options need them."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        if kind == "AliasEvent":
            raise UsageError(f"--config {path}: YAML aliases are refused")
        depth += kind in ("MappingStartEvent", "SequenceStartEvent")
        depth -= kind in ("MappingEndEvent", "SequenceEndEvent")
        if depth > MAX_DEPTH:
            raise UsageError(f"--config {path}: nested deeper than {MAX_DEPTH}")
