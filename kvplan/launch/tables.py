"""What each flag of an engine means for memory: one TOML file per engine, beside this one."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

OPTIONS = "config"
"""The flag of every engine that names its YAML file."""
ENGINES = ("vllm", "sglang", "llamacpp", "trtllm")


@dataclass(frozen=True, slots=True)
class Table:
    """The flags of one engine, spelled with dashes and without the leading ones."""

    engine: str
    modelled: dict[str, str]
    """Flag → the flag of kvplan that it becomes."""
    memory: dict[str, str]
    """Flag → how it touches memory; not modelled."""
    ignored: frozenset[str]
    switches: frozenset[str]
    """Flags that take no value."""
    lists: frozenset[str]
    """Flags that take every value up to the next flag."""
    short: dict[str, str]
    environment: dict[str, str]
    """Environment variable → the flag that it stands for."""
    environment_memory: dict[str, str]

    def knows(self, flag: str) -> bool:
        return flag == OPTIONS or flag in self.ignored or flag in self.modelled or flag in self.memory

    def name(self, spelled: str) -> tuple[str, bool]:
        """The flag behind `--spelled_so`, `-ss` or `--no-…`, and whether it is negated; an unknown one as it is."""
        bare = spelled.lstrip("-")
        head, dot, rest = bare.partition(".")
        flag = self.short.get(head) or self.short.get(head.replace("_", "-")) or head.replace("_", "-")
        flag = self.short.get(flag, flag)
        if not self.knows(flag) and self.knows(flag.removeprefix("no-")):
            return flag.removeprefix("no-"), True
        if not self.knows(flag) and spelled.startswith("--") and not dot:
            flag = self._completed(flag)
        return flag + dot + rest, False

    def _completed(self, start: str) -> str:
        """The one flag that begins so, as Python's argparse completes it; `start` where there is none or several."""
        known = {*self.ignored, *self.modelled, *self.memory}
        found = {flag for flag in known if flag.startswith(start)}
        found |= {flag for spelling, flag in self.short.items() if spelling.startswith(start) and flag in known}
        return found.pop() if len(found) == 1 and len(start) > 2 else start


@cache
def load_table(engine: str) -> Table:
    """The flags of one of ENGINES."""
    data = tomllib.loads((files("kvplan.launch") / f"{engine}.toml").read_text(encoding="utf-8"))
    return Table(
        engine=data["engine"],
        modelled=data["modelled"],
        memory=data["memory"],
        ignored=frozenset(data["ignored"]),
        switches=frozenset(data["switches"]),
        lists=frozenset(data["lists"]),
        short=data["short"],
        environment=data["environment"],
        environment_memory=data["environment_memory"],
    )
