"""What the user says about serving: the flags, parsed, and the layout of ranks that follows from them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from kvplan.dtypes import INDEX_FORMATS, KV_FORMATS, STATE_FORMATS, parse_format
from kvplan.errors import PlacementError, UsageError
from kvplan.units import ceil_div, parse_size, parse_token_list, parse_tokens


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks of one replica and how they share work. tp × pp ranks hold one copy of the attention weights.

    dp replicas of the attention share routed experts when ep or expert_tp > tp; dcp reuses the tp ranks and adds none.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    ep: int = 1
    expert_tp: int = 1
    """Ranks that cut each routed expert together, where an engine goes beyond tp: vLLM over tp × dp."""

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "dcp", "ep"):
            value = getattr(self, name)
            if not 1 <= value <= 65536:
                raise PlacementError(f"--{name} {value} is out of range 1 to 65536")
        if self.tp % self.dcp:
            raise PlacementError(f"--dcp {self.dcp} does not divide --tp {self.tp}; dcp reuses the ranks of tp")
        if self.tp % self.ep and self.tp * self.dp % self.ep:
            raise PlacementError(f"--ep {self.ep} divides neither --tp {self.tp} nor tp × dp {self.tp * self.dp}")

    @property
    def ranks(self) -> int:
        """GPUs in use over all replicas."""
        return self.tp * self.pp * self.dp

    @property
    def expert_shares(self) -> int:
        """How many ways the routed experts of one pipeline stage are split."""
        return max(self.tp, self.ep, self.expert_tp)


def _from_text(parse: Callable[[str], Any]) -> BeforeValidator:
    def read(value: Any) -> Any:
        try:
            return parse(value) if isinstance(value, str) else value
        except UsageError as error:
            raise ValueError(str(error)) from None  # pydantic adds the flag's name

    return BeforeValidator(read)


def _format(allowed: tuple[str, ...], flag: str) -> BeforeValidator:
    return _from_text(lambda text: parse_format(text, allowed, flag))


def _tokens_or_zero(text: str) -> int:
    return 0 if text.strip() == "0" else parse_tokens(text)


Tokens = Annotated[int, _from_text(parse_tokens), Field(ge=1)]
Size = Annotated[int, _from_text(parse_size), Field(ge=1)]
Count = Annotated[int, Field(ge=1, le=1 << 20)]
Share = Annotated[float, Field(gt=0, le=1)]


class Deployment(BaseModel):
    """Every flag of `kvplan estimate`, under its flag name. None means that the user did not say."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    context: Annotated[tuple[Tokens, ...], _from_text(parse_token_list)] = ()
    max_model_len: Tokens | None = None
    kv_cache_dtype: Annotated[str, _format(KV_FORMATS, "--kv-cache-dtype")] = "auto"
    index_dtype: Annotated[str, _format(INDEX_FORMATS, "--index-dtype")] = "auto"
    mamba_ssm_dtype: Annotated[str, _format(STATE_FORMATS, "--mamba-ssm-dtype")] = "auto"
    conv_state: bool = True
    snapshot_every: Tokens | None = None
    snapshots: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    baseline: str | None = None

    gpu: str | None = None
    gpus: Count | None = None
    nodes: Count = 1
    gpu_memory: Size | None = None
    quantization: str | None = None
    weights: Size | None = None
    tp: Count | None = None
    pp: Count = 1
    dp: Count | None = None
    dcp: Count = 1
    ep: Count = 1

    engine: str | None = None
    engine_version: str | None = None
    gpu_memory_utilization: Share | None = None
    kv_cache_memory: Size | None = None
    max_num_seqs: Count | None = None

    max_num_batched_tokens: Tokens | None = None
    block_size: Count | None = None
    num_gpu_blocks_override: Count | None = None
    kv_cache_layout: Literal["LBNHC", "LBHNC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"] | None = None
    """vLLM's environment variable VLLM_KV_CACHE_LAYOUT."""
    draft: str | None = None
    speculative_config: str | None = None
    num_speculative_tokens: Annotated[int, Field(ge=0, le=1024)] | None = None
    enable_prefix_caching: bool | None = None
    prefix_match_unit: Tokens | None = None
    prefix_cache_retention_interval: Annotated[int, _from_text(_tokens_or_zero), Field(ge=0)] | None = None
    mamba_cache_mode: Literal["none", "align", "all"] | None = None
    mamba_block_size: Count | None = None
    use_replayssm: bool = False
    replayssm_buffer_len: Count = 16
    kda_prefill_backend: Literal["auto", "triton", "flashkda"] = "auto"
    """vLLM's additional_config.kda_prefill_backend."""
    gdn_prefill_backend: Literal["auto", "triton", "flashinfer", "cutedsl"] = "auto"
    async_scheduling: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    enforce_eager: bool = False
    language_model_only: bool = False

    mem_fraction_static: Share | None = None
    mamba_full_memory_ratio: Annotated[float, Field(gt=0, le=1000)] | None = None
    max_mamba_cache_size: Count | None = None
    mamba_radix_cache_strategy: Literal["auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"] = "auto"
    mamba_skip_decode_lock: bool = False
    """SGLang's environment variable SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK."""
    max_running_requests: Count | None = None
    max_total_tokens: Tokens | None = None
    page_size: Count | None = None
    swa_full_tokens_ratio: Share | None = None
    chunked_prefill_size: Annotated[int, Field(ge=-1, le=1 << 24)] | None = None
    cuda_graph_max_bs: Count | None = None
    disable_radix_cache: bool = False
    disable_overlap_schedule: bool = False
    enable_dp_attention: bool = False
    enable_unified_memory: bool = False
    enable_linear_replayssm_spec: bool = False
    linear_replayssm_cache_len: Count = 16
    disaggregation_mode: Literal["null", "prefill", "decode"] = "null"
    speculative_algorithm: str | None = None
    speculative_num_draft_tokens: Count | None = None
    draft_kv_bytes_per_token: Annotated[int, Field(ge=0, le=1 << 24)] | None = None
    """What a separate draft model keeps per token on one rank."""
    enable_hierarchical_cache: bool = False
    hicache_ratio: Annotated[float, Field(gt=0, le=1000)] | None = None
    hicache_size: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Host memory per rank in GB of 10^9 bytes; overrides hicache_ratio."""

    ctx_size: Annotated[int, _from_text(_tokens_or_zero), Field(ge=0)] | None = None
    parallel: Annotated[int, Field(ge=1, le=256)] | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    kv_unified: bool | None = None
    swa_full: bool = False
    ubatch_size: Count | None = None

    free_gpu_memory_fraction: Share | None = None
    tokens_per_block: Count | None = None
    max_batch_size: Count | None = None
    max_tokens: Tokens | None = None
    """TensorRT-LLM's kv_cache_config.max_tokens."""

    calibration: str | None = None
    """Measured kernel times by name or path, several with commas; "auto" takes the nearest at hand,
    "datasheet" none."""
    max_tpot_ms: Annotated[float, Field(gt=0, le=1e6)] | None = None
    max_ttft_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    new_tokens: Tokens | None = None
    """Tokens that a resumed session adds to what it has."""
    other_kernels_per_layer: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Kernels of a layer beside those that a calibration measures."""
    gemm_efficiency: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the matrix roof that products of unmeasured shapes or formats reach."""

    def with_flags(self, **flags: Any) -> "Deployment":
        """The same deployment with some flags changed, checked again."""
        return make_deployment(**(self.model_dump(exclude_unset=True) | flags))


