"""Matrix products at the shapes of projections and experts, through torch's library kernels; none of ours.

`gemm`: out[t, n] = x[t] . weight[n], one weight, bf16 or fp8 e4m3 (one scale a tensor, bf16 result).
`grouped_gemm`: the tokens of each of E experts, sorted by expert, against that expert's weight; bf16.
The weights are rotated, so that a call reads them from device memory, as a layer of a model does.
"""

from collections.abc import Callable
from functools import partial

import torch

from kvplan_kernels.case import Case, Shape, Traffic, Work, buffers_for, relative_error, tensor

FP8 = torch.float8_e4m3fn


def gemm(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """x [T,K] and weight [N,K], both bf16 or both fp8; out [T,N] bf16.

    fp8 alone: K and N are multiples of 16, and `scale` (fp32, one value) multiplies both.
    """
    if x.dtype == FP8:
        return torch._scaled_mm(x, weight.t(), scale, scale, out_dtype=torch.bfloat16, out=out)
    return torch.mm(x, weight.t(), out=out)


def grouped_gemm(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """x [T,K] sorted by expert, weight [E,N,K], ends [E] int32: where each expert's tokens end; returns [T,N] bf16."""
    result: torch.Tensor = torch._grouped_mm(x, weight.transpose(1, 2), offs=ends)
    return result


def traffic(T: int, N: int, K: int, element_bytes: int, experts: int = 1) -> Traffic:
    """Weights and x read once, out written in bf16."""
    return Traffic(element_bytes * (experts * N * K + T * K) + 2 * T * N, 2 * T * N * K)


def _work(shape: Shape, device: torch.device) -> Work:
    T, N, K = (int(shape[x]) for x in ("tokens", "rows", "columns"))
    dtype = FP8 if shape["format"] == "fp8" else torch.bfloat16
    count = buffers_for(N * K * dtype.itemsize, most=64)
    weights = [tensor((N, K), n, device).to(dtype) for n in range(count)]
    x, out = tensor((T, K), 99, device).to(dtype), torch.empty(T, N, dtype=torch.bfloat16, device=device)
    one = torch.ones((), device=device)

    def check() -> float:
        some = torch.linspace(0, T - 1, min(T, 32), device=device).long()
        got = gemm(x, weights[0], out.fill_(float("nan")), one)[some]
        return relative_error(got, x[some].double() @ weights[0].double().t())

    calls: list[Callable[[], object]] = [partial(gemm, x, w, out, one) for w in weights]
    return Work(calls, check, traffic(T, N, K, dtype.itemsize), 1e-2)


def _grouped_work(shape: Shape, device: torch.device) -> Work:
    E, each, N, K = (int(shape[x]) for x in ("experts", "tokens_each", "rows", "columns"))
    count = buffers_for(2 * E * N * K, most=8)
    weights = [tensor((E, N, K), n, device) for n in range(count)]
    x = tensor((E * each, K), 99, device)
    ends = torch.arange(1, E + 1, device=device, dtype=torch.int32) * each

    def check() -> float:
        got, last = grouped_gemm(x, weights[0], ends), x[-each:].double() @ weights[0][-1].double().t()
        first = x[:each].double() @ weights[0][0].double().t()
        return max(relative_error(got[:each], first), relative_error(got[-each:], last))

    calls: list[Callable[[], object]] = [partial(grouped_gemm, x, w, ends) for w in weights]
    return Work(calls, check, traffic(E * each, N, K, 2, E), 1e-2)


def case(kernel: str, **shape: int | str) -> Case:
    roof = "matmul_fp8" if shape.get("format") == "fp8" else "matmul"
    return Case(kernel, shape, partial(_grouped_work if kernel == "grouped_gemm" else _work, shape), roof, "torch")


# (rows, columns): Kimi K3's q, k, v and output projection over 8 ranks and whole, its head over 8; Kimi Linear's
PROJECTIONS = ((4608, 7168), (7168, 1536), (36864, 7168), (7168, 12288), (20480, 7168), (12288, 2304), (2304, 4096))
EXPERTS = ((112, 6144, 3584), (32, 2048, 2304))  # (experts of one of 8 ranks, gate and up rows, columns)


def cases(suite: str) -> list[Case]:
    """Decode batches and prefill lengths; the quick suite takes three."""
    if suite != "full":
        return [case("gemm", tokens=n, rows=4608, columns=7168, format="bf16") for n in (1, 128, 8192)]
    tokens = (1, 4, 16, 64, 256, 1024, 4096, 16384, 32768)
    result = [
        case("gemm", tokens=t, rows=n, columns=k, format=f)
        for f, shapes in (("bf16", PROJECTIONS), ("fp8", PROJECTIONS[:4]))
        for n, k in shapes
        for t in tokens
    ]
    return result + [
        case("grouped_gemm", experts=e, tokens_each=t, rows=n, columns=k)
        for e, n, k in EXPERTS
        for t in (1, 8, 64, 512)
    ]
