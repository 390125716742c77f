"""The suite `peers`: other owners' kernels through their public functions, on the inputs of ours, where installed.

`owner` of a sample names the package. A package that is there but does not import (its compiled part needs another
torch, say) is skipped and said, and one that gives a wrong result is not timed.
"""

from functools import partial
from importlib.util import find_spec

from kvplan_kernels import peers_kda, peers_mla
from kvplan_kernels.case import Case, Shape

PACKAGES = {"sglang": "sglang", "vllm": "vllm", "flashinfer": "flashinfer", "fla": "fla"}  # owner: what is imported


def cases(suite: str) -> list[Case]:
    """The suite `peers` alone: an owner's own tuning on first use can take a minute a shape."""
    if suite != "peers":
        return []
    decode: list[Shape] = [
        {"heads": h, "batch": n, "state": "fp32", "layout": "vk"} for h in (96, 12) for n in (1, 64, 256)
    ]
    prefill: list[Shape] = [
        {"heads": h, "sequences": 1, "tokens": 8192, "gate": "fast", "snapshot_every": 0} for h in (96, 12)
    ]
    attention: list[Shape] = [
        {"heads": h, "batch": n, "context": t, "cache": "bf16", "query_tokens": 1}
        for h, n, t in ((12, 1, 16384), (12, 128, 16384), (16, 128, 16384), (96, 128, 16384), (128, 128, 16384))
    ]
    found = []
    for owner in (name for name, package in PACKAGES.items() if find_spec(package) is not None):
        if make := peers_kda.DECODE.get(owner):
            found += [Case("kda_decode", s, partial(peers_kda.decode, make, s), "inplace", owner) for s in decode]
        if make := peers_kda.PREFILL.get(owner):
            found += [Case("kda_prefill", s, partial(peers_kda.prefill, make, s), "matmul", owner) for s in prefill]
        if make := peers_mla.DECODE.get(owner):
            found += [Case("mla_decode", s, partial(peers_mla.decode, make, s), "read", owner) for s in attention]
    return found
