"""Short convolution at decode: one token a sequence through a causal depthwise filter, then SiLU.

    y[d] = silu(sum_{j<W} weight[d, j] x[t - W + 1 + j, d])

The last W - 1 inputs of each sequence live in a pool of slots [slots, W-1, D] (bf16) and are shifted in place.
"""

from functools import partial

import torch
import triton
import triton.language as tl

from kvplan_kernels.case import Case, Shape, Traffic, Work, buffers_for, relative_error, tensor


@triton.jit
def _conv_step(x, weight, state, slots, out, D, stride_x, W: tl.constexpr, BD: tl.constexpr):
    """Program (block of BD channels, sequence)."""
    seq = tl.program_id(1).to(tl.int64)
    slot = tl.load(slots + seq).to(tl.int64)
    if slot < 0:
        return
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    live = d < D
    tail = state + slot * ((W - 1) * D) + d
    new = tl.load(x + seq * stride_x + d, mask=live, other=0.0).to(tl.float32)
    y = new * tl.load(weight + d * W + (W - 1), mask=live, other=0.0).to(tl.float32)
    for j in tl.static_range(W - 1):
        old = tl.load(tail + j * D, mask=live, other=0.0).to(tl.float32)
        y += old * tl.load(weight + d * W + j, mask=live, other=0.0).to(tl.float32)
        if j > 0:
            tl.store(tail + (j - 1) * D, old.to(state.dtype.element_ty), mask=live)
    tl.store(tail + (W - 2) * D, new.to(state.dtype.element_ty), mask=live)
    tl.store(out + seq * D + d, (y / (1.0 + tl.exp(-y))).to(out.dtype.element_ty), mask=live)


def conv_step(
    x: torch.Tensor, weight: torch.Tensor, state: torch.Tensor, slots: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """x [B,D] (any stride between tokens), weight [D,W], state [slots,W-1,D] updated in place; returns y [B,D].

    W >= 2. A negative slot is padding: neither its state nor its output is touched.
    """
    B, D = x.shape
    out = torch.empty(B, D, dtype=x.dtype, device=x.device) if out is None else out
    if B:
        grid = (triton.cdiv(D, 256), B)
        _conv_step[grid](x, weight, state, slots, out, D, x.stride(0), W=weight.shape[1], BD=256, num_warps=2)
    return out


def reference(x: torch.Tensor, weight: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The equation in fp64 on a dense state [B,W-1,D]; returns y [B,D] and the shifted state."""
    window = torch.cat([state.double(), x.double()[:, None]], dim=1)
    y = torch.einsum("bwd,dw->bd", window, weight.double())
    return torch.nn.functional.silu(y), window[:, 1:]


def traffic(B: int, D: int, W: int) -> Traffic:
    """Tail read and written, x read, y written, all bf16, and the filter once."""
    return Traffic(2 * (B * D * (2 * (W - 1) + 2) + D * W), 2 * B * D * W + 4 * B * D)


def _work(shape: Shape, device: torch.device) -> Work:
    B, D, W = int(shape["batch"]), 3 * 128 * int(shape["heads"]), 4
    x, weight, work = tensor((B, D), 0, device), tensor((D, W), 1, device), traffic(B, D, W)
    pools = [tensor((B, W - 1, D), n, device) for n in range(buffers_for(work.bytes))]
    slots, out = torch.randperm(B, device=device).int(), torch.empty(B, D, dtype=x.dtype, device=device)

    def check() -> float:
        before = pools[0][slots.long()].clone()
        want = reference(x, weight, before)
        got = conv_step(x, weight, pools[0], slots, out)
        return max(relative_error(got, want[0]), relative_error(pools[0][slots.long()], want[1]))

    return Work([partial(conv_step, x, weight, p, slots, out) for p in pools], check, work, 1e-2)


def case(**shape: int | str) -> Case:
    return Case("short_conv", shape, partial(_work, shape), "inplace")


def cases(suite: str) -> list[Case]:
    """q, k and v of a rank together: 3 x 128 channels a head, width 4."""
    heads, batches = ((96, 24, 12, 32, 4), (1, 4, 16, 64, 256, 512)) if suite == "full" else ((12,), (1, 64))
    return [case(heads=h, batch=n) for h in heads for n in batches]