def make_deployment(**flags: Any) -> Deployment:
    """Flags as a Deployment; raises UsageError with one line that names the flag."""
    for name, value in flags.items():
        if isinstance(value, str) and not value.strip():
            raise UsageError(f"--{name.replace('_', '-')} is empty")
    try:
        made = Deployment(**flags)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        flag = str(first["loc"][0]).replace("_", "-") if first["loc"] else "flags"
        if first["type"] == "value_error":
            said = first["msg"].removeprefix("Value error, ")
            raise UsageError(said if said.startswith("--") else f"--{flag}: {said}") from None
        raise UsageError(f"--{flag} {_shown(first.get('input'))}: {_problem(first['type'], first['msg'])}") from None
    if made.snapshots is not None and made.snapshot_every is not None:
        raise UsageError("--snapshots and --snapshot-every say the same thing twice; give one")
    return made


def _shown(value: Any) -> str:
    return str(value)[:60]


def _problem(kind: str, message: str) -> str:
    return "no such flag" if kind == "extra_forbidden" else message[0].lower() + message[1:]


def gpu_and_count(text: str) -> tuple[str, int | None]:
    """`B300:8` is eight B300; without a count it is None."""
    name, separator, count = text.partition(":")
    if not separator:
        return name, None
    if not count.isascii() or not count.isdigit() or not 1 <= int(count[:8]) <= 1 << 20:
        raise UsageError(f"--gpu {text[:60]!r}: write NAME or NAME:COUNT, for example H200:8")
    return name, int(count)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The GPUs of a deployment and how one replica lies on them."""

    gpus: int
    per_node: int
    layout: Layout

    @property
    def replicas(self) -> int:
        return self.gpus // (self.layout.tp * self.layout.pp)


def _inside_tp(deployment: Deployment) -> Deployment:
    """SGLang's attention data parallelism divides the ranks of --tp: 8 with dp 4 is attention tp 2, experts over 8."""
    tp, dp = deployment.tp, deployment.dp
    if not deployment.enable_dp_attention or tp is None or dp is None:
        return deployment
    if tp % dp:
        raise PlacementError(f"--enable-dp-attention: --dp {dp} does not divide --tp {tp}")
    return deployment.model_copy(update={"tp": tp // dp, "ep": max(deployment.ep, tp)})


def make_fleet(deployment: Deployment) -> Fleet | None:
    """GPUs and layout from the flags: without --tp, tp takes the GPUs of one node. None when no flag names either."""
    named, count = gpu_and_count(deployment.gpu) if deployment.gpu else (None, None)
    if count is not None and deployment.gpus is not None and count != deployment.gpus:
        raise UsageError(f"--gpu {deployment.gpu} and --gpus {deployment.gpus} disagree; give the count once")
    deployment = _inside_tp(deployment)
    asked = (deployment.tp or 1) * deployment.pp * (deployment.dp or 1)
    sized = (deployment.tp, deployment.dp, deployment.gpus, deployment.gpu_memory, deployment.kv_cache_memory)
    spread = deployment.pp * deployment.dcp * deployment.ep > 1 or any(size is not None for size in sized)
    if named is None and not spread:
        return None
    per_node = count or deployment.gpus or ceil_div(asked, deployment.nodes)
    gpus = per_node * deployment.nodes
    pp, dp = deployment.pp, deployment.dp
    if deployment.engine == "llamacpp" and deployment.tp is None:
        pp = pp if pp > 1 else max(1, gpus // (dp or 1))  # llama.cpp spreads layers over GPUs, not heads
        deployment = deployment.model_copy(update={"tp": 1})
    tp = deployment.tp or max(1, per_node // (pp * (dp or 1)))
    if tp * pp * (dp or 1) > gpus:
        raise PlacementError(f"tp {tp} × pp {pp} × dp {dp or 1} needs {tp * pp * (dp or 1)} GPUs, and there are {gpus}")
    if gpus % (tp * pp):
        raise PlacementError(f"{gpus} GPUs are not a whole number of replicas of tp {tp} × pp {pp} = {tp * pp} GPUs")
    layout = Layout(tp, pp, dp or gpus // (tp * pp), deployment.dcp, deployment.ep)
    return Fleet(gpus, per_node, layout)
