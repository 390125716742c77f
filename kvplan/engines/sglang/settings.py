"""The flags that SGLang's pools depend on, with its own defaults filled in."""

from dataclasses import dataclass

from kvplan.deployment import Deployment, gpu_and_count
from kvplan.engines._drafts import draft_tokens
from kvplan.engines.sglang.rules import Rules, rules_for
from kvplan.errors import KvplanError, UsageError
from kvplan.gpu import find_gpu
from kvplan.layers.delta import Gdn, Kda
from kvplan.model import Model

SPECULATIVE_REQUESTS = 48
"""What an unset --max-running-requests becomes with speculation."""
MAMBA_RATIO = 0.9
SWA_RATIO = 0.8
OWN_DRAFT_CACHE = ("DFLASH", "DSPARK")
"""Algorithms whose draft model has a cache of its own shape; EAGLE's and MTP's layers are priced as the target's."""
NO_DRAFT_CACHE = ("NGRAM",)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything resolved, per attention-DP worker."""

    rules: Rules
    strategy: str
    overlap: bool
    radix: bool
    slots_per_request: int
    draft_tokens: int
    """D, verified per step; 0 without speculation."""
    algorithm: str | None
    attn_dp: int
    requests: int | None
    """--max-running-requests of one worker; None: by memory."""
    max_mamba_cache_size: int | None
    ratio: float
    page_size: int
    replayssm: bool
    ring_length: int
    """Steps that ReplaySSM's ring keeps."""

    @property
    def reserves_draft_states(self) -> bool:
        """Speculation keeps D more states per running request, unless it replays inputs instead."""
        return self.draft_tokens > 0 and not self.replayssm


def settings_for(model: Model, deployment: Deployment) -> Settings:
    """Resolve the flags as SGLang would. Raises UsageError naming the flag that cannot be meant."""
    rules = rules_for(deployment.engine_version)
    algorithm, drafts = _speculation(model, deployment)
    dp = (deployment.dp or 1) if deployment.enable_dp_attention else 1
    requests = deployment.max_running_requests or deployment.max_num_seqs
    if requests is None and drafts:
        requests = SPECULATIVE_REQUESTS
    strategy, overlap = _strategy(model, deployment, rules)
    size = deployment.max_mamba_cache_size
    if deployment.enable_unified_memory and not rules.unified_memory:
        raise UsageError(f"--enable-unified-memory came with SGLang 0.5.15; --engine-version is {rules.version}")
    replay = deployment.enable_linear_replayssm_spec and rules.replayssm != "ignored" and _replays(model)
    prefill = deployment.disaggregation_mode == "prefill" and not deployment.enable_unified_memory
    return Settings(
        rules=rules,
        strategy=strategy,
        overlap=overlap,
        radix=not deployment.disable_radix_cache,
        slots_per_request=_slots_per_request(deployment, rules, strategy, overlap, drafts),
        draft_tokens=0 if prefill and rules.prefill_role_skips_drafts else drafts,
        algorithm=algorithm,
        attn_dp=dp,
        requests=None if requests is None else max(1, requests // dp),
        max_mamba_cache_size=None if size is None else size // dp,
        ratio=deployment.mamba_full_memory_ratio or MAMBA_RATIO,
        page_size=deployment.page_size or default_page_size(model, deployment),
        replayssm=replay,
        ring_length=deployment.linear_replayssm_cache_len,
    )


def _replays(model: Model) -> bool:
    return any(isinstance(mixer, Kda | Gdn) for mixer in model.mixers())


def _speculation(model: Model, deployment: Deployment) -> tuple[str | None, int]:
    """The algorithm and the draft tokens of a verify step."""
    algorithm = deployment.speculative_algorithm.upper() if deployment.speculative_algorithm else None
    drafts = deployment.speculative_num_draft_tokens
    if drafts is None and draft_tokens(deployment):
        drafts = draft_tokens(deployment) + 1  # the flags of vLLM count what is guessed, SGLang what is verified
    if algorithm is None and drafts is None:
        return None, 0
    if drafts is None and algorithm == "NGRAM":
        drafts = 12
    if drafts is None and algorithm == "DSPARK" and model.architecture == "KimiK3ForConditionalGeneration":
        drafts = 8  # K3's draft predicts blocks of 7; the verified token comes on top
    if drafts is None:
        raise UsageError(
            f"--speculative-algorithm {str(algorithm)[:40]}: the draft tokens of a step depend on the draft model; "
            "give --speculative-num-draft-tokens"
        )
    return algorithm or "EAGLE", drafts


def _strategy(model: Model, deployment: Deployment, rules: Rules) -> tuple[str, bool]:
    """The radix-cache strategy for states, and whether scheduling overlaps."""
    overlap = not deployment.disable_overlap_schedule
    strategy = deployment.mamba_radix_cache_strategy
    if strategy == "extra_buffer_lazy" and not (rules.lazy_strategy and overlap):
        why = "came with SGLang 0.5.13" if overlap else "needs overlap scheduling"
        raise UsageError(f"--mamba-radix-cache-strategy extra_buffer_lazy {why}")
    if strategy != "auto":
        return strategy, overlap and strategy != "no_buffer"
    paged = (deployment.page_size or 1) > 1
    chosen = rules.auto_strategy(model.architecture) if overlap or paged else "no_buffer"
    return chosen, overlap and chosen != "no_buffer"


def _slots_per_request(deployment: Deployment, rules: Rules, strategy: str, overlap: bool, drafts: int) -> int:
    """S: slots a running request may hold: three with its checkpoints, more where those are double-buffered."""
    if deployment.disable_radix_cache:
        return 1
    skip = deployment.mamba_skip_decode_lock and rules.skip_decode_lock
    base = 2 if skip else 3
    if strategy == "no_buffer":
        return 3
    if rules.sizes_before_requests:
        return base + (1 if drafts else 2)
    return base + (1 if strategy == "extra_buffer_lazy" or not overlap else 2)


def gpu_sm(deployment: Deployment) -> int | None:
    """Compute capability times ten of the GPU named; None where none is, or its profile does not say."""
    if deployment.gpu is None or deployment.gpu.lower().startswith("auto"):
        return None
    try:
        return find_gpu(gpu_and_count(deployment.gpu)[0]).sm
    except KvplanError:
        return None


def default_page_size(model: Model, deployment: Deployment) -> int:
    """Tokens of a page where --page-size is not given: 1, or what the default attention backend asks for.

    TRT-LLM's MLA kernels, the default for MLA on SM100, and the sparse MLA kernels want 64; DeepSeek V4 wants 256.
    """
    mixers = set(model.mixers())
    if any(mixer.packed for mixer in mixers):
        return 256
    sm = gpu_sm(deployment)
    wide = sm is not None and 100 <= sm < 110
    if any(mixer.sparse or (mixer.latent and wide) for mixer in mixers):
        return 64
    return 1
