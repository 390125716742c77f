"""The suites: which cases run, in which order, and for how long."""

from kvplan_kernels import copy, gemm, held_out, kda_decode, kda_prefill, mla_decode, mla_prefill, peers, short_conv
from kvplan_kernels.case import Case

SECONDS = {"quick": 85.0, "full": 460.0, "peers": 400.0, "held-out": 120.0}  # no case starts later than this
MODULES = (copy, gemm, kda_decode, short_conv, kda_prefill, mla_decode, mla_prefill, peers)
ROOFS = 5  # the first cases of `copy`


def cases(suite: str, only: str | None = None) -> list[Case]:
    """Roofs first. `only` keeps kernels whose name contains it; `peers` keeps the shapes that a peer is timed at."""
    found = [case for module in MODULES for case in module.cases(suite)]
    roofs = found[:ROOFS]
    if suite == "held-out":
        found = held_out.cases()
    if suite == "peers":
        theirs = peers.cases(suite)
        shared = [(case.kernel, case.shape) for case in theirs]
        found = [*(case for case in found if (case.kernel, case.shape) in shared and case not in theirs), *theirs]
    kept = [case for case in found if only is None or only in case.kernel]
    return [*roofs, *(case for case in kept if case not in roofs)]
