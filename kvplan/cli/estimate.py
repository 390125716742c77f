"""`kvplan estimate`: what a model stores, and how many sequences fit."""

from typing import Annotated

import typer

from kvplan.cli import complete

_OUTPUT = {"json", "csv", "markdown", "explain"}


def command(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            autocompletion=complete.models,
            help="Bundled name, Hugging Face id[@revision], config.json, directory or .gguf.",
        ),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Lengths asked about: 128K = 131,072, 128k = 128,000.")] = None,
    max_model_len: Annotated[
        str | None, typer.Option("--max-model-len", "--context-length", help="The engine's limit on a sequence.")
    ] = None,
    kv_cache_dtype: Annotated[
        str | None, typer.Option("--kv-cache-dtype", "--kv-dtype", help="auto, bf16, fp8, fp8_ds_mla, nvfp4, int8, …")
    ] = None,
    index_dtype: Annotated[str | None, typer.Option(help="Keys of sparse indexers: auto, bf16, fp8, fp4.")] = None,
    mamba_ssm_dtype: Annotated[
        str | None,
        typer.Option("--mamba-ssm-dtype", "--state-dtype", "--mamba-ssm-cache-dtype", help="auto, fp32, bf16, fp16."),
    ] = None,
    conv_state: Annotated[
        bool | None, typer.Option("--conv-state/--no-conv-state", help="Count the convolution tail.")
    ] = None,
    snapshot_every: Annotated[str | None, typer.Option(help="One saved copy of the state every N tokens.")] = None,
    snapshots: Annotated[int | None, typer.Option(help="Saved copies of the state per sequence.")] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="all-mla, all-gqa, ratio:R:1, none or a model; default the model's own attention."),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(autocompletion=complete.gpus, help="NAME[:COUNT], for example B300:8; auto asks the driver."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs per node, where --gpu gives no count.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes.")] = None,
    gpu_memory: Annotated[
        str | None, typer.Option(help="Memory of one GPU, for example 80GiB, instead of --gpu.")
    ] = None,
    quantization: Annotated[str | None, typer.Option("--quantization", "-q", help="Weights as served.")] = None,
    weights: Annotated[str | None, typer.Option(help="Bytes of all weights, where nothing else sizes them.")] = None,
    tp: Annotated[
        int | None, typer.Option("--tp", "--tensor-parallel-size", "--tp-size", "-tp", help="Tensor parallel.")
    ] = None,
    pp: Annotated[
        int | None, typer.Option("--pp", "--pipeline-parallel-size", "--pp-size", "-pp", help="Pipeline parallel.")
    ] = None,
    dp: Annotated[
        int | None, typer.Option("--dp", "--data-parallel-size", "--dp-size", "-dp", help="Data parallel.")
    ] = None,
    dcp: Annotated[
        int | None,
        typer.Option("--dcp", "--decode-context-parallel-size", "--dcp-size", "-dcp", help="Decode context parallel."),
    ] = None,
    ep: Annotated[
        int | None, typer.Option("--ep", "--expert-parallel-size", "--ep-size", help="Expert parallel.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(autocompletion=complete.engines, help="Whose rules: vllm (with a GPU), sglang, ideal, …"),
    ] = None,
    engine_version: Annotated[str | None, typer.Option(help="Rules of this release; the newest by default.")] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(help="Share of the GPU that the engine may use.")
    ] = None,
    kv_cache_memory: Annotated[
        str | None, typer.Option("--kv-cache-memory", "--kv-cache-memory-bytes", help="The pool itself, per rank.")
    ] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="The engine's limit on sequences at once.")] = None,
    max_num_batched_tokens: Annotated[str | None, typer.Option(help="vLLM: tokens of one step.")] = None,
    block_size: Annotated[int | None, typer.Option(help="vLLM: tokens per block, and the grain of hybrids.")] = None,
    num_gpu_blocks_override: Annotated[int | None, typer.Option(help="vLLM: blocks, whatever the memory.")] = None,
    kv_cache_layout: Annotated[str | None, typer.Option(help="vLLM's VLLM_KV_CACHE_LAYOUT: LBNHC, BLHNC, …")] = None,
    draft: Annotated[str | None, typer.Option(help="Draft model whose layers join the cache.")] = None,
    speculative_config: Annotated[str | None, typer.Option(help="vLLM's JSON object.")] = None,
    num_speculative_tokens: Annotated[int | None, typer.Option(help="Draft tokens per step.")] = None,
    enable_prefix_caching: Annotated[
        bool | None,
        typer.Option("--enable-prefix-caching/--no-enable-prefix-caching", help="vLLM: keep blocks and states."),
    ] = None,
    prefix_match_unit: Annotated[str | None, typer.Option(help="vLLM: tokens between possible prefix hits.")] = None,
    prefix_cache_retention_interval: Annotated[
        str | None, typer.Option(help="vLLM: tokens between kept states; 0 keeps resume points alone.")
    ] = None,
    mamba_cache_mode: Annotated[str | None, typer.Option(help="vLLM: none, align or all.")] = None,
    mamba_block_size: Annotated[int | None, typer.Option(help="vLLM: chunk that mode all aligns to.")] = None,
    use_replayssm: Annotated[
        bool | None, typer.Option("--use-replayssm", help="vLLM: no state per draft token.")
    ] = None,
    replayssm_buffer_len: Annotated[int | None, typer.Option(help="vLLM: inputs that ReplaySSM keeps.")] = None,
    kda_prefill_backend: Annotated[str | None, typer.Option(help="vLLM: auto, triton or flashkda.")] = None,
    gdn_prefill_backend: Annotated[str | None, typer.Option(help="vLLM: auto, triton, flashinfer or cutedsl.")] = None,
    async_scheduling: Annotated[
        bool | None, typer.Option("--async-scheduling/--no-async-scheduling", help="vLLM: overlap steps.")
    ] = None,
    disable_hybrid_kv_cache_manager: Annotated[
        bool | None, typer.Option("--disable-hybrid-kv-cache-manager", help="vLLM: windows keep everything.")
    ] = None,
    enforce_eager: Annotated[bool | None, typer.Option("--enforce-eager", help="vLLM: no CUDA graphs.")] = None,
    language_model_only: Annotated[
        bool | None, typer.Option("--language-model-only", help="vLLM: leave the vision tower out.")
    ] = None,
    mem_fraction_static: Annotated[float | None, typer.Option(help="SGLang: share for weights and pools.")] = None,
    mamba_full_memory_ratio: Annotated[
        float | None, typer.Option(help="SGLang: memory of states per memory of KV.")
    ] = None,
    max_mamba_cache_size: Annotated[int | None, typer.Option(help="SGLang: state slots, instead of the ratio.")] = None,
    mamba_radix_cache_strategy: Annotated[
        str | None,
        typer.Option(
            "--mamba-radix-cache-strategy",
            "--mamba-scheduler-strategy",
            help="SGLang: auto, no_buffer, extra_buffer, extra_buffer_lazy.",
        ),
    ] = None,
    mamba_skip_decode_lock: Annotated[
        bool | None, typer.Option("--mamba-skip-decode-lock", help="SGLang's SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=1.")
    ] = None,
    max_running_requests: Annotated[int | None, typer.Option(help="SGLang: requests that run at once.")] = None,
    max_total_tokens: Annotated[str | None, typer.Option(help="SGLang: tokens of the KV pool.")] = None,
    page_size: Annotated[int | None, typer.Option(help="SGLang: tokens per page.")] = None,
    swa_full_tokens_ratio: Annotated[float | None, typer.Option(help="SGLang: window tokens per full token.")] = None,
    chunked_prefill_size: Annotated[int | None, typer.Option(help="SGLang: tokens of a prefill chunk.")] = None,
    cuda_graph_max_bs: Annotated[int | None, typer.Option(help="SGLang: largest captured batch.")] = None,
    disable_radix_cache: Annotated[
        bool | None, typer.Option("--disable-radix-cache", help="SGLang: no prefix cache.")
    ] = None,
    disable_overlap_schedule: Annotated[
        bool | None, typer.Option("--disable-overlap-schedule", help="SGLang: no overlapped scheduling.")
    ] = None,
    enable_dp_attention: Annotated[
        bool | None, typer.Option("--enable-dp-attention", help="SGLang: --dp divides the ranks of --tp.")
    ] = None,
    enable_unified_memory: Annotated[
        bool | None, typer.Option("--enable-unified-memory", help="SGLang: one pool for states and KV.")
    ] = None,
    enable_linear_replayssm_spec: Annotated[
        bool | None, typer.Option("--enable-linear-replayssm-spec", help="SGLang: no state per draft token.")
    ] = None,
    linear_replayssm_cache_len: Annotated[int | None, typer.Option(help="SGLang: inputs that ReplaySSM keeps.")] = None,
    disaggregation_mode: Annotated[str | None, typer.Option(help="SGLang: null, prefill or decode.")] = None,
    speculative_algorithm: Annotated[
        str | None, typer.Option(help="SGLang: EAGLE, NEXTN, DFLASH, DSPARK, NGRAM, …")
    ] = None,
    speculative_num_draft_tokens: Annotated[
        int | None, typer.Option(help="SGLang: tokens that one step verifies.")
    ] = None,
    draft_kv_bytes_per_token: Annotated[
        int | None, typer.Option(help="A draft model's cache, per token and rank.")
    ] = None,
    enable_hierarchical_cache: Annotated[
        bool | None, typer.Option("--enable-hierarchical-cache", help="SGLang: HiCache.")
    ] = None,
    hicache_ratio: Annotated[float | None, typer.Option(help="SGLang: host pool per device pool.")] = None,
    hicache_size: Annotated[int | None, typer.Option(help="SGLang: host memory per rank, GB.")] = None,
    ctx_size: Annotated[str | None, typer.Option("--ctx-size", help="llama.cpp: cells for all sequences.")] = None,
    parallel: Annotated[int | None, typer.Option("--parallel", help="llama.cpp: slots.")] = None,
    cache_type_k: Annotated[
        str | None,
        typer.Option("--cache-type-k", help="llama.cpp: f16, bf16, f32, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl."),
    ] = None,
    cache_type_v: Annotated[str | None, typer.Option("--cache-type-v", help="llama.cpp: type of V.")] = None,
    kv_unified: Annotated[
        bool | None, typer.Option("--kv-unified/--no-kv-unified", help="llama.cpp: one cache for all slots.")
    ] = None,
    swa_full: Annotated[
        bool | None, typer.Option("--swa-full", help="llama.cpp: windows as wide as the context.")
    ] = None,
    ubatch_size: Annotated[int | None, typer.Option(help="llama.cpp: tokens of one batch.")] = None,
    free_gpu_memory_fraction: Annotated[
        float | None,
        typer.Option(
            "--free-gpu-memory-fraction",
            "--kv-cache-free-gpu-memory-fraction",
            help="TensorRT-LLM: share of what is free after loading.",
        ),
    ] = None,
    tokens_per_block: Annotated[int | None, typer.Option(help="TensorRT-LLM: tokens per block.")] = None,
    max_batch_size: Annotated[int | None, typer.Option(help="TensorRT-LLM: sequences at once.")] = None,
    max_tokens: Annotated[str | None, typer.Option(help="TensorRT-LLM: kv_cache_config.max_tokens.")] = None,
    calibration: Annotated[
        str | None, typer.Option(help="Times from measured kernels: a name, a .toml, auto (the nearest) or datasheet.")
    ] = None,
    max_tpot_ms: Annotated[float | None, typer.Option(help="Longest time per output token.")] = None,
    max_ttft_s: Annotated[float | None, typer.Option(help="Longest time to the first token of a cold session.")] = None,
    new_tokens: Annotated[str | None, typer.Option(help="Tokens that a resumed session adds.")] = None,
    other_kernels_per_layer: Annotated[int | None, typer.Option(help="Kernels that no calibration measures.")] = None,
    gemm_efficiency: Annotated[
        float | None, typer.Option(help="Share of the matrix roof that products reach where none was measured.")
    ] = None,
    deployment: Annotated[
        str | None, typer.Option(metavar="FILE", help="A TOML file that says these flags, as `kvplan init` writes one.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated rows.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown tables.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Every line of the ledger with its arithmetic.")] = False,
) -> None:
    """What MODEL stores per token and per sequence, and how many sequences fit your GPUs.

    An engine's own command line may follow: kvplan estimate --gpu H200 -- vllm serve MODEL -tp 8 …

    Exit code: 0 it fits (or no GPU was named), 1 it does not, 2 could not run, 4 too close to call.
    """
    from kvplan.cli.launched import resolve_launch
    from kvplan.plan import plan
    from kvplan.show import exit_code, output_form, show_plan

    flags = {name: value for name, value in ctx.params.items() if name not in _OUTPUT | {"model"} and value is not None}
    form = output_form(json=json, csv=csv, markdown=markdown, explain=explain)
    chosen, flags, notes = resolve_launch(ctx, model, flags)
    made = plan(chosen, notes=notes, **flags)
    show_plan(made, form, explain=explain)
    if made.engine is not None and made.engine["name"] != "ideal":
        _warn_of_rules(made.engine["name"], flags.get("engine_version"))
    raise typer.Exit(exit_code(made))


def _warn_of_rules(engine: str, version: str | None) -> None:
    from datetime import date

    from kvplan.engine_facts import engine_facts

    facts = engine_facts(engine, version)
    for warning in (facts.newer_warning(version), facts.age_warning(date.today())):
        if warning:
            typer.echo(f"kvplan: warning: {warning}", err=True)
