"""Which form of the MLA decode kernel serves a batch, and how its sequences are cut into items of work."""

from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import torch
import triton


class Form(NamedTuple):
    """One tuned form of `_split` for rows [row0, row1) of every sequence; `resident` programs fit a multiprocessor."""

    row0: int
    row1: int
    R: int
    N: int  # tokens a tile: 32 or 64
    SWAP: bool
    TMA: bool
    num_warps: int
    STAGES: int
    resident: int
    GLUON: bool = False  # `mla_decode_gluon` or, for fp8, `mla_decode_fp8_gluon` instead, which fix N and the rest
    FP8: bool = False  # for a cache of fp8; a form serves one type of cache


@cache
def has_gluon(device: torch.device) -> bool:
    """Whether Gluon kernels run there: a Hopper GPU, Triton 3.6 or later, not the interpreter."""
    recent = tuple(int(n) for n in triton.__version__.split(".")[:2]) >= (3, 6)
    if not recent or triton.knobs.runtime.interpret or device.type != "cuda" or torch.version.hip:
        return False
    return torch.cuda.get_device_capability(device)[0] == 9


def forms(rows: int, sequences: int, tokens: int, fp8: bool = False, gluon: bool = False) -> list[Form]:
    """Which forms serve `rows` rows of so many sequences with `tokens` cached tokens in all."""
    if fp8:
        block = 16 if rows <= 16 else 32
        if not gluon:
            return [Form(0, rows, block, 64, False, False, 4, 3, 2, FP8=True)]
        form, spare = Form(0, rows, block, 64, True, True, 4, 2, 2, GLUON=True, FP8=True), rows % 32
        if rows > 32 and 0 < spare <= 16 and tokens > 1_000_000:
            return [form._replace(row1=rows - spare), form._replace(row0=rows - spare, R=16)]
        return [form]
    if gluon and (rows > 16 or tokens < 1_500_000):  # beyond, two small programs a multiprocessor read faster
        return [Form(0, rows, 64, 64, False, True, 4, 2, 1, GLUON=True)]
    much = tokens > 300_000 or (tokens >= 60_000 and sequences >= 4)
    if rows <= 32:
        block = 16 if rows <= 16 else 32
        few = Form(0, rows, block, 64, True, True, 4, 2, 1)
        return [few._replace(SWAP=False, TMA=False, resident=2) if much else few]
    spare = rows % 64
    if 0 < spare <= 32 and tokens > 1_000_000:  # not padding the last rows to 64 pays for reading the cache twice
        rest = [f._replace(row0=rows - spare, row1=rows) for f in forms(spare, sequences, tokens)]
        return [Form(0, rows - spare, 64, 64, False, True, 8, 2, 1), *rest]
    return [Form(0, rows, 64, 64, False, True, 8, 2, 1)]


class Schedule(NamedTuple):
    """Items of one form, made once a step on the host and shared by all layers. int32 tensors; part -1 = not cut."""

    form: Form
    seq: torch.Tensor
    begin: torch.Tensor
    end: torch.Tensor
    part: torch.Tensor
    first_part: torch.Tensor  # [sequences + 1]
    parts: int
    most: int  # parts of one sequence, at most


def split_length(lengths: Sequence[int], programs: int, slots: int) -> int:
    """Tokens an item, a multiple of 64 and at least 256, so that the items fill whole waves of `slots` programs."""
    best, cost = max(256, -(-max(lengths, default=1) // 64) * 64), float("inf")
    for waves in (1, 2, 3, 4):
        low, high = 4, max(4, -(-max(lengths, default=1) // 64))
        while low < high:
            middle = (low + high) // 2
            items = sum(max(1, -(-n // (middle * 64))) for n in lengths) * programs
            low, high = (low, middle) if items <= waves * slots else (middle + 1, high)
        items = sum(max(1, -(-n // (low * 64))) for n in lengths) * programs
        spent = -(-items // slots) * (low * 64 + 128)  # 128 tokens' worth: filling the pipeline, writing the part
        if spent < cost:
            best, cost = low * 64, spent
    return best


def schedule(
    lengths: Sequence[int],
    rows: int,
    multiprocessors: int,
    device: torch.device | str,
    chosen: Sequence[Form] | None = None,
    fp8: bool = False,
) -> list[Schedule]:
    """Cut every sequence for each form that serves `rows` rows (query tokens x heads)."""
    result = []
    for form in chosen or forms(rows, len(lengths), sum(lengths), fp8, has_gluon(torch.device(device))):
        programs = -(-(form.row1 - form.row0) // form.R)
        size = split_length(lengths, programs, multiprocessors * form.resident)
        items, first = [], [0]
        for seq, length in enumerate(lengths):
            cuts = list(range(0, max(length, 1), size))
            numbers = range(first[-1], first[-1] + len(cuts)) if len(cuts) > 1 else [-1]
            items += [(seq, at, min(at + size, length), part) for at, part in zip(cuts, numbers, strict=True)]
            first.append(first[-1] + (len(cuts) if len(cuts) > 1 else 0))
        columns = [[item[n] for item in items] for n in range(4)]
        most = max((b - a for a, b in pairwise(first)), default=0)
        as_tensor = partial(torch.tensor, dtype=torch.int32, device=device)
        at, begin, end, part, parts = (as_tensor(x) for x in (*columns, first))
        result.append(Schedule(form, at, begin, end, part, parts, first[-1], most))
    return result
