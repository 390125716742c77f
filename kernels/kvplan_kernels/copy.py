"""Movement: read, write, copy, in place; host and device; weights read at decode. The roofs of this GPU among them.

A plain kernel rather than `Tensor.copy_`: inside a CUDA graph that becomes a memcpy node, which is slower.
"""

from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl

from kvplan_kernels.case import Case, Shape, Traffic, Work, buffers_for, relative_error, tensor


@triton.jit
def _move(source, target, size, READ: tl.constexpr, WRITE: tl.constexpr, BLOCK: tl.constexpr):
    """Program (block): fp32 elements; write alone stores a constant, read alone stores one sum a program."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.full((BLOCK,), 1.0, tl.float32)
    if READ:
        x = tl.load(source + at, mask=at < size, other=0.0) * 1.0001
    if WRITE:
        tl.store(target + at, x, mask=at < size)
    else:
        tl.store(target + tl.program_id(0), tl.sum(x, 0))


def move(source: torch.Tensor, target: torch.Tensor, how: str) -> None:
    """how: read (target [programs] takes sums), write (source ignored), copy, or inplace (source is target). fp32."""
    size = target.numel() if how == "write" else source.numel()
    block = 8192 if how == "read" else 1024
    _move[(triton.cdiv(size, block),)](
        source, target, size, READ=how != "write", WRITE=how != "read", BLOCK=block, num_warps=8 if how == "read" else 4
    )


@triton.jit
def _gemv(x, weight, expert, out, N, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Program (BN rows of a weight, position): out[p, n] = weight[expert[p], n] . x[p]."""
    p = tl.program_id(1)
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    base = weight + tl.load(expert + p).to(tl.int64) * N * K
    total = tl.zeros((BN, BK), tl.float32)
    for k0 in range(0, K, BK):
        w = tl.load(base + n[:, None].to(tl.int64) * K + (k0 + k)[None, :], mask=(n < N)[:, None], other=0.0)
        total += w.to(tl.float32) * tl.load(x + p * K + k0 + k).to(tl.float32)[None, :]
    tl.store(out + p * N + n, tl.sum(total, 1).to(out.dtype.element_ty), mask=n < N)


