"""What SGLang derives from the GPU's memory (arg_groups/memory_hook.py): chunk, graph batch, memory fraction."""

from bisect import bisect_right

from kvplan.deployment import Deployment, gpu_and_count
from kvplan.engines.sglang.rules import Rules
from kvplan.engines.sglang.settings import Settings
from kvplan.errors import KvplanError
from kvplan.gpu import find_gpu
from kvplan.model import Model
from kvplan.units import MIB

_FLOORS_MIB = (20 * 1024, 35 * 1024, 60 * 1024, 90 * 1024, 160 * 1024)
_CHUNKS = (2048, 4096, 4096, 8192, 8192, 16384)
_GRAPHS = (8, 48, 32, 256, 256, 512)
_GRAPHS_TP4 = (8, 160, 160, 512, 512, 512)


def memory_mib(deployment: Deployment) -> float | None:
    """The GPU's memory as SGLang asks the driver for it, in MiB; None where no GPU is named."""
    if deployment.gpu_memory is not None:
        return deployment.gpu_memory / MIB
    if deployment.gpu is None or deployment.gpu.lower().startswith("auto"):
        return None
    try:
        return find_gpu(gpu_and_count(deployment.gpu)[0]).memory_bytes / MIB
    except KvplanError:
        return None


def chunked_prefill_size(deployment: Deployment, mib: float | None) -> int:
    if deployment.chunked_prefill_size is not None:
        return deployment.chunked_prefill_size
    return 4096 if mib is None else _CHUNKS[bisect_right(_FLOORS_MIB, mib)]


def graph_batch(deployment: Deployment, settings: Settings, mib: float | None, world_tp: int) -> int:
    """The largest decode batch that is captured as a CUDA graph."""
    if deployment.cuda_graph_max_bs is not None:
        return deployment.cuda_graph_max_bs
    if mib is None:
        return 160
    chosen = (_GRAPHS if world_tp < 4 else _GRAPHS_TP4)[bisect_right(_FLOORS_MIB, mib)]
    if 20 * 1024 <= mib < 35 * 1024 and settings.rules.patch < 20:
        chosen = 24 if world_tp < 4 else 80
    whole = deployment.max_running_requests
    return min(chosen, whole) if whole is not None and settings.rules.patch >= 16 else chosen


def mem_fraction_static(model: Model, deployment: Deployment, settings: Settings, mib: float, world: int) -> float:
    """The default: what activations and CUDA graphs are expected to need is left out.

    `world` is tp × pp of the server, attention-DP ranks included. MiB in, a fraction with three decimals out.
    """
    world_tp = max(1, world // deployment.pp)
    reserved = 512 + _activation_tokens(deployment, settings, mib, world_tp) * 1.5 + world / 8 * 1024
    reserved += _graphs_mb(model, deployment, settings, mib, world_tp)
    if mib > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    if settings.algorithm not in (None, "NGRAM"):
        reserved += settings.rules.draft_memory_mb
    fraction = round((mib - reserved) / mib, 3)
    with_encoder = has_encoder(model, deployment) and deployment.disaggregation_mode != "decode"
    return fraction * _encoder_factor(model) if with_encoder else fraction


def has_encoder(model: Model, deployment: Deployment) -> bool:
    return bool(model.towers) and not deployment.language_model_only


def _encoder_factor(model: Model) -> float:
    """Room for the image encoder: 5 % for one like ViT-L/14, more for a wider one (adjust_mem_fraction_for_vlm).

    The depth is taken as 24, which SGLang falls back to where the config does not call it num_hidden_layers.
    """
    outer = model.weights.outer if model.weights else ()
    width = next(
        (weight.shape[0] for weight in outer if weight.role == "vision" and "patch_embed" in weight.name), 1024
    )
    return 0.95 * max(0.8, min(1.05, 1.1 - 0.1 * width**2 / 1024**2))


def _activation_tokens(deployment: Deployment, settings: Settings, mib: float, world_tp: int) -> int:
    if deployment.disaggregation_mode == "decode" and settings.rules.patch >= 16:
        running = deployment.max_running_requests or graph_batch(deployment, settings, mib, world_tp)
        return max(running * (settings.draft_tokens or 1), 2048)
    chunk = chunked_prefill_size(deployment, mib)
    return max(chunk if chunk > 0 else 16384, 2048)


def _graphs_mb(model: Model, deployment: Deployment, settings: Settings, mib: float, world_tp: int) -> float:
    batch = graph_batch(deployment, settings, mib, world_tp)
    reserved = 0.0 if deployment.disaggregation_mode == "prefill" else batch * 2.0
    if settings.attn_dp > 1 and deployment.disaggregation_mode != "prefill":
        reserved += batch * settings.attn_dp * (4.5 if batch > 300 else 3)
    if deployment.disaggregation_mode == "decode" or not _captures_prefill(settings.rules):
        return reserved
    if any(mixer.latent for mixer in model.mixers()):
        return reserved + 1.5 * 1024
    return reserved + _prefill_graphs(chunked_prefill_size(deployment, mib)) * 8


def _captures_prefill(rules: Rules) -> bool:
    """Prefill graphs are captured unless switched off; before 0.5.10 they had to be switched on."""
    return rules.patch >= 10


def _prefill_graphs(chunk: int) -> int:
    """How many prefill sizes are captured up to `chunk` tokens (arg_groups/cuda_graph_hook.py)."""
    return sum(1 for _ in prefill_sizes(chunk))


def prefill_sizes(chunk: int) -> list[int]:
    """The captured sizes: finer steps for smaller batches."""
    steps = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256), (4608, chunk + 1, 512))
    return [size for start, stop, step in steps for size in range(start, stop, step) if size <= chunk]
