"""Processor seconds that the agents' simulations take, and how much memory the readers hold, on public traces.

    python scripts/bench_agents.py FOLDER

FOLDER holds agentic_claude_code_requests.csv.gz (callanjfox/kv-cache-tester, reduced) and
mooncake_conversation_trace.jsonl. Prints one line a measurement, and hit rates of the published table beside it.
"""

import argparse
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from kvplan.agents.cache_content import replay_content
from kvplan.agents.cache_store import Store
from kvplan.agents.cache_vllm import VllmCache
from kvplan.agents.cache_whole import WholeCache
from kvplan.agents.columns import columns_of
from kvplan.agents.residency import conversations, simulate
from kvplan.agents.traces import open_trace
from kvplan.engines.base import Reuse

BLOCK, BLOCKS, STATES = 1536, 2135, 3
"""Kimi K3 on 8 x B300 with fp8 caches (InferenceX pull request 2371)."""
CLIENTS = (16, 24, 32, 48, 64, 96)
PUBLISHED = {
    "sparse": (0.953, 0.888, 0.811, 0.675, 0.522, 0.281),
    "dense x4": (0.453, 0.303, 0.178, 0.063, 0.021, 0.003),
}


def timed(what: str, work: Callable[[], Any]) -> Any:
    start = time.process_time()
    found = work()
    print(f"{what:<58} {time.process_time() - start:7.2f} s", flush=True)
    return found


def reader_peak(path: Path, times: int) -> int:
    """Most bytes that Python holds while a trace is read whose rows stand there so many times."""
    rows = path.read_text().splitlines(keepends=True)
    with tempfile.NamedTemporaryFile("w", suffix=path.suffix) as file:
        file.writelines(rows * times)
        file.flush()
        trace = open_trace(file.name)
        tracemalloc.start()
        for _ in trace:
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def whole(times: int) -> WholeCache:
    return WholeCache(BLOCKS, lambda tokens: -(-tokens // BLOCK) * times + 2 * STATES)


def blocks() -> VllmCache:
    return VllmCache(Store(BLOCKS - 1, "lru"), block_tokens=BLOCK, state_groups=STATES, interval=0, chunk_tokens=16384)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    chat, agents = folder / "mooncake_conversation_trace.jsonl", folder / "agentic_claude_code_requests.csv.gz"
    reuse = Reuse("blocks", BLOCKS - 1, BLOCK, state_units=STATES)
    timed("12,031 requests of Mooncake: read and replayed", lambda: replay_content(open_trace(chat), 512, reuse, 2134))
    columns = timed("49,334 requests of coding agents: read", lambda: columns_of(open_trace(agents)))
    talks = timed("the same as conversations", lambda: conversations(columns, 300.0, 1 << 20))
    for name, make in (("whole sessions", lambda: whole(1)), ("vLLM's blocks and states", blocks)):
        start = time.process_time()
        found = simulate(talks, 24, make(), hours=36)
        took = time.process_time() - start
        print(f"{name}, 24 open sessions: {found.requests:,} requests in {took:.2f} s = "
              f"{took / found.requests * 50_000:.2f} s for 50,000")  # fmt: skip
    peaks = ", ".join(f"{reader_peak(chat, times):,} ({times} x)" for times in (1, 4, 16))
    print(f"bytes that the reader of Mooncake holds at most, by length of the trace: {peaks}")
    print("\nhit rates of open sessions       " + "".join(f"{count:>7}" for count in CLIENTS))
    for name, times in (("sparse", 1), ("dense x4", 4)):
        means = [fmean(simulate(talks, count, whole(times), seed=seed).hit for seed in range(5)) for count in CLIENTS]
        print(f"{name}, published               "[:33].ljust(33) + "".join(f"{hit:7.3f}" for hit in PUBLISHED[name]))
        print(f"{name}, whole sessions".ljust(33) + "".join(f"{hit:7.3f}" for hit in means))
    means = [fmean(simulate(talks, count, blocks(), seed=seed).hit for seed in range(2)) for count in CLIENTS]
    print("sparse, vLLM's blocks and states".ljust(33) + "".join(f"{hit:7.3f}" for hit in means))


if __name__ == "__main__":
    main()
