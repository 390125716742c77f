"""Which modules a checkpoint's ignore and target lists mean, in the spellings that quantisation tools write."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import translate
from time import monotonic

from kvplan.errors import ConfigError

MAX_PATTERNS = 200_000
MAX_REGEX_LENGTH = 256
MAX_REGEX_REPEATS = 5
MAX_SECONDS = 3.0

_REPEATS = re.compile(r"(?<!\\)[*+{]")
_REPEATED_GROUP = re.compile(r"(?<!\\)\)[*+{]")
_SAME = (
    (re.compile(r"(?:^|(?<=\.))language_model\."), ""),
    (re.compile(r"^(?:model\.)?backbone\."), "model."),
    (re.compile(r"\.experts\.(?:\d+|\*)(?=\.|$)"), ".experts"),
    (re.compile(r"(?<=\.experts\.)w1$"), "gate_proj"),
    (re.compile(r"(?<=\.experts\.)w2$"), "down_proj"),
    (re.compile(r"(?<=\.experts\.)w3$"), "up_proj"),
)
"""Spellings of one module that differ by wrapper, root, expert number and the name of an expert's matrix."""


def canonical_path(path: str) -> str:
    """One spelling for a module path or for a pattern without regexes."""
    for spelling, one in _SAME:
        path = spelling.sub(one, path)
    return path


def spellings(path: str) -> tuple[str, ...]:
    """A module path as regexes may expect it: bare or under a multimodal wrapper, with an expert's number."""
    numbered = path.replace(".experts.", ".experts.0.", 1)
    return numbered, f"language_model.{numbered}", numbered.replace("model.", "model.language_model.", 1)


class Patterns:
    """A list of module patterns: exact paths, path parts (`gate`), globs (`model.layers.3.*`) and `re:` regexes.

    Raises ConfigError, naming `field`, for a regex that is invalid or could take exponential time.
    """

    def __init__(self, patterns: Iterable[object], field: str) -> None:
        self.field = field
        self.plain: set[str] = set()
        globs: list[str] = []
        self.regexes: list[re.Pattern[str]] = []
        self.spent = 0.0
        for number, pattern in enumerate(patterns):
            if not isinstance(pattern, str) or number >= MAX_PATTERNS:
                raise ConfigError(f"{field}: expected at most {MAX_PATTERNS:,} strings, found {str(pattern)[:40]!r}")
            if pattern.startswith("re:"):
                self.regexes.append(self._regex(pattern[3:]))
            elif set(canonical_path(pattern)) & set("*?["):
                globs.append(translate(canonical_path(pattern)))
            else:
                self.plain.add(canonical_path(pattern))
        self.globs = re.compile("|".join(dict.fromkeys(globs))) if globs else None

    def _regex(self, text: str) -> re.Pattern[str]:
        if len(text) > MAX_REGEX_LENGTH or len(_REPEATS.findall(text)) > MAX_REGEX_REPEATS:
            raise ConfigError(f"{self.field}: the pattern {text[:40]!r}… is too long or repeats too often to be tried")
        if _REPEATED_GROUP.search(text):
            raise ConfigError(f"{self.field}: the pattern {text[:60]!r} repeats a group, which may never finish")
        try:
            return re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigError(f"{self.field}: {text[:60]!r} is not a regular expression: {error}") from None

    def match(self, path: str) -> bool:
        """True when a pattern means the module `path` (`model.layers.3.mlp.up_proj`) or a module that holds it."""
        same = canonical_path(path)
        if self.plain and any(part in self.plain for part in _parts(same)):
            return True
        if self.globs and any(self.globs.match(parent) for parent in _parents(same)):
            return True
        return bool(self.regexes) and self._matches_regex(path)

    def _matches_regex(self, path: str) -> bool:
        started = monotonic()
        found = any(regex.match(form) for form in spellings(path) for regex in self.regexes)
        self.spent += monotonic() - started
        if self.spent > MAX_SECONDS:
            raise ConfigError(f"{self.field}: its regular expressions take too long to try")
        return found


def _parts(path: str) -> Iterator[str]:
    """Every run of whole components: `a.b.c` gives a, a.b, a.b.c, b, b.c and c."""
    names = path.split(".")
    for start in range(len(names)):
        for end in range(start + 1, len(names) + 1):
            yield ".".join(names[start:end])


def _parents(path: str) -> Iterator[str]:
    """The path and every module above it, with and without the root."""
    for rooted in (path, path.removeprefix("model.")):
        names = rooted.split(".")
        for end in range(len(names), 0, -1):
            yield ".".join(names[:end])
