"""One pass over a log: every dialect listens, and the engine that printed most is the one that booted."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kvplan.errors import SourceError, UsageError
from kvplan.logs import llamacpp, sglang, trtllm, vllm
from kvplan.logs.figures import Facts
from kvplan.logs.lines import clean_lines

_DIALECTS = (vllm, sglang, llamacpp, trtllm)
_GPU = re.compile(
    r"(?:GPU \d+|Device \d+|GPU name)[:=] ?['\"]?((?:NVIDIA|AMD|Tesla) [\w. -]{2,40}\w)"
    r"|device_name=((?:NVIDIA|AMD)_\w{2,40})"  # the file of tuned kernels that a mixture of experts looks for
)


def read_log(stream: BinaryIO) -> Facts:
    """The facts of the last boot in a log. Raises UsageError where no engine's memory figures are in it."""
    found = {dialect.ENGINE: Facts(dialect.ENGINE) for dialect in _DIALECTS}
    gpu, lines = None, 0
    for line in clean_lines(stream):
        lines += 1
        text = line.text
        if gpu is None and ("NVIDIA" in text or "AMD" in text) and (match := _GPU.search(text)):
            gpu = match[1] or match[2].replace("_", " ")
        for dialect in _DIALECTS:
            if any(word in text for word in dialect.HINTS):
                dialect.read(line, found[dialect.ENGINE])
    ranked = sorted(found.values(), key=lambda facts: len(facts.figures), reverse=True)
    facts, second = ranked[0], ranked[1]
    if not facts.figures:
        raise UsageError(_nothing(lines))
    if len(second.figures) > 2 or len(second.figures) * 2 > len(facts.figures):
        raise UsageError(
            f"the log holds figures of {facts.engine} ({len(facts.figures)}) and of {second.engine} "
            f"({len(second.figures)}); give the lines of one of them"
        )
    facts.gpu = facts.gpu or gpu
    if facts.boots > 1:
        facts.notes.append(f"the log holds {facts.boots} boots; the figures of the last one are read")
    return facts


def _nothing(lines: int) -> str:
    if lines == 0:
        return "the log is empty"
    return (
        f"no memory figure of vLLM, SGLang, llama.cpp or TensorRT-LLM in {lines:,} lines; "
        "the boot part of the log is needed (for vLLM up to `GPU KV cache size`)"
    )


@contextmanager
def open_log(path: str) -> Iterator[BinaryIO]:
    """The log's bytes; `-` is stdin. Raises SourceError where it cannot be read."""
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(path).open("rb") as stream:
            yield stream
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
