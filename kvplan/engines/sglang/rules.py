"""Which memory rule each SGLang release applies, 0.5.8 to 0.5.23, read from the released packages.

Sources: srt/mem_cache/kv_cache_configurator.py (from 0.5.16; model_executor/model_runner_kv_cache_mixin.py before),
srt/server_args.py and srt/arg_groups/. Environment switches are left at their defaults unless a flag says otherwise.
"""

import re
from dataclasses import dataclass
from typing import Literal

from kvplan.errors import UsageError

OLDEST = (0, 5, 8)
NEWEST = (0, 5, 23)

_EXTRA_BUFFER_SINCE = {
    "BailingMoeV2_5ForCausalLM": 14,
    "FalconH1ForCausalLM": 14,
    "GraniteMoeHybridForCausalLM": 14,
    "InternS2PreviewForConditionalGeneration": 14,
    "MiniCPMV4_6ForConditionalGeneration": 14,
    "NemotronHForCausalLM": 14,
    "NemotronHPuzzleForCausalLM": 14,
    "Qwen3NextForCausalLM": 14,
    "Qwen3_5ForConditionalGeneration": 14,
    "Qwen3_5MoeForConditionalGeneration": 14,
    "KimiLinearForCausalLM": 16,
    "KimiK3ForConditionalGeneration": 17,
    "BailingMoeV3ForCausalLM": 19,
    "Qwen3_5ForCausalLM": 19,
    "Qwen3_5MoeForCausalLM": 19,
    "Glm5NextForConditionalGeneration": 20,
    "NemotronH_Omni_Reasoning_V3": 20,
    "Qwen4ExpForConditionalGeneration": 20,
    "BailingMoeV3VLForConditionalGeneration": 21,
    "InklingForConditionalGeneration": 21,
    "MiniCPMV4_7ForConditionalGeneration": 23,
}
"""Architectures for which `--mamba-radix-cache-strategy auto` became extra_buffer, by the 0.5.x that began it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one release 0.5.`patch`."""

    patch: int

    @property
    def version(self) -> str:
        return f"0.5.{self.patch}"

    @property
    def joint_draft_states(self) -> bool:
        """Slots and draft states are solved together; before, draft states of every request came off first."""
        return self.patch >= 13

    @property
    def lazy_strategy(self) -> bool:
        return self.patch >= 13

    @property
    def unified_memory(self) -> bool:
        return self.patch >= 15

    @property
    def padding_row(self) -> int:
        """1 where the pools' padding slot is charged to the budget: K + 1 rows."""
        return int(self.patch >= 17)

    @property
    def stage_states(self) -> bool:
        """Pipeline stages are charged their own layers' state; before, every layer's."""
        return self.patch >= 17

    @property
    def skip_decode_lock(self) -> bool:
        return self.patch >= 17

    @property
    def replayssm(self) -> Literal["ignored", "slot", "kind"]:
        """How the sizing treats --enable-linear-replayssm-spec.

        "slot": no draft states, a ring in every slot; "kind": the same, but GDN's ring is one per running request.
        """
        if self.patch < 17:
            return "ignored"
        return "slot" if self.patch < 20 else "kind"

    @property
    def prefill_role_skips_drafts(self) -> bool:
        """A prefill server of a disaggregated pair keeps no draft states."""
        return self.patch >= 22

    @property
    def requests_need_two_tokens(self) -> bool:
        """A --max-running-requests is also held to half the tokens of the pool; before, to the estimate."""
        return self.patch >= 14

    @property
    def multimodal_reserve_bytes(self) -> int:
        """Kept out of the pools of a multimodal model for its embedding cache (SGLANG_VLM_CACHE_SIZE_MB)."""
        return 100 << 20 if self.patch >= 18 else 0

    @property
    def sizes_before_requests(self) -> bool:
        """0.5.8 and 0.5.9: --max-running-requests is taken as it is, and speculation keeps one tracking slot."""
        return self.patch < 10

    @property
    def radix_off_slots(self) -> int | None:
        """Slots where neither radix cache nor a limit is asked for; None: by memory, as otherwise."""
        return 512 if self.patch < 9 else None

    @property
    def draft_memory_mb(self) -> int:
        """What the default of --mem-fraction-static leaves for an EAGLE draft; later it is measured."""
        return 0 if self.patch > 13 else 4096 if self.patch > 9 else 2048

    def auto_strategy(self, architecture: str) -> str:
        """What `--mamba-radix-cache-strategy auto` becomes with overlap scheduling on."""
        since = _EXTRA_BUFFER_SINCE.get(architecture)
        return "extra_buffer" if since is not None and self.patch >= since else "no_buffer"


def rules_for(version: str | None) -> Rules:
    """The rules of the release asked for, the newest by default; a release after the newest read has the newest's."""
    if version is None:
        return Rules(NEWEST[2])
    match = re.fullmatch(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})([.+-].*|post\d+|rc\d+|dev\d+)?", version.strip())
    if match is None:
        raise UsageError(f"--engine-version {version[:40]!r} is not an SGLang release; write for example 0.5.23")
    asked = tuple(int(part) for part in match.groups()[:3])
    if asked < OLDEST:
        raise UsageError(f"--engine-version {version[:40]!r}: SGLang's rules are modelled from 0.5.8 on")
    return Rules(min(asked, NEWEST)[2])
