"""`python -m kvplan_kernels bench`: check every kernel on this GPU, time those that pass, write a calibration.

Exit codes: 0 done, 1 a kernel failed its check, 2 could not run, 3 no GPU or no torch, 130 interrupted (what was
measured is kept). Nothing is set on the card. `main` takes an argument list, so that a larger command line can call it.
"""

import argparse
import dataclasses
import datetime
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan_kernels import calibration, table

if TYPE_CHECKING:
    from kvplan_kernels.case import Case


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


class Runner:
    """Runs cases one by one and keeps the document on disk up to date."""

    def __init__(self, path: Path, document: dict[str, Any], limit_s: float) -> None:
        self.path, self.document, self.limit_s = path, document, limit_s
        self.notes: list[str] = []
        self.failed = 0

    def run(self, cases: "Sequence[Case]") -> None:
        started, done = time.monotonic(), {calibration.key(s) for s in self.document["samples"]}
        todo = [case for case in cases if case.key not in done]
        for n, case in enumerate(todo):
            if time.monotonic() - started > self.limit_s:
                self.notes.append(f"{len(todo) - n} cases not run within {self.limit_s:.0f} s; --resume continues")
                break
            progress(n, len(todo), case.key, time.monotonic() - started)
            self.one(case)
        progress(len(todo), len(todo), "", time.monotonic() - started)

    def one(self, case: "Case") -> None:
        """Check, then time, then save; a shape that does not fit in memory is skipped and said."""
        import torch
        from triton.runtime.errors import OutOfResources

        try:
            sample = measured(case)
        except (torch.OutOfMemoryError, OutOfResources) as error:
            self.notes.append(f"skipped, {type(error).__name__}: {case.key}")
            return
        finally:
            torch.cuda.empty_cache()
        if "median_s" not in sample:
            self.failed += 1
            self.notes.append(f"NOT TIMED, error {sample['error']:.1e} above {sample['tolerance']:.0e}: {case.key}")
            return
        self.document["samples"].append(sample)
        calibration.write(self.path, self.document)


def measured(case: "Case") -> dict[str, Any]:
    """The sample of a case; without times when the kernel failed its check."""
    import torch

    from kvplan_kernels import timing

    work = case.prepare(torch.device("cuda"))
    error = work.check()
    sample: dict[str, Any] = {"owner": case.owner, "kernel": case.kernel, **case.shape}
    if error <= work.tolerance:
        time_calls = timing.measure if work.graph else timing.measure_eager
        sample |= dataclasses.asdict(time_calls(work.calls))
    sample |= {"bytes": work.traffic.bytes, "flops": work.traffic.flops, "roof": case.roof}
    return sample | {"error": error, "tolerance": work.tolerance}


def progress(done: int, total: int, what: str, seconds: float) -> None:
    if sys.stderr.isatty():
        bar = "#" * (24 * done // max(total, 1))
        print(
            f"\r[{bar:<24}] {done}/{total} {seconds:4.0f} s  {what[:60]:<60}",
            end="" if what else "\n",
            file=sys.stderr,
            flush=True,
        )


def new_document(command: str) -> dict[str, Any]:
    from kvplan_kernels import device

    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    source = {"date": today, "command": command, "kind": "measured"}
    return {
        "device": device.describe(),
        "versions": device.versions(),
        "source": source,
        "conditions": [],
        "samples": [],
    }


def open_document(path: Path, command: str, resume: bool) -> dict[str, Any]:
    """A new document, or the one at `path`, whose device and versions must be these."""
    document = new_document(command)
    if not (resume and path.exists()):
        return document
    old = calibration.read(path)
    for part in ("device", "versions"):
        if old[part] != document[part]:
            raise ValueError(f"{path} was measured with another {part}: {old[part]}, here {document[part]}")
    return {"conditions": [], "samples": [], **old, "source": {**old["source"], "resumed": command}}


def run_bench(options: argparse.Namespace, command: str) -> int:
    from kvplan_kernels import device, suites, timing

    name = device.describe()["name"].replace("NVIDIA ", "").replace(" ", "-").lower()
    path = options.out or data_directory() / f"{name}.toml"
    document = open_document(path, command, options.resume)
    runner, code = Runner(path, document, options.seconds or suites.SECONDS[options.suite]), 0
    timing.warm_up()
    document["conditions"].append(device.conditions("start"))
    try:
        runner.run(suites.cases(options.suite, options.only))
    except KeyboardInterrupt:
        runner.notes.append("interrupted; --resume continues")
        code = 130
    document["conditions"].append(device.conditions("end"))
    calibration.write(path, document)
    print(table.text(document["samples"]))
    print(f"{len(document['samples'])} samples in {path}", *runner.notes, sep="\n", file=sys.stderr)
    return code or (1 if runner.failed else 0)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="kvplan_kernels", description="Check and time KDA, MLA and movement kernels on this GPU."
    )
    commands = top.add_subparsers(dest="command", required=True)
    bench = commands.add_parser("bench", help="measure a suite and write a calibration")
    bench.add_argument(
        "--suite",
        choices=("quick", "full", "peers"),
        default="quick",
        help="quick: under 90 s; full: under 8 minutes; peers: other owners' kernels beside ours",
    )
    bench.add_argument(
        "--only", metavar="NAME", help="kernels whose name contains NAME (the roofs are always measured)"
    )
    bench.add_argument(
        "--out", type=Path, metavar="PATH", help="the calibration to write; default: the user's data directory"
    )
    bench.add_argument("--resume", action="store_true", help="keep what PATH already holds and measure the rest")
    bench.add_argument("--seconds", type=float, help="start no case after so many seconds; default: the suite's limit")
    report = commands.add_parser("report", help="write the table and plots of a calibration")
    report.add_argument("calibration", type=Path)
    report.add_argument("--out", type=Path, required=True, metavar="DIR")
    return top


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
        return run_bench(options, " ".join(["python -m kvplan_kernels", *arguments]))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
