"""llama.cpp's server: everything is reserved at start, cells of KV and one state per sequence slot.

docs/engines/llamacpp.md works an example by hand.
"""

from typing import Any, ClassVar

from kvplan.deployment import Deployment
from kvplan.document import Assumption, Binds
from kvplan.dtypes import BLOCK_ELEMENTS, BLOCKS, Dtypes, canonical
from kvplan.engines.base import Allocation, Engine, Fit, Share
from kvplan.engines.llamacpp.cells import MAX_SEQ, PAD, UBATCH, Buffers, Context, buffers, make_context
from kvplan.errors import PlacementError, UsageError
from kvplan.layers.base import Layer
from kvplan.layers.compressed import WindowOnly
from kvplan.layers.mla import Mla
from kvplan.model import Model
from kvplan.pool import Pool
from kvplan.units import GIB, MIB, ceil_div

CACHE_TYPES = ("f32", "f16", "bf16", *BLOCKS)
SERVER_PARALLEL = 4
"""llama-server's slots where --parallel is not given; it then shares one cache among them."""
FIT_MARGIN = GIB
"""What --fit leaves free on each device (--fit-target)."""
RUNTIME = 500 * MIB


class LlamaCpp(Engine):
    """Cells × layers × row bytes, and a state of fp32 per slot."""

    name: ClassVar[str] = "llamacpp"
    rules_version: ClassVar[str] = "llama-cpp-python 0.3.36"
    source: ClassVar[str] = (
        "llama.cpp src/llama-kv-cache*.cpp, llama-memory-*.cpp, llama-hparams.cpp, llama-context.cpp"
    )

    def dtypes(self, model: Model, deployment: Deployment) -> Dtypes:
        """K and V in --cache-type-k and -v, f16 by default; an index in K's type; states and tails fp32."""
        if deployment.mamba_ssm_dtype not in ("auto", "fp32"):
            raise UsageError(
                f"--mamba-ssm-dtype {deployment.mamba_ssm_dtype}: llama.cpp keeps recurrent states in fp32"
            )
        both = None
        if deployment.kv_cache_dtype != "auto":
            if deployment.kv_cache_dtype not in ("fp16", "bf16", "fp32"):
                raise UsageError(
                    f"--kv-cache-dtype {deployment.kv_cache_dtype} is no type of llama.cpp; use --cache-type-k and "
                    f"--cache-type-v with one of {', '.join(CACHE_TYPES)}"
                )
            both = deployment.kv_cache_dtype
        k = _cache_type(deployment.cache_type_k, "--cache-type-k") or both or "fp16"
        v = _cache_type(deployment.cache_type_v, "--cache-type-v") or both or "fp16"
        conv = "fp32" if deployment.conv_state else None
        return Dtypes(kv=k, value=None if v == k else v, index=k, state="fp32", conv=conv)

    def state_reason(self, model: Model) -> str:
        return "llama.cpp keeps every recurrent state in fp32"

    def pool(self, share: Share, memory_bytes: int, weights_bytes: int, deployment: Deployment) -> Pool:
        """What is left of a device after weights and the margin that --fit keeps for the compute buffers."""
        left = memory_bytes - RUNTIME - weights_bytes - FIT_MARGIN
        kept = Assumption("fit_target", FIT_MARGIN, "derived", "--fit-target: 1024 MiB of each device stay free")
        runtime = Assumption(
            "runtime_bytes", RUNTIME, "assumed", "the driver's context and compute buffers of 512 tokens"
        )
        return Pool(
            left, left - GIB, left + GIB // 2, "predicted", memory_bytes, weights_bytes, FIT_MARGIN, 0, RUNTIME,
            (kept, runtime),
        )  # fmt: skip

    def allocate(self, share: Share, pool_bytes: int, deployment: Deployment, contexts: list[int]) -> Allocation:
        if share.layout.tp > 1 or share.layout.dcp > 1:
            raise PlacementError(
                f"--tp {share.layout.tp}: llama.cpp spreads layers over GPUs; leave --tp out, or give --tp 1 and --pp"
            )
        stages = [_checked(stage, share.dtypes) for stage in share.stages]
        given = _given(share.model, deployment)
        if given is not None:
            reserved = _reserve(stages, share, given)
            fits = tuple(_fixed_fit(given, reserved.total, pool_bytes, tokens) for tokens in contexts)
            return Allocation(fits, _figures(given, reserved, share, contexts))
        chosen = [_most(stages, share, pool_bytes, deployment, tokens) for tokens in contexts]
        fits = tuple(fit for fit, _ in chosen)
        context = chosen[-1][1]
        figures = _figures(context, _reserve(stages, share, context), share, contexts)
        return Allocation(fits, figures | {"sized_for": [_command(fit, made) for fit, made in chosen]})


def _cache_type(name: str | None, flag: str) -> str | None:
    if name is None:
        return None
    if name.strip().lower() not in CACHE_TYPES:
        raise UsageError(f"{flag} {name[:40]!r} is not modelled; use one of {', '.join(CACHE_TYPES)}")
    return canonical(name)


