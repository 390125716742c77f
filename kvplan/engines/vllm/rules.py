"""Which vLLM release plans its cache by which rule. Read from the sources of 19 releases, 0.11.0 to 0.33.0."""

import re
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from kvplan.errors import UsageError

NEWEST = (0, 33, 0)
OLDEST = (0, 11, 0)
_JULY_2026_BUILDS = (0, 28, 0)
"""Development builds carry no release. Those of July 2026 that boot Kimi K3 follow the rules of 0.27 and 0.28."""

Release = tuple[int, int, int]
Mode = Literal["none", "align", "all"]

CHECKPOINT_KERNELS: dict[str, Release] = {
    "flashkda": (0, 29, 0),
    "mamba2": (0, 32, 0),
    "flashinfer_gdn": (0, 33, 0),
}
"""Prefill kernels that save a state inside a prefill, and the first release that reserves a block for it."""
CHECKPOINT_GRAIN = {"flashkda": 16, "flashinfer_gdn": 64}
"""Token grid of those saved states; blocks become multiples of it from 0.33.0."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule with the release it starts in, for people and for `kvplan engines show`."""

    name: str
    since: str
    effect: str
    source: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one release."""

    release: Release
    asked: str | None = None

    def since(self, *release: int) -> bool:
        return self.release >= release

    @property
    def note(self) -> str | None:
        """Why these rules answer for the version that was asked for, where that is not evident."""
        if self.asked is None or self.asked.lstrip("v").startswith(self.version):
            return None
        if self.asked.startswith("0.1."):
            return (
                f"{self.asked}: a development build without a release; rules of {self.version}, which July 2026's match"
            )
        if self.release == NEWEST and not self.asked.lstrip("v").startswith("0.33"):
            return f"{self.asked} is newer than what is modelled; rules of {self.version}"
        return None

    @property
    def version(self) -> str:
        return ".".join(str(part) for part in self.release)

    @property
    def gpu_memory_utilization(self) -> float:
        return 0.92 if self.since(0, 20, 2) else 0.9

    @property
    def token_line(self) -> Literal["blocks", "concurrency"]:
        """What "GPU KV cache size: N tokens" is: blocks of one group, or max_concurrency × max_model_len."""
        return "concurrency" if self.since(0, 20, 2) else "blocks"

    @property
    def width_ratio(self) -> Fraction:
        """Groups take the largest layer count where it is below this many times the smallest, else the smallest."""
        if self.since(0, 18, 1):
            return Fraction(3, 2)
        return Fraction(5, 4) if self.since(0, 12, 0) else Fraction(1)

    @property
    def mixed_pages(self) -> Literal["refused", "scaled", "padded"]:
        """Layers whose pages differ: not planned, block sizes scaled up, or pages padded as well."""
        if self.since(0, 25, 1):
            return "padded"
        return "scaled" if self.since(0, 12, 0) else "refused"

    @property
    def pads_states(self) -> bool:
        """States are padded to a larger page that a draft brings; before, such a mix is refused."""
        return self.since(0, 26, 0)

    def own_values(self, kind: str) -> bool:
        """Values are stored at their own width; before, as wide as keys."""
        return self.since(*{"full": (0, 13, 0), "sliding": (0, 20, 2), "chunked": (0, 28, 0)}.get(kind, OLDEST))

    @property
    def promotes_windows(self) -> bool:
        """Windows that cannot share a page size with a latent cache are kept whole instead of refused."""
        return self.since(0, 27, 1)

    @property
    def packed_layouts(self) -> bool:
        """Block-outermost layouts hold mixed page sizes side by side."""
        return self.since(0, 29, 0)

    @property
    def packs_densely(self) -> bool:
        """Mixed pages of a group follow one another and groups overlap (DeepSeek V4); concurrency counts blocks."""
        return self.since(0, 27, 1)

    @property
    def latent_alignment(self) -> int:
        """Least block alignment of models that mix a latent cache with states."""
        return 128 if self.since(0, 27, 1) else 1

    @property
    def alignment_from_backend(self) -> bool:
        """Blocks align to the attention backend's kernel block and to --block-size; before, to 16, or 64 for MLA."""
        return self.since(0, 20, 2)

    @property
    def checkpoint_alignment(self) -> bool:
        return self.since(0, 33, 0)

    @property
    def in_flight_batches(self) -> bool:
        """Windows reserve for every batch in flight instead of one."""
        return self.since(0, 26, 0)

    @property
    def null_block_in_check(self) -> bool:
        """The start-up check of max_model_len leaves the null block out."""
        return self.since(0, 29, 0)

    @property
    def prefix_caching_on_hybrids(self) -> bool:
        """Prefix caching is on by default for models with states."""
        return self.since(0, 26, 0)

    @property
    def default_all_mode(self) -> bool:
        """Prefix caching picks mode `all` where the kernels support it."""
        return self.since(0, 15, 1) and not self.since(0, 28, 0)

    @property
    def has_all_mode(self) -> bool:
        return self.since(0, 13, 0) and not self.since(0, 32, 0)

    @property
    def retention_interval(self) -> int | None:
        """Default of --prefix-cache-retention-interval: None keeps every state, 0 only the resume points."""
        return 0 if self.since(0, 30, 0) else None

    @property
    def record_in_page(self) -> bool:
        """RecoverSSM's records lie in the state page; from 0.33.0 outside the cache."""
        return not self.since(0, 33, 0)

    @property
    def kda_state_free(self) -> bool:
        """--mamba-ssm-cache-dtype reaches KDA layers; before, their state is fp32 whatever it says."""
        return self.since(0, 30, 0)

    @property
    def graphs_before_pool(self) -> bool:
        return self.since(0, 18, 1)

    @property
    def large_gpu_tier(self) -> bool:
        """GPUs of 160 GiB and more get 16,384 batched tokens by default."""
        return self.since(0, 28, 0)

    def state_blocks(self, mode: Mode, drafts: int, checkpoints: int) -> int | None:
        """Blocks that one state group takes per request; None = one per block of tokens."""
        if not self.since(0, 13, 0):
            return 1
        if mode == "all":
            return None
        if not self.since(0, 15, 1):
            return 1
        return 1 + drafts if mode == "none" else 2 + drafts + checkpoints

    def describe(self) -> dict[str, Any]:
        """The rules in force by name, so that two plans can be told apart by the rule that changed."""
        return {
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "token_line": self.token_line,
            "width_ratio": float(self.width_ratio),
            "mixed_pages": "packed" if self.packed_layouts else self.mixed_pages,
            "latent_alignment": self.latent_alignment if self.alignment_from_backend else 64,
            "in_flight_batches": self.in_flight_batches,
            "null_block_in_check": self.null_block_in_check,
            "prefix_caching_on_hybrids": self.prefix_caching_on_hybrids,
            "retention_interval": self.retention_interval,
            "checkpoint_kernels": sorted(name for name, first in CHECKPOINT_KERNELS.items() if self.since(*first)),
        }