def gemv(x: torch.Tensor, weight: torch.Tensor, expert: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """x [P,K], weight [E,N,K], expert [P] int, out [P,N]: one expert a position; E = P = 1 is a plain weight read.

    K is a multiple of 512.
    """
    grid = (triton.cdiv(weight.shape[1], 8), x.shape[0])
    _gemv[grid](x, weight, expert, out, weight.shape[1], K=weight.shape[2], BN=8, BK=512, num_warps=4)
    return out


def gemv_reference(x: torch.Tensor, weight: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
    return torch.einsum("pk,pnk->pn", x.double(), weight[expert.long()].double())


def gemv_traffic(P: int, N: int, K: int) -> Traffic:
    """Distinct experts' weights read once, x and out; bf16."""
    return Traffic(2 * P * (N * K + N + K), 2 * P * N * K)


def _move_work(shape: Shape, device: torch.device) -> Work:
    how, size = str(shape["how"]), int(shape["megabytes"]) * 250_000
    count = 1 if how == "inplace" and size > 100_000_000 else buffers_for(size * 4, most=64)
    data = [torch.randn(size, device=device) for _ in range(count)]
    sums = torch.empty(triton.cdiv(size, 8192), device=device)
    targets = [sums if how == "read" else x if how == "inplace" else torch.empty_like(x) for x in data]

    def check() -> float:
        want = data[0] * 1.0001 if how != "write" else torch.ones_like(data[0])
        move(data[0], targets[0], how)
        if how == "read":
            return abs(float(sums.double().sum() / want.double().sum()) - 1) if float(want.double().sum()) else 0.0
        return relative_error(targets[0], want)

    moved = 4 * size * (2 if how in ("copy", "inplace") else 1)
    calls: list[Callable[[], object]] = [partial(move, a, b, how) for a, b in zip(data, targets, strict=True)]
    return Work(calls, check, Traffic(moved, 0), 1e-3)


SNAPSHOT = 56_171_520  # bytes of one rank's states of Kimi K3 at TP 8


def _host_work(shape: Shape, device: torch.device) -> Work:
    """One pinned object to the device or back, whole or in pieces of 2 MiB; timed eagerly."""
    size, piece = SNAPSHOT, int(shape["piece"])
    host = torch.randint(0, 255, (size,), dtype=torch.uint8).pin_memory()
    card = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)
    source, target = (host, card) if shape["how"] == "to_device" else (card, host)

    def call() -> None:
        for a, b in zip(torch.split(source, piece), torch.split(target, piece), strict=True):
            b.copy_(a, non_blocking=True)

    def check() -> float:
        call()
        torch.cuda.synchronize(device)
        return 0.0 if torch.equal(host, card.cpu()) else 1.0

    return Work([call], check, Traffic(size, 0), 0.0, graph=False)


def _gemv_work(shape: Shape, device: torch.device) -> Work:
    P, E, N, K = (int(shape[x]) for x in ("positions", "experts", "rows", "columns"))
    count = buffers_for(2 * P * N * K, most=1 if E > 1 else 32)
    weights = [tensor((E, N, K), n, device) for n in range(count)]
    x, expert = tensor((P, K), 99, device), torch.randperm(E, device=device)[:P].int()
    out = torch.empty(P, N, dtype=torch.bfloat16, device=device)
    calls: list[Callable[[], object]] = [partial(gemv, x, w, expert, out) for w in weights]

    def check() -> float:
        some = slice(0, min(P, 2))
        return relative_error(gemv(x, weights[0], expert, out)[some], gemv_reference(x[some], weights[0], expert[some]))

    return Work(calls, check, gemv_traffic(P, N, K), 1e-2)


def _matmul_work(shape: Shape, device: torch.device) -> Work:
    """torch's own bf16 product: the roof for arithmetic."""
    n = int(shape["size"])
    a, b, out = (
        tensor((n, n), 0, device),
        tensor((n, n), 1, device),
        torch.empty(n, n, dtype=torch.bfloat16, device=device),
    )

    def check() -> float:
        torch.matmul(a, b, out=out)
        return relative_error(out[:64], a[:64].double() @ b.double())

    return Work([lambda: torch.matmul(a, b, out=out)], check, Traffic(6 * n * n, 2 * n**3), 1e-2)


# (rows, columns) of Kimi K3: router, projections of one of 16 or 8 ranks, dense layer, head over 8, experts' latent
MORE_WEIGHTS = ((896, 7168), (2304, 7168), (4608, 7168), (8448, 7168), (20480, 7168), (3584, 7168), (7168, 1536))


def cases(suite: str) -> list[Case]:
    """The roofs come first: later shares are shares of them."""

    def case(kernel: str, work: Callable[[Shape, torch.device], Work], roof: str, **shape: int | str) -> Case:
        """A kernel of this file."""
        owner = "torch" if kernel in ("matmul", "host_copy") else "kvplan"
        return Case(kernel, shape, partial(work, shape), roof, owner)

    full = suite == "full"
    result = [case("move", _move_work, how, how=how, megabytes=4000) for how in ("inplace", "copy", "read", "write")]
    result.append(case("matmul", _matmul_work, "matmul", size=8192))
    result += [
        case("move", _move_work, how, how=how, megabytes=n)
        for n in ((4, 16, 64, 256) if full else (16,))
        for how in ("inplace", "read")
    ]
    for how in ("to_device", "to_host"):
        result += [case("host_copy", _host_work, "host", how=how, piece=n) for n in (SNAPSHOT, 2 << 20)]
    result += [
        case("weights", _gemv_work, "read", positions=1, experts=1, rows=n, columns=k)
        for n, k in ((16384, 7168), (2048, 7168), *(MORE_WEIGHTS if full else ()))
    ]
    if full:
        result += [
            case("experts", _gemv_work, "read", positions=n, experts=e, rows=rows, columns=columns)
            for e, rows, columns in ((64, 4096, 7168), (112, 6144, 3584), (112, 3584, 3072))
            for n in (1, 2, 8, 32, *((e,) if e > 64 else ()))
        ]
    return result
