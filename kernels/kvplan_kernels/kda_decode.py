"""KDA decode: one token a sequence, the state updated in place in a pool of slots.

Per sequence and head, state S in R^{V x K}, decayed per key channel, then corrected by the delta rule, then read:

    q' = scale q / sqrt(|q|^2 + 1e-6)      k' = k / sqrt(|k|^2 + 1e-6)      beta = sigmoid(b)
    a  = -exp(A_log) softplus(g + dt_bias)              or, bounded,  lower_bound sigmoid(exp(A_log) (g + dt_bias))
    S <- S diag(exp a);   u = beta (v - S k');   S <- S + u k'^T;   o = S q'

The kernel reads the tile once: with the decayed S, o = S q' + u (k'.q'). Equations: arXiv 2510.26692, section 3.
"""

from functools import partial

import torch
import triton
import triton.language as tl

from kvplan_kernels.case import Case, Shape, Traffic, Work, buffers_for, relative_error, tensor

EPS = 1e-6
Layout = str  # "vk": [slot, head, V, K], what vLLM, SGLang and FlashKDA keep; "kv": [slot, head, K, V], fla's default


@triton.jit
def log_decay(g, A_log, dt_bias, lower_bound, BOUNDED: tl.constexpr):
    """The gate a <= 0 from its logit; fp32 in and out. No overflow for any finite logit."""
    x = g + dt_bias
    if BOUNDED:
        a = lower_bound / (1.0 + tl.exp(-tl.exp(A_log) * x))
    else:
        a = -tl.exp(A_log) * tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))
    return a


@triton.jit
def _step(
    q, k, v, g, b, A_log, dt_bias, state, slots, out,
    stride_q, stride_k, stride_v, stride_g, scale, lower_bound,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr,
    TILES: tl.constexpr, STAGES: tl.constexpr, BOUNDED: tl.constexpr, V_FIRST: tl.constexpr,
):  # fmt: skip
    """Program (tile of BV * TILES value rows, head, sequence)."""
    head, seq = tl.program_id(1), tl.program_id(2).to(tl.int64)
    slot = tl.load(slots + seq).to(tl.int64)
    c = tl.arange(0, K)
    at = head * K + c
    kx = tl.load(k + seq * stride_k + at).to(tl.float32)
    qx = tl.load(q + seq * stride_q + at).to(tl.float32)
    gx = tl.load(g + seq * stride_g + at).to(tl.float32)
    rate, bias = tl.load(A_log + head).to(tl.float32), tl.load(dt_bias + at).to(tl.float32)
    beta = 1.0 / (1.0 + tl.exp(-tl.load(b + seq * H + head).to(tl.float32)))
    decay = tl.exp(log_decay(gx, rate, bias, lower_bound, BOUNDED))
    kx *= tl.rsqrt(tl.sum(kx * kx, 0) + 1e-6)
    qx *= scale * tl.rsqrt(tl.sum(qx * qx, 0) + 1e-6)
    kq = tl.sum(kx * qx, 0)
    base = state + (slot * H + head) * (K * V)
    for i in tl.range(0, TILES, num_stages=STAGES):
        r = (tl.program_id(0) * TILES + i) * BV + tl.arange(0, BV)
        live = slot >= tl.zeros((BV,), tl.int64)  # a mask, not a branch: the token's loads need not wait for the slot
        tile = base + (r[:, None] * K + c[None, :] if V_FIRST else c[None, :] * V + r[:, None])
        vx = tl.load(v + seq * stride_v + head * V + r).to(tl.float32)
        s = tl.load(tile, mask=live[:, None], other=0.0).to(tl.float32) * decay[None, :]
        u = beta * (vx - tl.sum(s * kx[None, :], 1))
        o = tl.sum(s * qx[None, :], 1) + u * kq
        tl.store(tile, (s + u[:, None] * kx[None, :]).to(state.dtype.element_ty), mask=live[:, None])
        tl.store(out + (seq * H + head) * V + r, o.to(out.dtype.element_ty), mask=live)


def configuration(rows: int, dtype: torch.dtype, layout: Layout) -> dict[str, int]:
    """Tile for `rows` = heads x sequences. Many tiny one-warp programs beat large tiles by 10 to 30 %."""
    if layout == "kv":
        return {"BV": 64, "TILES": 1, "STAGES": 1, "num_warps": 4}
    if dtype == torch.float32 or rows < 48:
        return {"BV": 4, "TILES": 1, "STAGES": 1, "num_warps": 1}
    if rows < 3000:
        return {"BV": 16, "TILES": 1, "STAGES": 1, "num_warps": 1}
    return {"BV": 16, "TILES": 2, "STAGES": 2, "num_warps": 1}


