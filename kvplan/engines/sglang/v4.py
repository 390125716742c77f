"""DeepSeek V4's pools in SGLang 0.5.23 on NVIDIA GPUs (model_executor/pool_configurator.DSV4PoolConfigurator).

A pool of windows, compressed caches 1:4 and 1:128 that follow the tokens, and compressor rings per request. Rows are
584 B in pages padded to 576 B (SGLANG_DSV4_KV_LAYOUT=v4, the default); one pool holds all layers of a stage.
"""

from dataclasses import dataclass

from kvplan.deployment import Deployment
from kvplan.document import Binds
from kvplan.engines.base import Allocation, Fit, Share
from kvplan.engines.sglang.kv import request_cap
from kvplan.engines.sglang.settings import Settings
from kvplan.errors import UsageError
from kvplan.layers.base import Layer
from kvplan.layers.compressed import Csa, Hca, WindowOnly
from kvplan.model import Model
from kvplan.units import ceil_div

ROW, ALIGN = 584, 576
DEFAULT_SWA_RATIO = 0.1


def is_v4(model: Model) -> bool:
    return any(isinstance(mixer, WindowOnly) for mixer in model.mixers())


@dataclass(frozen=True, slots=True)
class _Stage:
    """Layers of one pipeline stage and the rings of its compressors."""

    layers: int
    csa: int
    hca: int
    head_dim: int
    index_dim: int
    window: int
    page: int
    drafts: int

    @property
    def rings(self) -> tuple[int, int]:
        """Rows kept per request, 1:4 and 1:128; speculation doubles them."""
        return (16, 256) if self.drafts else (8, 128)

    def row(self, tokens_per_page: int) -> float:
        """Bytes of one row, its share of the page's padding included."""
        return ceil_div(tokens_per_page * ROW, ALIGN) * ALIGN / tokens_per_page

    @property
    def inflation(self) -> float:
        """The draft of speculation counts as one more layer."""
        return (self.layers + 1) / self.layers if self.drafts else 1.0

    def swa_token(self) -> float:
        states = 4 * 4 * (self.head_dim + self.index_dim)
        return (self.row(self.page) * self.layers + self.rings[0] / self.page * states * self.csa) * self.inflation

    def full_token(self, swa_ratio: float) -> float:
        index = self.index_dim + self.index_dim // 128 * 4
        csa = (self.row(self.page // 4) + index) / 4 * self.csa
        hca = self.row(self.page // 128) / 128 * self.hca
        return swa_ratio * self.swa_token() + (csa + hca) * self.inflation

    def ring_bytes(self, requests: int, extra_slots: int = 1) -> int:
        """Compressor rings of the 1:128 layers, fp32, one per request slot and one to spare."""
        rows = ceil_div((requests + extra_slots) * self.rings[1] + self.rings[1] + 1, 128) * 128
        return rows * 2 * self.head_dim * 4 * self.hca


def size_v4(
    share: Share, pool_bytes: int, deployment: Deployment, settings: Settings, contexts: list[int]
) -> Allocation:
    """Tokens of the compressed caches and of the windows' pool. Raises UsageError for releases whose rules differ."""
    if settings.rules.patch < 22:
        raise UsageError(
            f"--engine-version {settings.rules.version}: DeepSeek V4's pools are modelled for SGLang 0.5.22 and 0.5.23"
        )
    if settings.page_size % 128:
        raise UsageError(f"--page-size {settings.page_size}: DeepSeek V4 needs a multiple of 128")
    stage = _stage(max(share.stages, key=len), settings)
    limit = deployment.max_model_len or share.model.max_context_tokens or contexts[-1]
    cap = None
    if deployment.swa_full_tokens_ratio is None:
        cap = _window_cap(stage, settings, deployment)
    ratio = 0.0 if cap is not None else deployment.swa_full_tokens_ratio or DEFAULT_SWA_RATIO
    each = stage.full_token(ratio)
    requests = settings.requests or _estimate(int(max(0, pool_bytes) / each), limit)
    fixed = stage.ring_bytes(requests) + (cap or 0) * stage.swa_token()
    tokens = int(max(0.0, pool_bytes - fixed) / each)
    tokens = min(tokens, deployment.max_total_tokens or tokens) // stage.page * stage.page
    swa = cap if cap is not None else int(tokens * ratio) // stage.page * stage.page
    running = min(settings.requests, tokens // 2) if settings.requests else _estimate(tokens, limit)
    fits = tuple(_fit(tokens, swa, running, stage, context) for context in contexts)
    return Allocation(
        fits,
        {
            "rules_version": settings.rules.version,
            "block_tokens": stage.page,
            "num_blocks": tokens // stage.page,
            "kv_cache_tokens": tokens,
            "swa_cache_tokens": swa,
            "max_concurrency": tokens / limit,
            "state_slots": None,
            "max_running_requests": running,
            "bytes_per_full_token": each,
            "compressor_bytes": stage.ring_bytes(requests),
        },
    )


def _stage(mixers: list[Layer], settings: Settings) -> _Stage:
    windows = [layer for layer in mixers if isinstance(layer, WindowOnly)]
    csa = [layer for layer in windows if isinstance(layer, Csa)]
    hca = sum(1 for layer in windows if isinstance(layer, Hca) and not isinstance(layer, Csa))
    return _Stage(
        layers=len(windows),
        csa=len(csa),
        hca=hca,
        head_dim=windows[0].head_dim,
        index_dim=csa[0].index_head_dim if csa else 0,
        window=windows[0].window,
        page=settings.page_size,
        drafts=settings.draft_tokens,
    )


def _window_cap(stage: _Stage, settings: Settings, deployment: Deployment) -> int | None:
    """Window slots for the running requests and four reusable prefix tails of each; None: by ratio."""
    cap = request_cap(stage.window, settings, deployment, always=True)
    if cap is None or settings.requests is None:
        return None
    tails = 4 * settings.requests if settings.radix else 0
    return ceil_div(cap + tails * (stage.window + stage.page), stage.page) * stage.page


def _estimate(tokens: int, limit: int) -> int:
    return max(0, min(max(min(int(tokens / limit * 512), 4096), 2048), tokens // 2))


def _fit(tokens: int, swa: int, running: int, stage: _Stage, context: int) -> Fit:
    held = ceil_div(context, stage.page) * stage.page
    by_tokens = tokens // held
    by_window = swa // (min(held, ceil_div(stage.window, stage.page) * stage.page + stage.page))
    most = min(by_tokens, by_window, running)
    binds: Binds = "kv" if most == by_tokens else "window" if most == by_window else "max_running_requests"
    return Fit(context, most, most, binds)
