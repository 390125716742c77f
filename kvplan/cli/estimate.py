"""`kvplan estimate`: what a model stores, and how many sequences fit."""

from typing import Annotated

import typer

_OUTPUT = {"json", "csv", "markdown", "explain"}


def command(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(help="Bundled name, Hugging Face id[@revision], config.json, directory or .gguf."),
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
    gpu: Annotated[str | None, typer.Option(help="NAME[:COUNT], for example B300:8; auto asks the driver.")] = None,
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
    engine: Annotated[str | None, typer.Option(help="Whose rules: ideal, …")] = None,
    engine_version: Annotated[str | None, typer.Option(help="Rules of this release; the newest by default.")] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(help="Share of the GPU that the engine may use.")
    ] = None,
    kv_cache_memory: Annotated[
        str | None, typer.Option("--kv-cache-memory", "--kv-cache-memory-bytes", help="The pool itself, per rank.")
    ] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="The engine's limit on sequences at once.")] = None,
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
    from kvplan.show import exit_code, show_plan

    flags = {name: value for name, value in ctx.params.items() if name not in _OUTPUT | {"model"} and value is not None}
    chosen, flags, notes = resolve_launch(ctx, model, flags)
    made = plan(chosen, notes=notes, **flags)
    form = next((name for name in ("json", "csv", "markdown") if ctx.params[name]), "text")
    show_plan(made, form, explain=explain)
    raise typer.Exit(exit_code(made))
