"""The deployment as vLLM resolves it before it plans a cache: mode, speculation, batch limits, block sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from kvplan.deployment import Deployment, Layout, gpu_and_count
from kvplan.document import Assumption
from kvplan.dtypes import Dtypes
from kvplan.engines._drafts import draft_tokens
from kvplan.engines.vllm.rules import CHECKPOINT_GRAIN, CHECKPOINT_KERNELS, Mode, Rules, rules_for
from kvplan.gpu import find_gpu
from kvplan.layers.base import Layer, Stored
from kvplan.units import GIB, ceil_div

_KERNEL_BLOCKS = (16, 32, 64, 128, 256, 512, 1024)
_DEFAULT_CHUNK = 256
"""Mamba-2's usual chunk, which mode `all` aligns to where --mamba-block-size says nothing."""


@dataclass(frozen=True, slots=True)
class Device:
    """What the planner asks about the GPU. None where no flag names one."""

    sm: int | None = None
    """CUDA compute capability times ten; 0 where it is not NVIDIA's."""
    memory_bytes: int | None = None
    name: str = ""

    @property
    def major(self) -> int | None:
        return None if self.sm is None else self.sm // 10


def device_of(deployment: Deployment) -> Device:
    gpu = find_gpu(gpu_and_count(deployment.gpu)[0]) if deployment.gpu is not None else None
    memory = deployment.gpu_memory or (gpu.engine_memory_bytes if gpu else None)
    if gpu is None:
        return Device(memory_bytes=memory)
    return Device(gpu.sm or 0, memory, gpu.name)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the planner needs besides the layers."""

    rules: Rules
    device: Device
    mode: Mode
    prefix_caching: bool
    drafts: int
    """Speculative tokens; the rows that they add to a convolution's tail."""
    draft_blocks: int
    """Speculative tokens with a state block of their own: 0 with ReplaySSM."""
    checkpoints: int
    max_num_seqs: int
    max_num_batched_tokens: int
    in_flight: int
    """Tokens scheduled and not yet settled, at most."""
    assumptions: tuple[Assumption, ...]


def settings_for(deployment: Deployment, layout: Layout, layers: Sequence[Layer], max_model_len: int) -> Settings:
    """The flags of `deployment` with vLLM's defaults filled in for a model of these layers."""
    rules, device = rules_for(deployment.engine_version), device_of(deployment)
    states = [layer for layer in layers if _is_state(layer)]
    prefix = _prefix_caching(deployment, rules, states, layers)
    mode = _mode(deployment, rules, states, prefix)
    drafts = draft_tokens(deployment)
    replay = deployment.use_replayssm
    seqs, batched = _limits(deployment, rules, device, max_model_len)
    checkpoints = int(
        mode == "align" and bool(states) and checkpoint_kernel(deployment, rules, device, states) is not None
    )
    return Settings(
        rules=rules,
        device=device,
        mode=mode,
        prefix_caching=prefix,
        drafts=drafts,
        draft_blocks=0 if replay else drafts,
        checkpoints=checkpoints,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        in_flight=batched * _batches(deployment, rules, layout.pp),
        assumptions=_assumptions(deployment, rules, device, mode, prefix, bool(states), seqs, batched),
    )


def _is_state(layer: Layer) -> bool:
    return any(tensor.role in ("state", "conv") for tensor in layer.stored(Dtypes())) and not layer.packed


def _prefix_caching(deployment: Deployment, rules: Rules, states: list[Layer], layers: Sequence[Layer]) -> bool:
    if deployment.enable_prefix_caching is not None:
        return deployment.enable_prefix_caching
    if not states:
        return True
    return rules.prefix_caching_on_hybrids and len(states) < len(layers)


def _mode(deployment: Deployment, rules: Rules, states: list[Layer], prefix: bool) -> Mode:
    """Prefix caching off forces `none`; on, it forces a mode that saves states."""
    if not states or not prefix:
        return "none"
    if not rules.since(0, 13, 0):
        return "none"
    able = all(layer.states_at_chunks for layer in states)
    if not rules.since(0, 15, 1):
        return "all" if able else "none"
    asked = deployment.mamba_cache_mode or "none"
    if asked == "none":
        asked = "all" if rules.default_all_mode else "align"
    return "all" if asked == "all" and able and rules.has_all_mode else "align"


def checkpoint_kernel(deployment: Deployment, rules: Rules, device: Device, states: Sequence[Layer]) -> str | None:
    """The prefill kernel whose checkpoints take a block, where every state layer uses one.

    Without a GPU named, NVIDIA's current data-centre cards are assumed, where `auto` picks these kernels.
    """
    names = {layer.checkpoint_kernel() for layer in states}
    if len(names) != 1 or (name := names.pop()) is None or not rules.since(*CHECKPOINT_KERNELS[name]):
        return None
    if name == "mamba2":
        return name
    chosen: str = deployment.kda_prefill_backend if name == "flashkda" else deployment.gdn_prefill_backend
    capable = device.major in (None, 9, 10, 12)
    return name if capable and chosen in ("auto", "flashkda", "flashinfer") else None


