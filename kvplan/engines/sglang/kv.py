"""SGLang's KV pool: tokens of a rank, whole pages, and the windows' own pool beside it."""

from dataclasses import dataclass

from kvplan.deployment import Deployment
from kvplan.engines.sglang.cells import Cells
from kvplan.engines.sglang.defaults import chunked_prefill_size, memory_mib
from kvplan.engines.sglang.settings import SWA_RATIO, Settings
from kvplan.units import ceil_div

EVICTION_INTERVAL = 128
"""SGLANG_SWA_EVICTION_INTERVAL: decoded tokens between two sweeps of what left the window."""


@dataclass(frozen=True, slots=True)
class KvPool:
    tokens: int
    """Rows of one rank, pages in whole; what its log calls max_total_num_tokens."""
    page_size: int
    swa_tokens: int = 0


def size_kv(left_bytes: int, cells: Cells, settings: Settings, deployment: Deployment, context_len: int) -> KvPool:
    """`left_bytes` after the state pool, as tokens. A model without a growing cache gets its context length."""
    page, left = settings.page_size, max(0, left_bytes)
    most = deployment.max_total_tokens
    if not cells.full and not cells.swa:
        return KvPool(_paged(most or context_len, page), page)
    if not cells.swa:
        return KvPool(_paged(_capped(left // cells.full, most), page), page)
    if not cells.full:
        tokens = _paged(_capped(left // cells.swa, most), page)
        return KvPool(tokens, page, tokens)
    cap = request_cap(cells.window or 0, settings, deployment)
    if cap is not None:
        swa = ceil_div(cap, page) * page
        tokens = _paged(_capped((left - swa * cells.swa) // cells.full, most), page)
        return KvPool(max(0, tokens), page, swa)
    ratio = deployment.swa_full_tokens_ratio or SWA_RATIO
    tokens = _paged(_capped(int(left // (cells.full + ratio * cells.swa)), most), page)
    return KvPool(tokens, page, _paged(int(tokens * ratio), page))


def _paged(tokens: int, page: int) -> int:
    return tokens // page * page


def _capped(tokens: int, most: int | None) -> int:
    return tokens if most is None else min(tokens, most)


def request_cap(window: int, settings: Settings, deployment: Deployment, always: bool = False) -> int | None:
    """Window slots that --max-running-requests requests can hold at once (compute_swa_request_cap).

    SGLang sizes by it from 0.5.21 where the radix cache is off (`always`: in any case); None: by ratio.
    """
    chunk = chunked_prefill_size(deployment, memory_mib(deployment))
    decode = deployment.disaggregation_mode == "decode"
    if settings.requests is None or settings.rules.patch < 21 or (chunk <= 0 and not decode):
        return None
    if settings.radix and not always:
        return None
    page, drafts = settings.page_size, settings.draft_tokens or 1
    growth = page
    if settings.algorithm:
        growth = 2 * drafts if settings.overlap else ceil_div(drafts, page) * page
    each = window + EVICTION_INTERVAL * drafts + page + growth
    if decode:
        return each * settings.requests
    return each * settings.requests + (2 if settings.overlap else 1) * chunk + page
