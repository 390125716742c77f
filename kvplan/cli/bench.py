"""`kvplan bench`: the kernel suites on this machine's GPU."""

from typing import Annotated

import typer


def command(
    suite: Annotated[
        str,
        typer.Option(
            help="quick (under 90 s), full (under 8 minutes), held-out, peers, precision, collectives (with torchrun)."
        ),
    ] = "quick",
    only: Annotated[
        str | None, typer.Option(help="Kernels whose name contains this; roofs are always measured.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="The file to write; default in your data directory.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what the file holds and measure the rest.")] = False,
) -> None:
    """Check every kernel on this GPU, time those that pass, and write a calibration.

    Between GPUs: torchrun --nproc-per-node GPUS -m kvplan bench --suite collectives. One bench at a time writes a file.

    Exit code: 0 done, 1 a kernel failed its check, 2 could not run, 3 no GPU or no torch, 130 interrupted.
    """
    from kvplan_kernels.bench import main

    arguments = ["bench", "--suite", suite]
    arguments += ["--only", only] if only else []
    arguments += ["--out", out] if out else []
    arguments += ["--resume"] if resume else []
    raise typer.Exit(main(arguments))
