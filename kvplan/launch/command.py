"""Find the engine in a command line and read everything after it."""

import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from kvplan.errors import UsageError
from kvplan.launch.options import read_options
from kvplan.launch.reading import Launch, read_values
from kvplan.launch.tables import OPTIONS, Table, load_table
from kvplan.launch.tokens import is_flag, split_words, truth, values_of_mapping

MAX_WORDS = 4096
_MODULES = {
    "vllm.entrypoints.openai.api_server": "vllm", "vllm.entrypoints.cli.main": "vllm", "vllm": "vllm",
    "sglang.launch_server": "sglang", "sglang": "sglang", "llama_cpp.server": "llamacpp",
    "tensorrt_llm.commands.serve": "trtllm",
}  # fmt: skip
_BINARIES = {
    "vllm": "vllm", "sglang": "sglang", "llama-server": "llamacpp", "llama-server.exe": "llamacpp",
    "trtllm-serve": "trtllm",
}  # fmt: skip
_IMAGES = {r"vllm/vllm-\w+|vllm-openai": "vllm", r"llama\.cpp:(?:light-|full-)?server": "llamacpp"}
"""Container images whose entry point is the server, so that flags follow the image."""
_NO_SERVERS = ("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve")
_NAMES = ("--name", "-v", "--volume", "--hostname", "--network", "-w", "--workdir", "-u", "--user")
"""Flags of docker whose value may be spelled like an engine."""
_ENDS = {"&&", "||", "|", ";", "&", ">", ">>", "2>&1", "2>", "<"}
_ASSIGNMENT = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Found:
    engine: str
    before: list[str]
    after: list[str]


def parse_command(argv: list[str]) -> Launch:
    """The deployment that an engine's command line states. Words before the engine (environment, docker, numactl, …)
    are passed over, their environment assignments read.

    Raises UsageError where no engine is found or a value cannot be meant.
    """
    found = _find(_words(argv))
    table = load_table(found.engine)
    values, loose = split_words(found.after, table)
    values = _environment(found.before, table) | _with_options(values, table)
    _take_model(loose, values, table)
    return read_values(found.engine, values)


def _words(argv: list[str]) -> list[str]:
    """The words, with quoted whole commands (`bash -c "vllm serve …"`) taken apart."""
    if len(argv) > MAX_WORDS:
        raise UsageError(f"the command has more than {MAX_WORDS} words")
    words: list[str] = []
    for word in argv:
        if not is_flag(word) and any(name in word.split() or f"{name} " in word for name in (*_BINARIES, *_MODULES)):
            try:
                words += shlex.split(word, comments=True)
            except ValueError as error:
                raise UsageError(f"the command cannot be read: {error}") from None
        else:
            words.append(word)
    return [word for word in words if word not in ("\\", "\n")]


def _find(words: list[str]) -> _Found:
    for place in range(len(words)):
        engine, taken = _engine_at(words, place)
        if engine is not None:
            after = _after_subcommand(words[place + taken :], words[place])
            end = next((index for index, later in enumerate(after) if later in _ENDS), len(after))
            return _Found(engine, words[:place], after[:end])
    shown = " ".join(words)[:60]
    raise UsageError(
        f"no engine in {shown!r}: write for example `-- vllm serve MODEL`, `-- python -m sglang.launch_server`, "
        "`-- llama-server` or `-- trtllm-serve`"
    )


def _engine_at(words: list[str], place: int) -> tuple[str | None, int]:
    """The engine that starts at this word, and how many words name it."""
    word = words[place]
    if place and words[place - 1] in _NAMES and {"docker", "podman"} & set(words[:place]):
        return None, 1
    if word == "-m" and place + 1 < len(words) and words[place + 1] in _MODULES:
        return _MODULES[words[place + 1]], 2
    name = PurePosixPath(word.replace("\\", "/")).name
    if name in _BINARIES and not is_flag(word):
        return _BINARIES[name], 1
    if name in ("api_server.py", "launch_server.py"):
        return ("vllm" if name == "api_server.py" else "sglang"), 1
    if place + 1 < len(words) and is_flag(words[place + 1]) and {"docker", "podman"} & set(words[:place]):
        return next((engine for image, engine in _IMAGES.items() if re.search(image, word)), None), 1
    return None, 1


def _after_subcommand(after: list[str], binary: str) -> list[str]:
    """What follows `serve`. Raises UsageError for a subcommand that serves nothing (`vllm bench`)."""
    name = PurePosixPath(binary.replace("\\", "/")).name
    first = after[0] if after and not is_flag(after[0]) else None
    if first == "serve":
        return after[1:]
    if (name in ("vllm", "sglang") and first is not None) or (name == "trtllm-serve" and first in _NO_SERVERS):
        raise UsageError(f"`{name} {first[:40]}` starts no server; kvplan reads `{name} serve`")
    return after


def _environment(before: list[str], table: Table) -> dict[str, Any]:
    """Flags that environment variables stand for."""
    values: dict[str, Any] = {}
    for word in before:
        match = _ASSIGNMENT.fullmatch(word := word.removeprefix("--env=").removeprefix("-e"))
        if match is None:
            continue
        flag = table.environment.get(match[1])
        if flag is not None:
            values[flag] = truth(match[2], match[1]) if flag in table.switches else match[2]
        elif match[1] in table.environment_memory or word in table.environment_memory:
            values[match[1] if match[1] in table.environment_memory else word] = match[2] or "1"
    return values


def _with_options(values: dict[str, Any], table: Table) -> dict[str, Any]:
    """The YAML file that `--config` names, under the flags; TensorRT-LLM's overrides them."""
    path = values.pop(OPTIONS, None)
    if path is None:
        return values
    if not isinstance(path, str):
        raise UsageError("--config names no file")
    written = values_of_mapping(read_options(path).items(), table)
    return values | written if table.engine == "trtllm" else written | values


def _take_model(loose: list[str], values: dict[str, Any], table: Table) -> None:
    """vLLM and TensorRT-LLM take the model as the first word that belongs to no flag."""
    if loose and table.engine in ("vllm", "trtllm", "sglang"):
        values["model-path" if table.engine == "sglang" else "model"] = loose[0]