_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?((?!\d).*)", re.ASCII | re.DOTALL)


def rules_for(version: str | None) -> Rules:
    """The rules of `version` (`0.28`, `0.24.0+local`, `0.19.2rc1.dev134`, `0.1.dev19262+g…`); the newest for None.

    `0.28` without a patch number is the patch whose sources were read. Raises UsageError below 0.11 and for what is no
    version. Releases after the newest modelled one get the newest rules.
    """
    if version is None:
        return Rules(NEWEST)
    match = _VERSION.fullmatch(version.strip()[:60])
    if match is None:
        raise UsageError(f"--engine-version {version[:40]!r} is not a vLLM version; write for example 0.28.0")
    major, minor, patch = int(match[1]), int(match[2]), int(match[3] or 0)
    if (major, minor) == (0, 1) and "dev" in match[4]:
        return Rules(_JULY_2026_BUILDS, version)
    release = (major, minor, patch)
    if release < OLDEST:
        raise UsageError(f"--engine-version {version[:40]}: vLLM's rules are modelled from 0.11.0 on")
    if match[3] is None:
        release = (major, minor, _PATCH.get(minor, 0))
    return Rules(min(release, NEWEST), version)


_PATCH = {11: 2, 14: 1, 15: 1, 17: 1, 18: 1, 19: 1, 20: 2, 25: 1, 27: 1}


