"""`kvplan verify`: a boot log against kvplan's own arithmetic."""

import sys
from typing import Annotated

import typer

_OUTPUT = {"log", "model", "from_scratch", "plan", "save", "json"}


def command(
    ctx: typer.Context,
    log: Annotated[str, typer.Argument(help="The engine's log; - reads stdin.")],
    model: Annotated[
        str | None, typer.Option(help="The model, where the log does not name it so that it is found.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="NAME[:COUNT], for --from-scratch and --save.")] = None,
    engine_version: Annotated[str | None, typer.Option(help="Rules of this release; the log's by default.")] = None,
    tp: Annotated[int | None, typer.Option("--tp", "-tp", help="Where the log does not say.")] = None,
    dcp: Annotated[int | None, typer.Option("--dcp", "-dcp", help="Where the log does not say.")] = None,
    max_model_len: Annotated[str | None, typer.Option(help="Where the log does not say.")] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="Where the log does not say.")] = None,
    mamba_ssm_dtype: Annotated[str | None, typer.Option(help="Where the log does not say.")] = None,
    gpu_memory_utilization: Annotated[float | None, typer.Option(help="Where the log does not say.")] = None,
    draft: Annotated[str | None, typer.Option(help="The draft model, where the log does not name it.")] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Predict the pool too, and show the error.")
    ] = False,
    plan: Annotated[str | None, typer.Option(metavar="OUT", help="Write the plan that the log implies.")] = None,
    save: Annotated[bool, typer.Option("--save", help="Keep what the log measured for later estimates.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Every memory figure that LOG prints, beside the computed one.

    Flags that the log does not show may follow: kvplan verify LOG -- vllm serve MODEL -tp 8 …

    Exit code: 0 nothing differs, 1 something does, 2 could not run.
    """
    from kvplan.cli.launched import engine_words
    from kvplan.launch import parse_command
    from kvplan.logs import open_log, read_log
    from kvplan.verify import verify_log
    from kvplan.verify.screen import show_report
    from kvplan.verify.writing import save_overhead, write_plan

    words = engine_words(ctx)
    launch = parse_command(words) if words is not None else None
    own = {name: value for name, value in ctx.params.items() if name not in _OUTPUT and value is not None}
    with open_log(log) as stream:
        facts = read_log(stream)
    report, case, settled = verify_log(facts, model=model, command=launch, from_scratch=from_scratch, **own)
    show_report(report, as_json=json)
    if plan is not None:
        write_plan(plan, case, report, settled)
    if save:
        print(f"kvplan: saved {save_overhead(case, report)}", file=sys.stderr)
    raise typer.Exit(report.exit_code)
