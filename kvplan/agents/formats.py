"""How each kind of trace spells a request. A reader takes one row and gives the requests in it, or says why not.

Sources: the READMEs of Mooncake's FAST25-release, qwen-bailian-usagetraces-anon and BurstGPT; AIPerf's page on trace
replay; AzurePublicDataset's AzureLLMInferenceDataset2023.md; kv-cache-tester's traces.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kvplan.agents.request import MAIN, Request, Trigger

MOST_TOKENS = 1 << 40
MOST_SECONDS = 1e10
"""A clock may count from 1970."""
MOST_OPEN = 1 << 16
"""Conversations that a reader keeps in mind; an older one that goes on counts as a new one."""
_TRIGGERS: dict[str, Trigger] = {"user": "user", "text": "user", "tool": "tool", "tool_result": "tool"}


class BadRow(ValueError):
    """A row that is not a request: the field and what is wrong with it, without the value, so that alike rows count
    together."""


def whole(row: Mapping[str, Any], key: str, *, least: int = 0, default: int | None = None) -> int:
    """A count of tokens. Raises BadRow naming the field."""
    value = row.get(key)
    if value is None or value == "":
        if default is None:
            raise BadRow(f"{key} is missing")
        return default
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 15:
        value = int(value)
    if type(value) is not int:
        raise BadRow(f"{key} is not a whole number")
    if not least <= value <= MOST_TOKENS:
        raise BadRow(f"{key} is out of range")
    return value


def maybe_whole(row: Mapping[str, Any], key: str) -> int | None:
    """As `whole`, None where the trace does not say."""
    return None if row.get(key) in (None, "") else whole(row, key)


def seconds(row: Mapping[str, Any], key: str, scale: float = 1.0) -> float | None:
    """A duration or a clock, at least 0; None where the trace does not say."""
    value = row.get(key)
    if value is None or value == "":
        return None
    try:
        number = float(value) * scale if isinstance(value, (str, int, float)) and type(value) is not bool else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 <= number <= MOST_SECONDS:
        raise BadRow(f"{key} is not a number of seconds")
    return number


def name(row: Mapping[str, Any], key: str, default: str) -> str:
    value = row.get(key)
    if value is None or value == "":
        return default
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise BadRow(f"{key} is not a name")
    return str(value)[:200]


def block_ids(row: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value = row.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise BadRow(f"{key} is not a list of whole numbers")
    return tuple(value)


def trigger(words: list[str]) -> Trigger | None:
    """`tool_result` alone is a tool's answer, `text` alone a person; anything else is both."""
    return None if not words else _TRIGGERS.get(words[0], "mixed") if len(words) == 1 else "mixed"


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of trace: the columns or keys that give it away, and who reads a row."""

    name: str
    title: str
    needs: frozenset[str]
    make: Callable[[], Callable[[Mapping[str, Any], int], Iterator[Request]]]
    """Makes a fresh reader, for those that remember earlier rows. It takes a row and its number."""
    block_tokens: int | None = None
    untested: bool = False
    """True where no real file of the kind was at hand."""


def _plain() -> Callable[[Mapping[str, Any], int], Iterator[Request]]:
    def read(row: Mapping[str, Any], number: int) -> Iterator[Request]:
        words, prompt, shared = (
            name(row, "trigger", ""),
            whole(row, "input_tokens", least=1),
            maybe_whole(row, "lcp_prev"),
        )
        if shared is not None and shared > prompt:
            raise BadRow("lcp_prev is above input_tokens")
        yield Request(
            session=name(row, "session", str(number)),
            agent=name(row, "agent", MAIN),
            at_s=seconds(row, "t_s"),
            input_tokens=prompt,
            output_tokens=whole(row, "output_tokens", default=0),
            service_s=seconds(row, "api_s"),
            pause_s=seconds(row, "think_s"),
            shared_tokens=shared,
            preamble_tokens=maybe_whole(row, "preamble_tokens"),
            trigger=trigger(words.split("/")) if words else None,
        )

    return read


def _azure() -> Callable[[Mapping[str, Any], int], Iterator[Request]]:
    start: list[datetime] = []

    def read(row: Mapping[str, Any], number: int) -> Iterator[Request]:
        try:
            at = datetime.fromisoformat(str(row.get("TIMESTAMP")))
            start[:] = start or [at]
            since = (at - start[0]).total_seconds()
        except (ValueError, TypeError, OverflowError):
            raise BadRow("TIMESTAMP is not a date and time") from None
        tokens, answer = whole(row, "ContextTokens", least=1), whole(row, "GeneratedTokens")
        yield Request(session=str(number), at_s=since, input_tokens=tokens, output_tokens=answer)

    return read


def _mooncake() -> Callable[[Mapping[str, Any], int], Iterator[Request]]:
    """Rows with a session_id are AIPerf's: each turn brings its own tokens, and history adds up (its Bailian page)."""
    history: OrderedDict[str, int] = OrderedDict()

    def read(row: Mapping[str, Any], number: int) -> Iterator[Request]:
        if "input_length" not in row and ("text_input" in row or "messages" in row or "payload" in row):
            raise BadRow("input_length is missing: text is not counted without the model's tokenizer")
        tokens, answer = whole(row, "input_length", least=1), whole(row, "output_length", default=0)
        session = name(row, "session_id", str(number))
        at, pause, blocks = seconds(row, "timestamp", 1e-3), seconds(row, "delay", 1e-3), block_ids(row, "hash_ids")
        if "session_id" not in row:
            yield Request(session, tokens, answer, at_s=at, pause_s=pause, blocks=blocks)
            return
        before = history.pop(session, None)
        prompt = (before or 0) + tokens
        _remember(history, session, prompt + answer)
        yield Request(session, prompt, answer, at_s=at, pause_s=pause, shared_tokens=before or 0, blocks=blocks)

    return read