def _checked(stage: list[Layer], dtypes: Dtypes) -> list[Layer]:
    """Refuse what llama.cpp's caches are not known to hold."""
    for layer in stage:
        if dtypes.value is not None and isinstance(layer, (Mla, WindowOnly)):
            raise UsageError(
                f"--cache-type-v: llama.cpp wants K's type, {dtypes.kv}, for the V of MLA too; give both alike"
            )
        if layer.kind == "cross":
            raise UsageError("--engine llamacpp: cross-attention caches are not modelled; use --engine ideal")
        for tensor in layer.stored(dtypes):
            blocks = {"value": dtypes.value or dtypes.kv}.get(tensor.name, dtypes.kv) in BLOCKS
            elements = 1
            for size in tensor.shape:
                elements *= size
            if blocks and tensor.per == "token" and "scale" not in tensor.name and elements % BLOCK_ELEMENTS:
                raise UsageError(f"--cache-type-k: rows of {elements} elements do not split into blocks of 32")
    return stage


def _given(model: Model, deployment: Deployment) -> Context | None:
    """The context that the flags state; None where neither size nor slots are given."""
    if deployment.ctx_size is None and deployment.parallel is None:
        return None
    limit = deployment.ctx_size or deployment.max_model_len or model.max_context_tokens
    if limit is None:
        raise UsageError(f"--ctx-size is needed: {model.name} states no maximum length")
    auto = deployment.parallel is None
    unified = deployment.kv_unified if deployment.kv_unified is not None else auto
    parallel = deployment.parallel or SERVER_PARALLEL
    return make_context(limit, parallel, unified, deployment.ubatch_size or UBATCH, deployment.swa_full)


def _reserve(stages: list[list[Layer]], share: Share, context: Context) -> Buffers:
    """The buffers of the fullest device."""
    every = [buffers(stage, share.model, share.dtypes, context) for stage in stages]
    return max(every, key=lambda one: one.total)


def _fixed_fit(context: Context, reserved_bytes: int, pool_bytes: int, tokens: int) -> Fit:
    """Slots that can each hold `tokens` in the context as given; none where the buffers do not fit the device."""
    if reserved_bytes > pool_bytes:
        return Fit(tokens, 0, 0, "kv" if pool_bytes > 0 else "weights")
    if not context.unified:
        slots = context.n_seq_max if tokens <= context.n_ctx_seq else 0
        return Fit(tokens, slots, slots, "slots")
    by_cells = context.n_ctx_seq // tokens
    binds: Binds = "kv" if by_cells < context.n_seq_max else "slots"
    return Fit(tokens, min(by_cells, context.n_seq_max), context.n_seq_max if tokens <= context.n_ctx_seq else 0, binds)


def _most(
    stages: list[list[Layer]], share: Share, pool_bytes: int, deployment: Deployment, tokens: int
) -> tuple[Fit, Context]:
    """The most slots of `tokens` whose buffers fit, each with cells of its own (--parallel N --ctx-size N × tokens)."""

    def made(slots: int) -> Context:
        each = ceil_div(tokens, PAD) * PAD
        return make_context(slots * each, slots, False, deployment.ubatch_size or UBATCH, deployment.swa_full)

    low, high = 0, min(MAX_SEQ, deployment.max_num_seqs or MAX_SEQ)
    while low < high:
        middle = (low + high + 1) // 2
        fits = _reserve(stages, share, made(middle)).total <= pool_bytes
        low, high = (middle, high) if fits else (low, middle - 1)
    one = _reserve(stages, share, made(max(1, low)))
    grown = one.k + one.v + one.index
    binds: Binds = "kv" if grown >= one.r + one.s else "state"
    if low == min(MAX_SEQ, deployment.max_num_seqs or MAX_SEQ):
        binds = "slots"
    elif pool_bytes <= 0:
        binds = "weights"
    return Fit(tokens, low, low, binds), made(max(1, low))


def _command(fit: Fit, context: Context) -> dict[str, int]:
    return {
        "context_tokens": fit.context_tokens,
        "parallel": context.n_seq_max,
        "ctx_size": context.n_ctx_seq * context.n_seq_max,
    }


def _figures(context: Context, reserved: Buffers, share: Share, contexts: list[int]) -> dict[str, Any]:
    cells = context.n_ctx_seq * context.streams
    return {
        "block_tokens": PAD,
        "num_blocks": None,
        "blocks_per_sequence": None,
        "kv_cache_tokens": cells,
        "max_concurrency": context.n_seq_max if not context.unified else context.n_ctx_seq / contexts[-1],
        "state_slots": context.n_seq_max if reserved.r + reserved.s else None,
        "max_running_requests": context.n_seq_max,
        "n_ctx_seq": context.n_ctx_seq,
        "n_seq_max": context.n_seq_max,
        "kv_unified": context.unified,
        "k_bytes": reserved.k,
        "v_bytes": reserved.v,
        "swa_bytes": reserved.window,
        "index_bytes": reserved.index,
        "r_bytes": reserved.r,
        "s_bytes": reserved.s,
        "buffer_bytes": reserved.total,
        "not_modelled": [
            "compute buffers (assumed in the pool), --no-kv-offload, a draft's own context, context checkpoints in RAM"
        ],
    }


ENGINE = LlamaCpp()
