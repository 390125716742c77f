"""`python -m kvplan_kernels bench`: check every kernel on this GPU, time those that pass, write a calibration.

Exit codes: 0 done, 1 a kernel failed its check, 2 could not run, 3 no GPU or no torch, 130 interrupted (what was
measured is kept). Nothing is set on the card. `main` takes an argument list, so that a larger command line can call it.
"""

import argparse
import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan_kernels import calibration, table

if TYPE_CHECKING:
    from kvplan_kernels.runner import Runner

SUITES = {
    "quick": "under 90 s",
    "full": "under 8 minutes",
    "held-out": "shapes that full leaves out, to test estimates with",
    "peers": "other owners' kernels beside ours",
    "collectives": "between GPUs, started with torchrun",
    "precision": "fp32 against bf16 state over up to a million tokens; writes a study, not a calibration",
}


def data_directory() -> Path:
    """Where a user's own calibrations live."""
    if home := os.environ.get("KVPLAN_HOME"):
        return Path(home) / "calibration"
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "kvplan" / "calibration"


def no_device() -> str | None:
    """The one line that helps, or None where the bench can run."""
    if missing := [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]:
        return (
            f"bench needs {' and '.join(missing)}: install the extra 'gpu' (torch and triton) on a machine with a GPU"
        )
    import torch

    if not torch.cuda.is_available():
        return "bench needs an NVIDIA GPU that torch can use; torch sees none (no driver, or a CPU build of torch)"
    return None


def default_path(device_name: str, suite: str, ranks: int = 1) -> Path:
    """One file a GPU for what is fitted; held-out, collectives and precision beside it, each in its own."""
    name = device_name.replace("NVIDIA ", "").replace(" ", "-").lower()
    end = {"held-out": "-held-out", "peers": "-peers", "collectives": f"-x{ranks}"}.get(suite, "")
    if suite == "precision":
        return data_directory().parent / "precision" / f"{name}.toml"
    return data_directory() / f"{name}{end}.toml"


def run_bench(options: argparse.Namespace, command: str) -> int:
    """One GPU, one process."""
    from kvplan_kernels import device, runner, suites, timing

    path = options.out or default_path(device.describe()["name"], options.suite)
    with calibration.only_writer(path):
        document = runner.open_document(path, runner.new_document(command), options.resume)
        run = runner.Runner(path, document, options.seconds or suites.SECONDS[options.suite])
        timing.warm_up()
        return finish(run, suites.cases(options.suite, options.only))


def run_collectives(options: argparse.Namespace, command: str) -> int:
    """One process a GPU; rank 0 alone reads, writes and prints."""
    import torch

    from kvplan_kernels import collectives, device, runner, timing

    if why := collectives.not_ready(torch.cuda.device_count()):
        raise ValueError(why)
    with collectives.joined() as ranks:
        path = options.out or default_path(device.describe()["name"], options.suite, ranks.count)
        new = runner.new_document(command)
        new["device"] |= collectives.link()
        new["versions"] |= collectives.versions()
        graph = timing.captures(ranks.align)
        new["source"]["timing"] = "CUDA graph" if graph else "events"
        with calibration.only_writer(path) if ranks.first else contextlib.nullcontext():
            document = runner.open_document(path, new, options.resume) if ranks.first else new
            run = runner.Runner(path, document, options.seconds or 300.0, ranks, writes=ranks.first)
            timing.warm_up()
            cases = collectives.cases(ranks.count, graph=graph)
            return finish(run, [case for case in cases if options.only is None or options.only in case.kernel])


def finish(run: "Runner", cases: Sequence[Any]) -> int:
    """Run the cases, note the card's state around them, write and print."""
    from kvplan_kernels import device

    code, document = 0, run.document
    document["conditions"].append(device.conditions("start"))
    try:
        run.run(cases)
    except KeyboardInterrupt:
        run.notes.append("interrupted; --resume continues")
        code = 130
    document["conditions"].append(device.conditions("end"))
    if run.writes:
        calibration.write(run.path, document)
        print(table.text(document["samples"]))
        print(f"{len(document['samples'])} samples in {run.path}", *run.notes, sep="\n", file=sys.stderr)
    return code or (1 if run.failed else 0)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="kvplan_kernels", description="Check and time KDA, MLA and movement kernels on this GPU."
    )
    commands = top.add_subparsers(dest="command", required=True)
    bench = commands.add_parser("bench", help="measure a suite and write a calibration")
    bench.add_argument(
        "--suite", choices=tuple(SUITES), default="quick", help="; ".join(f"{k}: {v}" for k, v in SUITES.items())
    )
    bench.add_argument(
        "--only", metavar="NAME", help="kernels whose name contains NAME (the roofs are always measured)"
    )
    bench.add_argument("--out", type=Path, metavar="PATH", help="the file to write; default: the user's data directory")
    bench.add_argument("--resume", action="store_true", help="keep what PATH already holds and measure the rest")
    bench.add_argument("--seconds", type=float, help="start no case after so many seconds; default: the suite's limit")
    report = commands.add_parser("report", help="write the table and plots of a calibration or a precision study")
    report.add_argument("calibration", type=Path)
    report.add_argument("--out", type=Path, required=True, metavar="DIR")
    return top


def run_suite(options: argparse.Namespace, command: str) -> int:
    if options.suite == "collectives":
        return run_collectives(options, command)
    if options.suite == "precision":
        from kvplan_kernels import device, precision

        return precision.run(options.out or default_path(device.describe()["name"], "precision"), command)
    return run_bench(options, command)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, and turn errors into the exit codes above."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options = parser().parse_args(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        if options.command == "report":
            from kvplan_kernels import report

            return report.write(options.calibration, options.out)
        if why := no_device():
            print(why, file=sys.stderr)
            return 3
        return run_suite(options, " ".join(["python -m kvplan_kernels", *arguments]))
    except (OSError, ValueError) as error:
        where = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        print(where, file=sys.stderr)
        return 2