def catalogue() -> list[dict[str, str]]:
    """Every rule that changed between releases."""
    return [asdict(rule) for rule in _RULES]


_RULES = (
    Rule(
        "group width", "0.11.0 / 0.12.0 / 0.18.1",
        "the smallest layer count; the largest if below 1.25, then 1.5 times the smallest",
        "v1/core/kv_cache_utils.py _get_kv_cache_groups_uniform_page_size",
    ),
    Rule(
        "state blocks per request", "0.11.0 / 0.15.1 / 0.29.0",
        "1; by mode none 1+S, align 2+S, all ⌈L/block⌉; align + 1 where a prefill kernel saves checkpoints",
        "v1/kv_cache_interface.py MambaSpec.max_memory_usage_bytes",
    ),
    Rule(
        "block alignment", "0.11.0 / 0.20.2 / 0.27.1 / 0.33.0",
        "16, or 64 for MLA; the backend's kernel block and --block-size; MLA hybrids at least 128; checkpoint grid",
        "model_executor/models/config.py, then platforms/interface.py _align_hybrid_block_size",
    ),
    Rule(
        "GPU KV cache size", "0.11.0 / 0.20.2",
        "blocks // groups × block × dcp; int(max_concurrency × max_model_len)",
        "v1/core/kv_cache_utils.py get_kv_cache_capacity",
    ),
    Rule(
        "window reserve", "0.11.0 / 0.26.0",
        "window − 1 + max_num_batched_tokens; window − 1 + batches in flight × max_num_batched_tokens",
        "v1/kv_cache_interface.py SlidingWindowSpec.max_admission_blocks_per_request",
    ),
    Rule(
        "mixed page sizes", "0.12.0 / 0.25.1 / 0.29.0",
        "block sizes scaled up; pages padded where they do not divide; packed in block-outermost layouts",
        "v1/core/kv_cache_planning.py unify_kv_cache_spec_page_size, _get_packed_kv_cache_groups",
    ),
    Rule(
        "prefix caching of hybrids", "0.11.0 / 0.26.0", "off unless asked for; on by default",
        "config/model.py is_prefix_caching_supported",
    ),
    Rule(
        "mamba cache mode with prefix caching", "0.15.1 / 0.28.0 / 0.32.0",
        "`all` where kernels support it, else `align`; `align`; `all` is gone",
        "model_executor/models/config.py MambaModelConfig",
    ),
    Rule(
        "retention of states", "0.11.0 / 0.30.0",
        "every block boundary; resume points only (--prefix-cache-retention-interval 0)",
        "config/cache.py prefix_cache_retention_interval",
    ),
    Rule(
        "null block", "0.29.0", "left out of the start-up check of max_model_len",
        "v1/core/kv_cache_planning.py check_enough_kv_cache_memory",
    ),
    Rule(
        "RecoverSSM records", "0.29.0 / 0.33.0", "in the state page; outside the cache",
        "model_executor/layers/mamba/mamba_utils.py append_kda_recoverssm_record",
    ),
    Rule("gpu_memory_utilization", "0.11.0 / 0.20.2", "default 0.9; 0.92", "config/cache.py"),
    Rule("CUDA graphs", "0.18.1", "estimated before the pool is sized", "v1/worker/gpu_worker.py"),
    Rule(
        "max_num_batched_tokens", "0.11.0 / 0.28.0",
        "8,192 from 70 GiB of memory (not A100), else 2,048; 16,384 from 160 GiB",
        "engine/arg_utils.py get_batch_defaults",
    ),
)  # fmt: skip
