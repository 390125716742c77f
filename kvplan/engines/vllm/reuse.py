"""vLLM's pool as a prefix cache, as far as the simulation of open sessions follows its block manager."""

from kvplan.deployment import Deployment
from kvplan.document import Assumption
from kvplan.engines.base import Reuse
from kvplan.engines.vllm.figures import Planned
from kvplan.engines.vllm.specs import GROWING
from kvplan.errors import UsageError


def reuse_of(planned: Planned, deployment: Deployment, max_model_len: int) -> Reuse | None:
    """Blocks and groups of a pool. None for groups whose hits are not modelled: windows, chunks, encoders, drafts.

    Raises UsageError where prefix caching is off. With decode context parallelism a block of the growing groups is
    spread over all ranks: counted as so many shares of a block.
    """
    settings = planned.settings
    states = [group for group in planned.groups if group.spec.kind == "state"]
    grows = [group for group in planned.groups if group.spec.kind in GROWING]
    if not settings.prefix_caching:
        raise UsageError("prefix caching is off, so nothing is found again; give --enable-prefix-caching")
    odd = len(states) + len(grows) < len(planned.groups) or (states and settings.mode != "align")
    sizes = {group.spec.block_tokens for group in planned.groups}
    if odd or not grows or len(sizes) != 1 or settings.drafts or deployment.prefix_match_unit is not None:
        return None
    return Reuse(
        keeps="blocks",
        capacity=(planned.num_blocks - 1) * planned.dcp if planned.starts(max_model_len) else 0,
        block_tokens=sizes.pop(),
        shares=planned.dcp,
        lists=len(grows),
        state_units=len(states) * planned.dcp,
        states_first=planned.groups[0].spec.kind == "state",
        retention_tokens=_retention(deployment, planned),
        step_tokens=settings.max_num_batched_tokens,
        assumptions=tuple(_notes(planned)),
    )


def _retention(deployment: Deployment, planned: Planned) -> int | None:
    asked = deployment.prefix_cache_retention_interval
    return planned.settings.rules.retention_interval if asked is None else asked


def _notes(planned: Planned) -> list[Assumption]:
    found = []
    if planned.dcp > 1:
        why = f"a block is spread over {planned.dcp} ranks; that the last one is not full is not counted"
        found.append(Assumption("dcp_shares", planned.dcp, "assumed", why))
    if planned.settings.checkpoints:
        why = "a prompt's last state stands at its last block boundary, also where a kernel exports it"
        found.append(Assumption("prefill_checkpoint", None, "assumed", why))
    return found
