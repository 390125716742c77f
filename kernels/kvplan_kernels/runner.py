"""Runs cases one by one, check before time, and keeps the calibration on disk up to date after each."""

import contextlib
import dataclasses
import datetime
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from triton.runtime.errors import OutOfResources

from kvplan_kernels import calibration, device, timing
from kvplan_kernels.case import Case


class Runner:
    """`writes`: of several ranks, one; all run the same cases."""

    def __init__(
        self,
        path: Path,
        document: dict[str, Any],
        limit_s: float,
        ranks: timing.Alone | None = None,
        writes: bool = True,
    ) -> None:
        self.path, self.document, self.limit_s = path, document, limit_s
        self.ranks, self.writes = ranks or timing.Alone(), writes
        self.notes: list[str] = []
        self.failed = 0

    def run(self, cases: Sequence[Case]) -> None:
        started = time.monotonic()
        done = self.ranks.agree({calibration.key(s) for s in self.document["samples"]})
        todo = [case for case in cases if case.key not in done]
        for n, case in enumerate(todo):
            spent = self.ranks.slowest([time.monotonic() - started])[0]
            if spent > self.limit_s:
                self.notes.append(f"{len(todo) - n} cases not run within {self.limit_s:.0f} s; --resume continues")
                break
            self.progress(n, len(todo), case.key, spent)
            self.one(case)
        self.progress(len(todo), len(todo), "", time.monotonic() - started)

    def one(self, case: Case) -> None:
        """Check, then time, then save; a shape that does not fit in memory is skipped and said."""
        try:
            sample = measured(case, self.ranks)
        except (torch.OutOfMemoryError, OutOfResources) as error:
            self.notes.append(f"skipped, {type(error).__name__}: {case.key}")
            return
        except ImportError as error:  # an owner's package that is there, but not for this torch
            self.notes.append(f"skipped, {case.owner} does not import ({str(error)[:80]}): {case.key}")
            return
        except torch.AcceleratorError:
            raise ValueError(f"the device failed at {case.key}; --resume continues in a new process") from None
        except RuntimeError as error:  # a library that does not take the shape
            self.failed += 1
            self.notes.append(f"NOT TIMED, {str(error).splitlines()[0][:120]}: {case.key}")
            return
        finally:
            with contextlib.suppress(RuntimeError):
                torch.cuda.empty_cache()
        if "median_s" not in sample:
            self.failed += 1
            self.notes.append(f"NOT TIMED, error {sample['error']:.1e} above {sample['tolerance']:.0e}: {case.key}")
            return
        self.document["samples"].append(sample)
        if self.writes:
            calibration.write(self.path, self.document)

    def progress(self, done: int, total: int, what: str, seconds: float) -> None:
        if self.writes and sys.stderr.isatty():
            bar = "#" * (24 * done // max(total, 1))
            line = f"\r[{bar:<24}] {done}/{total} {seconds:4.0f} s  {what[:60]:<60}"
            print(line, end="" if what else "\n", file=sys.stderr, flush=True)


def measured(case: Case, ranks: timing.Alone) -> dict[str, Any]:
    """The sample of a case; without times when the kernel failed its check."""
    work = case.prepare(torch.device("cuda"))
    error = work.check()
    sample: dict[str, Any] = {"owner": case.owner, "kernel": case.kernel, **case.shape}
    if error <= work.tolerance:
        time_calls = timing.measure if work.graph else timing.measure_eager
        sample |= dataclasses.asdict(time_calls(work.calls, ranks=ranks))
    sample |= {"bytes": work.traffic.bytes, "flops": work.traffic.flops, "roof": case.roof}
    return sample | {"error": error, "tolerance": work.tolerance}


def new_document(command: str) -> dict[str, Any]:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    source = {"date": today, "command": command, "kind": "measured"}
    return {
        "device": device.describe(),
        "versions": device.versions(),
        "source": source,
        "conditions": [],
        "samples": [],
    }


def open_document(path: Path, new: dict[str, Any], resume: bool) -> dict[str, Any]:
    """The document `new`, or the one at `path`, whose device and versions must be these."""
    if not (resume and path.exists()):
        return new
    old = calibration.read(path)
    for part in ("device", "versions"):
        if old[part] != new[part]:
            raise ValueError(f"{path} was measured with another {part}: {old[part]}, here {new[part]}")
    resumed = {"resumed": new["source"]["command"]}
    return {"conditions": [], "samples": [], **old, "source": {**old["source"], **resumed}}
