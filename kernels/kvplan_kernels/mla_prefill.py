"""MLA prefill as an engine runs it: attention at head sizes 192 and 128, through torch's library kernels.

`mla_prefill`: the new tokens among themselves, causal. `mla_prefix`: the new tokens on a cached prefix that all of them
see; an engine joins the two by their log-sum-exp. No kernel of ours: the figures calibrate the time to first token.
"""

from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from kvplan_kernels.case import Case, Shape, Traffic, Work, relative_error, tensor

QK, V = 192, 128


def mla_prefill(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True) -> torch.Tensor:
    """q [1,H,T,192], k [1,H,P,192], v [1,H,P,128] bf16, P = T if causal; returns o [1,H,T,128].

    torch picks the backend (cuDNN on Hopper).
    """
    o: torch.Tensor = scaled_dot_product_attention(q, k, v, is_causal=causal)
    return o


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True) -> torch.Tensor:
    s = q.double() @ k.double().transpose(-1, -2) * QK**-0.5
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), float("-inf"))
    o: torch.Tensor = s.softmax(-1) @ v.double()
    return o


def traffic(T: int, H: int, prefix: int = 0) -> Traffic:
    """q, k, v read and o written in bf16; 2 (192 + 128) FLOPs a pair of tokens, of which the causal form has half."""
    pairs = 2 * T * prefix if prefix else T * T
    return Traffic(2 * H * (T + (prefix or T)) * (QK + V), pairs * H * (QK + V))


def _work(shape: Shape, device: torch.device) -> Work:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    H, T, prefix = int(shape["heads"]), int(shape["tokens"]), int(shape.get("prefix", 0))
    P, causal = prefix or T, not prefix
    q, k, v = tensor((1, H, T, QK), 0, device), tensor((1, H, P, QK), 1, device), tensor((1, H, P, V), 2, device)
    backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

    def call() -> torch.Tensor:
        with sdpa_kernel(backends, set_priority=True):
            return mla_prefill(q, k, v, causal)

    def check() -> float:
        few, seen = slice(0, 512), slice(0, 512 if causal else None)
        want = reference(q[:, :1, few], k[:, :1, seen], v[:, :1, seen], causal)
        return relative_error(call()[:, :1, few], want)

    return Work([call], check, traffic(T, H, prefix), 1e-2)


def case(**shape: int | str) -> Case:
    """With `prefix` (tokens) in the shape, attention on a cached prefix."""
    return Case("mla_prefix" if "prefix" in shape else "mla_prefill", shape, partial(_work, shape), "matmul", "torch")


def cases(suite: str) -> list[Case]:
    """Prompts and chunks on the heads of a rank; 96 heads stop at 64K tokens, where a call takes a quarter second."""
    if suite != "full":
        return [case(heads=h, tokens=4096) for h in (12, 96)]
    lengths = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
    result = [case(heads=h, tokens=t) for h in (12, 24, 48, 96) for t in lengths]
    result += [case(heads=h, tokens=t) for h in (4, 16, 32) for t in (1024, 4096, 16384)]
    result.append(case(heads=12, tokens=131072))
    chunks = [(t, p) for t in (256, 1024, 2048, 4096, 8192) for p in (4096, 32768, 262144) if t * p < 1 << 31]
    return result + [case(heads=h, tokens=t, prefix=p) for h in (12, 96) for t, p in chunks]
