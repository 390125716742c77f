"""The engine's own flags for the snapshots that a trace asks for, on the engine's own grid.

Sources: vllm/config/cache.py and engine/arg_utils.py of 0.33.0, sglang/srt/arg_groups/fields/exec_.py of 0.5.23,
TensorRT-LLM's MambaStateConfig (pull request 16598).
"""

from dataclasses import dataclass
from typing import Any

from kvplan.capacity import Evaluation
from kvplan.engines.vllm.rules import rules_for
from kvplan.units import ceil_div

_TRACK_TOKENS = 256
"""SGLang's default, and what "prompt end − 256" needs (kvplan.agents.checkpoints)."""
_TRTLLM_BLOCK = 32


@dataclass(frozen=True, slots=True)
class Advice:
    """How a deployment's engine is told to keep them; `flags` is empty where it does so by itself."""

    engine: str
    grid_tokens: int | None
    """Where its states can stand; None where no GPU decides that."""
    interval_tokens: int
    """Between periodic snapshots, on the grid; 0: none, only where prompts end and part."""
    flags: tuple[str, ...]
    reason: str


def advise(
    now: Evaluation, optimum_tokens: dict[str, float], context_tokens: int, snapshot_bytes: int
) -> Advice | None:
    """Flags for the optimum intervals of a trace, by the resumes that they were worked out for; None where the engine
    has none that are known here, or the model keeps no state.

    Engines that keep a state at prompt ends need periodic ones only for resumes into mid-history, and none where the
    interval is longer than the mean context or nothing prices it.
    """
    maker = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}.get(now.engine.name)
    if maker is None or not snapshot_bytes:
        return None
    figures = now.allocation.figures if now.allocation else {}
    return maker(now, figures, {name: found for name, found in optimum_tokens.items() if found < context_tokens})


def _on_grid(wanted: float | None, grid: int) -> int:
    return 0 if wanted is None else max(grid, round(wanted / grid) * grid)


def _vllm(now: Evaluation, figures: dict[str, Any], wanted: dict[str, float]) -> Advice:
    rules = rules_for(now.deployment.engine_version)
    grid = figures.get("scheduler_block_tokens")
    flags = ["--enable-prefix-caching"]
    if rules.since(0, 15, 1):
        flags.append("--mamba-cache-mode align")
    if rules.since(0, 30, 0):
        interval = _on_grid(wanted.get("mid_history"), grid) if grid else 0
        flags.append(f"--prefix-cache-retention-interval {interval}")
        why = "states where a prompt's last block ends and where prompts part"
        why += f", and every {interval:,} tokens" if interval else ", and none on a period"
        return Advice("vllm", grid, interval, tuple(flags), why)
    why = f"vLLM {rules.version} keeps a state at every block boundary that a step ends on; from 0.30 on it keeps fewer"
    return Advice("vllm", grid, 0, tuple(flags), why)


def _sglang(now: Evaluation, figures: dict[str, Any], wanted: dict[str, float]) -> Advice:
    page = figures.get("block_tokens") or 1
    track = ceil_div(_TRACK_TOKENS, page) * page
    flags = ("--mamba-radix-cache-strategy extra_buffer", f"--mamba-track-interval {track}")
    why = f"a state within {track:,} tokens before a prompt's end, where templates change nothing"
    if "mid_history" in wanted:
        why += "; it has no flag for periodic ones"
    return Advice("sglang", track, 0, flags, why)


def _trtllm(now: Evaluation, figures: dict[str, Any], wanted: dict[str, float]) -> Advice:
    grid = now.deployment.tokens_per_block or _TRTLLM_BLOCK
    interval = _on_grid(wanted.get("every_resume"), grid)
    if not interval:
        why = "it reuses nothing without periodic_snapshot_interval; prices and a prefill rate say which"
        return Advice("trtllm", grid, 0, (), why)
    flags = (f"periodic_snapshot_interval: {interval}",)
    return Advice("trtllm", grid, interval, flags, "of MambaStateConfig: periodic ones serve every resume")
