"""Collectives between ranks, one process a GPU, through torch.distributed: all-reduce, all-gather, reduce-scatter,
all-to-all of [tokens, hidden] bf16, at the sizes of a decode step and of a prefill chunk.

    all_reduce       every rank holds [tokens, hidden] and ends with the sum
    all_gather       every rank holds 1/ranks of it and ends with the whole
    reduce_scatter   every rank holds [tokens, hidden] and ends with 1/ranks of the sum
    all_to_all       every rank holds [tokens, hidden] and sends 1/ranks of it to each

A message is not rotated over buffers: the kernel before a collective has just written it, so it is in the L2 in a
model too. Repeated sums may overflow while timed; a collective's time does not depend on the values.
"""

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import distributed

from kvplan_kernels import device as machine
from kvplan_kernels import timing
from kvplan_kernels.case import Case, Shape, Traffic, Work, relative_error, tensor

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
START = "torchrun --nproc-per-node GPUS -m kvplan_kernels bench --suite collectives"
CHECKED = 1 << 20  # elements of a result that are compared, from its start and from its end


def not_ready(gpus: int) -> str | None:
    """Why the suite cannot run in this process, in one line; None where it can."""
    if gpus < 2 and int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return f"the suite collectives needs two GPUs or more; this machine has {gpus}"
    if "WORLD_SIZE" not in os.environ:
        return f"the suite collectives runs one process a GPU; start it with: {START.replace('GPUS', str(gpus))}"
    if int(os.environ["WORLD_SIZE"]) < 2:
        return f"WORLD_SIZE is 1: the suite collectives needs two ranks or more; start it with: {START}"
    return None


class Ranks(timing.Alone):
    """Several processes that measure together: start each replay at once, take the slowest."""

    def __init__(self, device: torch.device) -> None:
        self.flag = torch.ones(1, device=device)
        self.count, self.first = distributed.get_world_size(), distributed.get_rank() == 0

    def align(self) -> None:
        """Every rank's stream waits here for the others."""
        distributed.all_reduce(self.flag, op=distributed.ReduceOp.MAX)

    def slowest(self, times: Sequence[float]) -> list[float]:
        """Per entry, the largest of all ranks."""
        mine = torch.tensor(times, dtype=torch.float64, device=self.flag.device)
        distributed.all_reduce(mine, op=distributed.ReduceOp.MAX)
        return [float(t) for t in mine.tolist()]

    def agree(self, value: Any) -> Any:
        held = [value]
        distributed.broadcast_object_list(held, device=self.flag.device)
        return held[0]


@contextlib.contextmanager
def joined() -> Iterator[Ranks]:
    """This process as a rank of NCCL on its own GPU; if one fails, the others wait two minutes."""
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    here = torch.device("cuda", torch.cuda.current_device())
    distributed.init_process_group("nccl", timeout=datetime.timedelta(minutes=2), device_id=here)
    try:
        yield Ranks(here)
    finally:
        distributed.destroy_process_group()


def link() -> dict[str, Any]:
    """How the ranks are joined, for the calibration's [device]: GPUs a node, nodes, what is between two GPUs."""
    ranks, local = distributed.get_world_size(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return {"gpus_per_node": local, "nodes": -(-ranks // local), "link": machine.link()}


def versions() -> dict[str, str]:
    """NCCL's version, and every NCCL_ variable that is set: they change what it does."""
    number = ".".join(str(n) for n in torch.cuda.nccl.version())
    return {"nccl": number} | {name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")}


def sent_bytes(kind: str, size: int, ranks: int) -> int:
    """Bytes that a rank must send at least, of a message of `size` bytes: what nccl-tests calls bus bandwidth."""
    return (2 if kind == "all_reduce" else 1) * size * (ranks - 1) // ranks


def message(rank: int, size: int, device: torch.device) -> torch.Tensor:
    """What a rank contributes, flat bf16; every rank can make every other's."""
    return tensor((size,), 1000 + rank, device)


def _renamed(now: str, before: str) -> Callable[..., object]:
    """A function of torch.distributed by its name from torch 2.13 on, or by the one before."""
    found: Callable[..., object] = getattr(distributed, now, None) or getattr(distributed, before)
    return found


def run(kind: str, source: torch.Tensor, target: torch.Tensor) -> None:
    """source and target flat; for all_reduce they are the same tensor."""
    if kind == "all_reduce":
        distributed.all_reduce(source)
    elif kind == "all_gather":
        _renamed("all_gather_single", "all_gather_into_tensor")(target, source)
    elif kind == "reduce_scatter":
        _renamed("reduce_scatter_single", "reduce_scatter_tensor")(target, source)
    else:
        distributed.all_to_all_single(target, source)


def buffers(kind: str, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's source and target of a message of `size` elements."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    source = message(rank, size // ranks if kind == "all_gather" else size, device)
    if kind == "all_reduce":
        return source, source
    received = size // ranks if kind == "reduce_scatter" else size
    return source, torch.full((received,), float("nan"), dtype=source.dtype, device=device)


def expected(kind: str, size: int, device: torch.device) -> torch.Tensor:
    """What this rank must end with, from all ranks' messages, in fp64."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    part = size // ranks
    if kind == "all_gather":
        return torch.cat([message(r, part, device) for r in range(ranks)]).double()
    if kind == "all_to_all":
        return torch.cat([message(r, size, device)[rank * part : (rank + 1) * part] for r in range(ranks)]).double()
    total = torch.zeros(size if kind == "all_reduce" else part, dtype=torch.float64, device=device)
    for r in range(ranks):
        whole = message(r, size, device)
        total += (whole if kind == "all_reduce" else whole[rank * part : (rank + 1) * part]).double()
    return total


def check(kind: str, size: int, device: torch.device) -> float:
    """Relative error of the worst rank, so that all ranks decide alike."""
    source, target = buffers(kind, size, device)
    run(kind, source, target)
    want = expected(kind, size, device)
    ends = [slice(None, CHECKED), slice(-CHECKED, None)]
    error = max(relative_error(target[end], want[end]) for end in ends)
    return Ranks(device).slowest([error])[0]


def _work(shape: Shape, device: torch.device) -> Work:
    kind, size = str(shape["kind"]), int(shape["tokens"]) * int(shape["hidden"])
    source, target = buffers(kind, size, device)
    moved = Traffic(sent_bytes(kind, 2 * size, distributed.get_world_size()), 0)
    graph = bool(shape["graph"])
    return Work([partial(run, kind, source, target)], partial(check, kind, size, device), moved, 1e-2, graph)


def cases(
    ranks: int,
    tokens: Sequence[int] = tuple(2**n for n in range(16)),
    hidden: Sequence[int] = (2304, 4096, 7168),
    graph: bool = True,
) -> list[Case]:
    """Decode batches 1 to 512 and prefill chunks to 32,768 tokens, at the hidden sizes of Kimi Linear and Kimi K3, and
    at a power of two, as public tables have them.

    A message that does not divide by `ranks` is left out. graph=False times each call between events.
    """
    result = []
    for kind in KINDS:
        for h in hidden:
            for t in tokens:
                if t * h % ranks == 0:
                    shape: Shape = {"ranks": ranks, "tokens": t, "hidden": h, "format": "bf16"}
                    prepare: Callable[[torch.device], Work] = partial(_work, {**shape, "kind": kind, "graph": graph})
                    result.append(Case(kind, shape, prepare, "link", "nccl"))
    return result
