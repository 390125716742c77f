"""HiCache: the host pools that mirror the device's (mem_cache/pool_host/, hybrid_pool_assembler.py)."""

from typing import Any

from kvplan.deployment import Deployment
from kvplan.engines.sglang.cells import Cells
from kvplan.engines.sglang.kv import KvPool
from kvplan.engines.sglang.rules import Rules
from kvplan.engines.sglang.states import StateBytes, StatePool

DEFAULT_RATIO = 2.0


def host_pools(
    kv: KvPool, cells: Cells, slot: StateBytes | None, states: StatePool | None, deployment: Deployment, rules: Rules
) -> dict[str, Any] | None:
    """Rows and bytes in host memory of one rank; None without --enable-hierarchical-cache.

    With a size in GB both pools share it by their device bytes (up to 0.5.16 each got all of it); with a ratio each is
    that many times its device pool. The default of 2.0 is lowered by the engine where the host has less memory.
    Windows' pools and sparse indexes beside them are not modelled.
    """
    if not deployment.enable_hierarchical_cache or cells.swa:
        return None
    slots = max(0, states.slots) if states else 0
    state_row = slot.slot if slot else 0
    if deployment.hicache_size:
        device_kv, device_states = (kv.tokens + kv.page_size) * cells.full, (slots + 1) * state_row
        share = 1.0
        if rules.patch >= 17 and slots:
            share = device_kv / (device_kv + device_states)
        tokens = int(deployment.hicache_size * share * 1e9 // cells.full) if cells.full else 0
        rest = 1.0 - share if rules.patch >= 17 else 1.0
        rows = int(deployment.hicache_size * rest * 1e9 // state_row) if slots else 0
    else:
        ratio = deployment.hicache_ratio or DEFAULT_RATIO
        tokens, rows = int(kv.tokens * ratio), int(slots * ratio)
    tokens = (tokens // kv.page_size + 1) * kv.page_size
    rows = rows + 1 if slots else 0
    return {
        "kv_tokens": tokens,
        "kv_bytes": tokens * cells.full,
        "state_slots": rows or None,
        "state_bytes": rows * state_row or None,
        "total_bytes": tokens * cells.full + rows * state_row,
    }