def _limits(deployment: Deployment, rules: Rules, device: Device, max_model_len: int) -> tuple[int, int]:
    """--max-num-seqs and --max-num-batched-tokens, by default from the GPU's memory (engine/arg_utils.py)."""
    memory = device.memory_bytes
    small = memory is not None and (memory < 70 * GIB or "a100" in device.name.lower())
    small = small or ("gb10" in device.name.lower() and rules.since(0, 33, 0))
    large = memory is None or memory >= 160 * GIB
    seqs = deployment.max_num_seqs or (256 if small else 1024)
    batched = deployment.max_num_batched_tokens
    if batched is None:
        batched = 2048 if small else 16384 if large and rules.large_gpu_tier else 8192
        batched = min(batched, seqs * max_model_len)
    return (deployment.max_num_seqs or min(seqs, batched)), batched


def _batches(deployment: Deployment, rules: Rules, pp: int) -> int:
    """Batches in flight: one more than pipeline stages under asynchronous scheduling."""
    if not rules.in_flight_batches:
        return 1
    return pp if deployment.async_scheduling is False else pp + 1


def _assumptions(
    deployment: Deployment, rules: Rules, device: Device, mode: Mode, prefix: bool, has_states: bool, seqs: int,
    batched: int,
) -> tuple[Assumption, ...]:  # fmt: skip
    where = f"vLLM's default for {device.name or 'a large GPU'}"
    found = [Assumption("engine_version", rules.version, "assumed", rules.note)] if rules.note else []
    if deployment.max_num_seqs is None:
        found.append(Assumption("max_num_seqs", seqs, "assumed", where))
    if deployment.max_num_batched_tokens is None:
        found.append(Assumption("max_num_batched_tokens", batched, "assumed", where))
    if has_states and deployment.enable_prefix_caching is None:
        found.append(Assumption("enable_prefix_caching", prefix, "assumed", "this release's default for hybrid models"))
    if has_states and mode == "all" and deployment.mamba_block_size is None:
        found.append(Assumption("mamba_block_size", _DEFAULT_CHUNK, "assumed", "the usual chunk of Mamba-2 kernels"))
    return tuple(found)


def default_block(device: Device, rules: Rules, dtypes: Dtypes, layers: Sequence[Layer]) -> int:
    """Tokens per block that the attention backend prefers; 16 unless its kernels need more (platforms/cuda.py)."""
    growing = [layer for layer in layers if any(tensor.grows for tensor in layer.stored(dtypes))]
    if any(layer.packed for layer in layers):
        return 256
    if not any(layer.latent for layer in growing):
        return 16
    if any(layer.sparse for layer in growing):
        return 64
    if device.major == 10:
        return 32 if rules.since(0, 20, 2) else 128
    if device.major in (None, 9):
        return 64 if dtypes.kv != "bf16" or not rules.since(0, 12, 0) else 16
    return 16


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block sizes of one model: tokens per attention block, the alignment that led to it, bytes of a state page."""

    tokens: int
    alignment: int
    state_bytes: int | None
    """The largest state of a layer, unpadded; None without states."""
    padded_bytes: int | None
    """What state pages are padded to; None where they need no padding or there is no attention."""


def block_sizes(
    settings: Settings, deployment: Deployment, dtypes: Dtypes, layers: Sequence[Layer], row_bytes: int | None,
    state_bytes: int | None,
) -> Blocks:  # fmt: skip
    """Attention pages at least as large as state pages, in multiples of what the kernels take.

    `row_bytes` is one token of one attention layer on one rank, None without attention.
    """
    rules = settings.rules
    base = deployment.block_size or default_block(settings.device, rules, dtypes, layers)
    if state_bytes is None or row_bytes is None:
        return Blocks(base, base, state_bytes, None)
    latent = any(layer.latent for layer in layers)
    grain = _grain(settings, deployment, base, layers, latent)
    if settings.mode == "all":
        chunk = lcm(deployment.mamba_block_size or _DEFAULT_CHUNK, grain)
        needed = chunk * ceil_div(ceil_div(state_bytes, row_bytes), chunk)
    else:
        needed = grain * ceil_div(state_bytes, grain * row_bytes)
    tokens = max(base, needed)
    page = tokens * row_bytes
    return Blocks(tokens, grain, state_bytes, page if page != state_bytes else None)


def _grain(settings: Settings, deployment: Deployment, base: int, layers: Sequence[Layer], latent: bool) -> int:
    """What blocks are a multiple of (_align_hybrid_block_size)."""
    rules = settings.rules
    if not rules.alignment_from_backend:
        return 64 if latent and rules.since(0, 11, 1) else 16
    grain = max(base, rules.latent_alignment if latent else 1)
    if not rules.checkpoint_alignment or settings.mode != "align":
        return grain
    states = [layer for layer in layers if _is_state(layer)]
    kernel = checkpoint_kernel(deployment, rules, settings.device, states)
    return lcm(grain, CHECKPOINT_GRAIN.get(kernel or "", 1))


def window_block(settings: Settings, tokens: int) -> int:
    """Block of a sliding-window layer beside blocks of `tokens`: the largest that its backend runs unsplit."""
    if not settings.rules.since(0, 25, 1):
        return tokens
    if settings.device.major == 10:
        return max((size for size in _KERNEL_BLOCKS if size <= tokens), default=16)
    return max(16, tokens // 16 * 16)


def with_drafts(tensor: Stored, drafts: int) -> int:
    """Bytes of a state tensor when `drafts` speculative tokens add rows to a convolution's tail."""
    if tensor.role != "conv" or not drafts:
        return tensor.entry_bytes
    rows = tensor.shape[0]
    return tensor.entry_bytes // rows * (rows + drafts)
