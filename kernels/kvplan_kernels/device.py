"""What the bench notes about the GPU and its state. It reads; it sets nothing."""

import platform
import re
import subprocess
from typing import Any

import torch
import triton

FIELDS = ("driver_version", "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
NAMES = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")


def _query() -> list[str]:
    """The driver's answers for the current device; empty without nvidia-smi."""
    index = str(torch.cuda.current_device())
    command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits", "-i", index]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [field.strip() for field in answer.strip().split(",")]


def describe() -> dict[str, Any]:
    properties, answers = torch.cuda.get_device_properties(torch.cuda.current_device()), _query()
    return {
        "name": properties.name,
        "driver": answers[0] if answers else "unknown",
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
    }


def link() -> str:
    """What joins this node's first two GPUs in the driver's own words (NV18: 18 NVLinks; PIX, NODE, SYS: PCIe)."""
    try:
        answer = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return link_in(answer.stdout)


def link_in(topology: str) -> str:
    """The cell of the row GPU0 under the column GPU1 of `nvidia-smi topo -m`."""
    for line in re.sub(r"\x1b\[[0-9;]*m", "", topology).splitlines():
        cells = line.split()
        if len(cells) > 2 and cells[:2] == ["GPU0", "X"]:
            return cells[2]
    return "unknown"


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}


def conditions(at: str) -> dict[str, Any]:
    """Clocks, temperature and power now; fields that the driver does not tell are left out."""
    result: dict[str, Any] = {"at": at}
    for name, text in zip(NAMES, _query()[1:], strict=False):
        try:
            result[name] = float(text)
        except ValueError:
            continue
    return result