def kda_decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, b: torch.Tensor,
    state: torch.Tensor, slots: torch.Tensor, A_log: torch.Tensor, dt_bias: torch.Tensor,
    *, lower_bound: float | None = None, scale: float | None = None, layout: Layout = "vk",
    out: torch.Tensor | None = None, config: dict[str, int] | None = None,
) -> torch.Tensor:  # fmt: skip
    """One decode step; returns o [B,H,V] in q's dtype and updates `state` in place.

    q, k, g [B,H,K], v [B,H,V]: heads and channels contiguous, any stride between tokens. b [B,H] contiguous.
    state [slots,H,V,K] or [slots,H,K,V], fp32 or bf16, contiguous. slots [B] int: a negative slot is padding, for
    which neither state nor output is touched; the others must differ. A_log [H] (zeros where a model has none),
    dt_bias [H,K], fp32. K is a power of two, V a multiple of 16. Without `lower_bound` the gate is the softplus one.
    """
    B, H, K = q.shape
    V = v.shape[-1]
    out = torch.empty(B, H, V, dtype=q.dtype, device=q.device) if out is None else out
    tile = dict(config or configuration(B * H, state.dtype, layout))
    grid = (V // (tile["BV"] * tile["TILES"]), H, B)
    if B:
        _step[grid](
            q, k, v, g, b, A_log, dt_bias, state, slots, out,
            q.stride(0), k.stride(0), v.stride(0), g.stride(0),
            K**-0.5 if scale is None else scale, lower_bound or 0.0,
            H=H, K=K, V=V, BOUNDED=lower_bound is not None, V_FIRST=layout == "vk", **tile,
        )  # fmt: skip
    return out


def decay_reference(
    g: torch.Tensor, A_log: torch.Tensor, dt_bias: torch.Tensor, lower_bound: float | None
) -> torch.Tensor:
    """Log decay of g [...,H,K]; softplus is the identity above 20, as everywhere."""
    x = g.double() + dt_bias.double()
    rate = A_log.double().exp()[:, None]
    if lower_bound is not None:
        return lower_bound * torch.sigmoid(rate * x)
    return -rate * torch.nn.functional.softplus(x, threshold=20.0)


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, b: torch.Tensor, state: torch.Tensor,
    A_log: torch.Tensor, dt_bias: torch.Tensor, lower_bound: float | None = None, scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The equations above in fp64 on a dense state [B,H,V,K]; returns o [B,H,V] and the new state."""
    q, k, v = q.double(), k.double(), v.double()
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale) * (q.square().sum(-1, keepdim=True) + EPS).rsqrt()
    k = k * (k.square().sum(-1, keepdim=True) + EPS).rsqrt()
    s = state.double() * decay_reference(g, A_log, dt_bias, lower_bound).exp()[..., None, :]
    u = torch.sigmoid(b.double())[..., None] * (v - torch.einsum("bhvk,bhk->bhv", s, k))
    s = s + u[..., :, None] * k[..., None, :]
    return torch.einsum("bhvk,bhk->bhv", s, q), s


def traffic(B: int, H: int, K: int, V: int, state_bytes: int) -> Traffic:
    """State read and written, q, k, v, g read and o written in bf16, b; 7 FLOPs an element of the state."""
    token = 2 * (3 * K + 2 * V) + 2
    return Traffic(B * H * (2 * K * V * state_bytes + token), 7 * B * H * K * V)


def _work(shape: Shape, device: torch.device) -> Work:
    H, B, layout, K = int(shape["heads"]), int(shape["batch"]), str(shape["layout"]), 128
    dtype = torch.float32 if shape["state"] == "fp32" else torch.bfloat16
    q, k, v, g = (tensor((B, H, K), n, device) for n in range(4))
    b, A_log, dt_bias = tensor((B, H), 4, device), torch.rand(H, device=device), torch.rand(H, K, device=device)
    work = traffic(B, H, K, K, dtype.itemsize)
    pools = [torch.randn(B, H, K, K, device=device).to(dtype) for _ in range(buffers_for(work.bytes))]
    slots, out = torch.randperm(B, device=device).int(), torch.empty(B, H, K, dtype=q.dtype, device=device)

    def call(pool: torch.Tensor) -> torch.Tensor:
        return kda_decode(q, k, v, g, b, pool, slots, A_log, dt_bias, lower_bound=-5.0, layout=layout, out=out)

    def check() -> float:
        some = slots[: min(B, 4)].long()
        before = pools[0][some] if layout == "vk" else pools[0][some].transpose(2, 3)
        few = slice(0, len(some))
        want = reference(q[few], k[few], v[few], g[few], b[few], before.clone(), A_log, dt_bias, -5.0)
        got = call(pools[0])[few]
        after = pools[0][some] if layout == "vk" else pools[0][some].transpose(2, 3)
        return max(relative_error(got, want[0]), relative_error(after, want[1]))

    return Work([partial(call, p) for p in pools], check, work, 1e-2)


def case(**shape: int | str) -> Case:
    return Case("kda_decode", shape, partial(_work, shape), "inplace")


def cases(suite: str) -> list[Case]:
    """Heads of a rank: Kimi K3 (96) and Kimi Linear (32) at TP 1 to 16."""
    if suite == "full":
        heads, batches = [96, 48, 24, 12, 6, 32, 16, 8, 4, 2], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    else:
        heads, batches = [96, 12], [1, 8, 64, 256]
    shapes: list[Shape] = [
        {"heads": h, "batch": n, "state": s, "layout": "vk"} for s in ("fp32", "bf16") for h in heads for n in batches
    ]
    shapes += [{"heads": 96, "batch": n, "state": "fp32", "layout": "kv"} for n in ((1, 64) if suite == "full" else ())]
    return [case(**s) for s in shapes]
