"""MLA prefill as an engine runs it: causal attention at head sizes 192 and 128, through torch's library kernels.

No kernel of ours: the figure is what calibrates the time to first token.
"""

from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from kvplan_kernels.case import Case, Shape, Traffic, Work, relative_error, tensor

QK, V = 192, 128


def mla_prefill(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q, k [1,H,T,192], v [1,H,T,128] bf16; returns o [1,H,T,128]. torch picks the backend (cuDNN on Hopper)."""
    o: torch.Tensor = scaled_dot_product_attention(q, k, v, is_causal=True)
    return o


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    s = q.double() @ k.double().transpose(-1, -2) * QK**-0.5
    future = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1)
    o: torch.Tensor = s.masked_fill(future, float("-inf")).softmax(-1) @ v.double()
    return o


def traffic(T: int, H: int) -> Traffic:
    """q, k, v read and o written in bf16; the causal half of 2 (192 + 128) FLOPs a pair of tokens."""
    return Traffic(2 * T * H * (2 * QK + 2 * V), T * T * H * (QK + V))


def _work(shape: Shape, device: torch.device) -> Work:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    H, T = int(shape["heads"]), int(shape["tokens"])
    q, k, v = tensor((1, H, T, QK), 0, device), tensor((1, H, T, QK), 1, device), tensor((1, H, T, V), 2, device)
    backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

    def call() -> torch.Tensor:
        with sdpa_kernel(backends, set_priority=True):
            return mla_prefill(q, k, v)

    def check() -> float:
        few = slice(0, 512)
        return relative_error(call()[:, :1, few], reference(q[:, :1, few], k[:, :1, few], v[:, :1, few]))

    return Work([call], check, traffic(T, H), 1e-2)


def cases(suite: str) -> list[Case]:
    heads, lengths = ((12, 16, 96), (1024, 4096, 8192, 16384)) if suite == "full" else ((12, 96), (4096,))
    shapes: list[Shape] = [{"heads": h, "tokens": t} for h in heads for t in lengths]
    return [Case("mla_prefill", s, partial(_work, s), "matmul", owner="torch") for s in shapes]