def _bailian() -> Callable[[Mapping[str, Any], int], Iterator[Request]]:
    """Turns name the turn before them; a conversation is called by its first."""
    roots: OrderedDict[str, str] = OrderedDict()

    def read(row: Mapping[str, Any], number: int) -> Iterator[Request]:
        own, parent = name(row, "chat_id", ""), name(row, "parent_chat_id", "-1")
        if not own:
            raise BadRow("chat_id is missing")
        root = own if parent == "-1" else roots.get(parent, parent)
        request = Request(
            session=root,
            at_s=seconds(row, "timestamp"),
            input_tokens=whole(row, "input_length", least=1),
            output_tokens=whole(row, "output_length", default=0),
            blocks=block_ids(row, "hash_ids"),
        )
        _remember(roots, own, root)
        yield request

    return read


def _burstgpt() -> Callable[[Mapping[str, Any], int], Iterator[Request]]:
    """A failed request has no response tokens; it held memory all the same and stays."""

    def read(row: Mapping[str, Any], number: int) -> Iterator[Request]:
        yield Request(
            session=name(row, "Session ID", str(number)),
            at_s=seconds(row, "Timestamp"),
            service_s=seconds(row, "Elapsed time"),
            input_tokens=whole(row, "Request tokens", least=1),
            output_tokens=whole(row, "Response tokens"),
        )

    return read


def _sessions() -> Callable[[Mapping[str, Any], int], Iterator[Request]]:
    """One session a row, its requests in order; `blocks` are runs [first, length], compared as such."""

    def read(row: Mapping[str, Any], number: int) -> Iterator[Request]:
        size, requests = whole(row, "block_size", least=1), row.get("requests")
        if not isinstance(requests, list):
            raise BadRow("requests is not a list")
        preamble = whole(row, "tool_tokens", default=0) + whole(row, "system_tokens", default=0)
        session = name(row, "id", str(number))
        before: list[tuple[int, int]] = []
        made = []
        for one in requests:
            if not isinstance(one, dict):
                raise BadRow("requests holds what is no object")
            runs, words, prompt = _runs(one), one.get("trigger", []), whole(one, "input", least=1)
            if not isinstance(words, list):
                raise BadRow("requests.trigger is not a list")
            made.append(
                Request(
                    session=session,
                    at_s=seconds(one, "t"),
                    input_tokens=prompt,
                    output_tokens=whole(one, "output", default=0),
                    service_s=seconds(one, "api"),
                    pause_s=seconds(one, "think"),
                    shared_tokens=min(prompt, _common(before, runs) * size),
                    preamble_tokens=preamble or None,
                    trigger=trigger([str(word) for word in words]),
                )
            )
            before = runs
        yield from made

    return read


def _runs(row: Mapping[str, Any]) -> list[tuple[int, int]]:
    runs = row.get("blocks", [])
    if not isinstance(runs, list):
        raise BadRow("requests.blocks is not a list")
    for run in runs:
        if not isinstance(run, list) or len(run) != 2 or any(type(part) is not int for part in run) or run[1] < 1:
            raise BadRow("requests.blocks holds what is no [first, length]")
    return [(run[0], run[1]) for run in runs]


def _common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    """Blocks that two run-length coded prompts have in common from the start. Runs may be cut differently."""
    found, left, right = 0, list(reversed(one)), list(reversed(other))
    while left and right and left[-1][0] == right[-1][0]:
        (first, length), (_, width) = left.pop(), right.pop()
        step = min(length, width)
        found += step
        if length > step:
            left.append((first + step, length - step))
        if width > step:
            right.append((first + step, width - step))
    return found


def _remember(memory: "OrderedDict[str, Any]", key: str, value: object) -> None:
    memory[key] = value
    if len(memory) > MOST_OPEN:
        memory.popitem(last=False)


CSV_FORMATS = (
    Format("azure", "Azure LLM inference trace", frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}), _azure),
    Format(
        "burstgpt", "BurstGPT", frozenset({"Timestamp", "Request tokens", "Response tokens"}), _burstgpt, untested=True
    ),
    Format("agentic", "agent sessions, one request a row", frozenset({"session", "input_tokens", "lcp_prev"}), _plain),
    Format("plain", "CSV with a column input_tokens", frozenset({"input_tokens"}), _plain),
)
JSONL_FORMATS = (
    Format("bailian", "Qwen-Bailian", frozenset({"chat_id", "input_length"}), _bailian, 16, untested=True),
    Format("sessions", "agent sessions, one session a row", frozenset({"block_size", "requests"}), _sessions),
    Format("aiperf", "AIPerf's mooncake_trace", frozenset({"session_id"}), _mooncake, 512),
    Format("mooncake", "Mooncake", frozenset({"timestamp", "input_length"}), _mooncake, 512),
    Format("aiperf", "AIPerf's mooncake_trace", frozenset({"input_length"}), _mooncake, 512),
    Format("aiperf", "AIPerf's mooncake_trace", frozenset({"text_input"}), _mooncake, 512),
)
