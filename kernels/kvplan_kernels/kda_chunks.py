"""The two kernels of KDA prefill; `kda_prefill` holds the equations, what calls them and their reference."""

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

# log2 units: SHIFT centres the factors of a half chunk, LIMIT is the most it may decay by, FASTEST the most of a token
SHIFT, LIMIT, FASTEST = tl.constexpr(115.0), tl.constexpr(232.0), tl.constexpr(-120.0)
LOG2E = tl.constexpr(1.4426950408889634)
K_SCALE, Q_SCALE = tl.constexpr(1 / 64), tl.constexpr(1 / 256)  # keep products of unnormalised k and q in fp16


@triton.jit
def _exp2(x):
    """2^x with results below 2^-126 flushed to zero: one instruction where tl.exp2 takes four to keep them."""
    if INTERPRETED:
        y = tl.exp2(x)
    else:
        y = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return y


@triton.jit
def _sigmoid(x):
    """1 / (1 + exp(-x)) in four instructions."""
    e = 1.0 + _exp2(x * -1.4426950408889634)
    if INTERPRETED:
        y = 1.0 / e
    else:
        y = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [e], tl.float32, is_pure=True, pack=1)
    return y


@triton.jit
def _log2_decay(x, rate, lower_bound, BOUNDED: tl.constexpr):
    """512 times the gate in log2 units, from the logit with its bias; fits fp16."""
    if BOUNDED:
        a = _sigmoid(rate * x) * (lower_bound * LOG2E * 512)
    else:
        softplus = tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))
        a = tl.maximum(softplus * (-rate * LOG2E), FASTEST) * 512
    return a


@triton.jit
def _dot_nt(x, y):
    """x [64,C] times y [64,C] transposed."""
    return tl.dot(x, tl.trans(y))


@triton.jit
def _pairs(x, inside, mixed, total, first):
    """total += x times the columns, transposed: the first half's rows meet `inside`, the second half's `mixed`."""
    total = tl.dot(tl.where(first, x, 0.0).to(tl.bfloat16), tl.trans(inside), total)
    return tl.dot(tl.where(first, 0.0, x).to(tl.bfloat16), tl.trans(mixed), total)


@triton.jit
def _exact(x, k, P, i, j):
    """The pairs inside each half, one column at a time, for gates that decay too fast to centre."""
    total = tl.zeros((64, 64), tl.float32)
    for column in range(64):
        pick = i == column
        k_j, P_j = tl.sum(tl.where(pick, k, 0.0), 0)[None, :], tl.sum(tl.where(pick, P, 0.0), 0)[None, :]
        value = tl.sum(x * k_j * tl.exp2(tl.minimum(P - P_j, 0.0)), 1)[:, None]
        total = tl.where((j == column) & (i // 32 == column // 32), value, total)
    return total


@triton.jit
def _merge(X, L, SIZE: tl.constexpr):
    """Join pairs of inverted diagonal blocks of SIZE rows: X <- X - X L' X, L' the blocks between the two of a pair.

    Entries of L and X stay within [-2, 2], so fp16 serves.
    """
    i, j = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    between = (i ^ j) // SIZE == 1  # L is strictly lower, so only the blocks under the diagonal remain
    X16 = X.to(tl.float16)
    T = tl.dot(X16, tl.where(between, L, 0.0).to(tl.float16))
    return X - tl.dot(T.to(tl.float16), X16)


@triton.jit
def _invert(L):
    """(I + L)^-1 for a strictly lower L [64,64]."""
    i, j = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    X = tl.where(i == j, 1.0, 0.0) - tl.where((i ^ j) == 1, L, 0.0)
    X = _merge(_merge(X, L, 2), L, 4)
    return _merge(_merge(_merge(X, L, 8), L, 16), L, 32)


@triton.jit
def prepare_chunks(
    q, k, g, b, A_log, dt_bias, chunk_start, chunk_tokens, kw, qg, kg, inverse, aqk, k_size, q_norm, decay,
    stride_q, stride_k, stride_g, chunk0, scale, lower_bound,
    H: tl.constexpr, K: tl.constexpr, C: tl.constexpr, BOUNDED: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Program (head, chunk of the slab), C channels at a time. Rows past the chunk's tokens come out as zeros."""
    head, chunk = tl.program_id(0), tl.program_id(1)
    start = tl.load(chunk_start + chunk0 + chunk).to(tl.int64)
    tokens = tl.load(chunk_tokens + chunk0 + chunk)
    out = (chunk.to(tl.int64) * H + head) * 64
    q, k, g = q + start * stride_q + head * K, k + start * stride_k + head * K, g + start * stride_g + head * K
    kw, qg, kg, decay, dt_bias = kw + out * K, qg + out * K, kg + out * K, decay + out // 64 * K, dt_bias + head * K
    i, j = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    live, first = i < tokens, i < 32
    rate = tl.exp(tl.load(A_log + head).to(tl.float32))
    # sums of log decays, as exact products with 0 and 2^-9: in this half up to a row, after it, in the other half
    here = i // 32 == j // 32
    upto = tl.where(here & (i >= j), 1 / 512, 0.0).to(tl.float16)
    past = tl.where(here & (i < j), 1 / 512, 0.0).to(tl.float16)
    across = tl.where(here, 0.0, 1 / 512).to(tl.float16)
    kk, qk = tl.zeros((64, 64), tl.float32), tl.zeros((64, 64), tl.float32)
    k2, q2 = tl.zeros((64,), tl.float32), tl.zeros((64,), tl.float32)
    for c0 in range(0, K, C):
        c = c0 + tl.arange(0, C)[None, :]
        x = tl.load(g + i * stride_g + c, mask=live, other=0.0).to(tl.float32) + tl.load(dt_bias + c).to(tl.float32)
        a = tl.where(live, _log2_decay(x, rate, lower_bound, BOUNDED), 0.0).to(tl.float16)
        P = tl.dot(upto, a)
        row, up, other = _exp2(P + SHIFT), _exp2(tl.dot(past, a)), _exp2(tl.dot(across, a))
        kx = tl.load(k + i * stride_k + c, mask=live, other=0.0).to(tl.float32)
        qx = tl.load(q + i * stride_q + c, mask=live, other=0.0).to(tl.float32)
        k2, q2 = k2 + tl.sum(kx * kx, 1), q2 + tl.sum(qx * qx, 1)
        k_up = kx * up
        whole = row * tl.where(first, 1.0, other) * tl.exp2(-SHIFT)
        tl.store(kw + i * K + c, (kx * whole * K_SCALE).to(tl.float16))
        tl.store(qg + i * K + c, (qx * whole * Q_SCALE).to(tl.float16))
        tl.store(kg + i * K + c, (k_up * tl.where(first, other, 1.0)).to(tl.float16))
        tl.store(decay + c + 0 * i, whole, mask=i == 63)
        inside = kx * _exp2(-(P + SHIFT))
        if EXACT:
            steep = tl.min(tl.min(P, 1), 0) < -LIMIT
            inside = tl.where(steep, 0.0, inside)
            if steep:
                kk += _exact(kx, kx, P, i, j)
                qk += _exact(qx, kx, P, i, j)
        mixed = tl.where(first, k_up * tl.exp2(-SHIFT), inside).to(tl.bfloat16)
        inside = inside.to(tl.bfloat16)
        kk = _pairs(kx * row, inside, mixed, kk, first)
        qk = _pairs(qx * row, inside, mixed, qk, first)
    i1 = tl.arange(0, 64)
    k1 = tl.rsqrt(k2 + 1e-6)
    tl.store(k_size + out + i1, (1.0 / k1) * K_SCALE)
    tl.store(q_norm + out + i1, tl.rsqrt(q2 + 1e-6) * (scale * (1.0 / Q_SCALE)))
    tl.store(aqk + (out + i) * 64 + j, (tl.where(i >= j, qk, 0.0) * Q_SCALE).to(tl.float16))
    beta = _sigmoid(tl.load(b + (start + i1) * H + head, mask=i1 < tokens, other=0.0).to(tl.float32))
    beta = tl.where(i1 < tokens, beta, 0.0) * k1
    X = _invert(tl.where(i > j, kk, 0.0) * beta[:, None] * k1[None, :])
    tl.store(inverse + (out + i) * 64 + j, (X * (k1 * (1.0 / K_SCALE))[:, None] * beta[None, :]).to(tl.float16))


@triton.jit
def scan_chunks(
    v, kw, qg, kg, inverse, aqk, k_size, q_norm, decay, out, state, slots, resume,
    first_chunk, chunk_start, chunk_tokens, snapshot, chunk0, chunk1,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr,
    LEFT: tl.constexpr, V_FIRST: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Program (slice of BV value rows, head, sequence): this sequence's chunks of the slab [chunk0, chunk1).

    LEFT keeps S as [BV,K], and S and n as left operands in registers, every right operand as it lies in memory: for
    wide slices. Otherwise S is [K,BV] and the tokens are on the left: for slices too narrow to fill 64 rows.
    """
    head, seq = tl.program_id(1), tl.program_id(2)
    slot = tl.load(slots + seq).to(tl.int64)
    first, last = tl.load(first_chunk + seq), tl.load(first_chunk + seq + 1)
    lo, hi = tl.maximum(first, chunk0), tl.minimum(last, chunk1)
    if slot < 0:
        return
    if (lo >= hi) & ((first < last) | (chunk0 > 0)):
        return
    v0 = tl.program_id(0) * BV
    r, c, t = v0 + tl.arange(0, BV), tl.arange(0, K), tl.arange(0, 64)
    if LEFT:
        tile = head * K * V + (r[:, None] * K + c[None, :] if V_FIRST else c[None, :] * V + r[:, None])
        S = tl.zeros((BV, K), tl.float32)
    else:
        tile = head * K * V + (r[None, :] * K + c[:, None] if V_FIRST else c[:, None] * V + r[None, :])
        S = tl.zeros((K, BV), tl.float32)
    if (lo > first) | (tl.load(resume + seq) != 0):
        S = tl.load(state + slot * (H * K * V) + tile).to(tl.float32)
    row = tl.load(chunk_start + lo, mask=lo < hi, other=0)
    tokens = tl.load(chunk_tokens + lo, mask=lo < hi, other=0)
    for chunk in tl.range(lo, hi, num_stages=STAGES):
        at = ((chunk - chunk0) * H + head) * 64
        keep = tl.load(snapshot + chunk).to(tl.int64)
        following = tl.load(chunk_tokens + chunk + 1, mask=chunk + 1 < hi, other=0)
        shrink = tl.load(decay + at // 64 * K + c)
        live = t < tokens
        size = tl.where(live, tl.load(k_size + at + t), 0.0)[:, None]
        norm = tl.load(q_norm + at + t)[:, None]
        to = out + row.to(tl.int64) * (H * V) + (t[:, None] * (H * V) + head * V + r[None, :])
        S16 = S.to(tl.float16)
        vx = tl.where(live[:, None], v.load([row, head * V + v0]).to(tl.float32) * size, 0.0)
        if LEFT:
            n = tl.trans(vx.to(tl.float16)).to(tl.float32) - _dot_nt(S16, kw.load([at, 0]))
            n16 = _dot_nt(n.to(tl.float16), inverse.load([at, 0])).to(tl.float16)
            o = tl.dot(n16, tl.trans(aqk.load([at, 0])), _dot_nt(S16, qg.load([at, 0])))
            S = tl.dot(n16, kg.load([at, 0]), S * shrink[None, :])
            o = tl.trans(o.to(tl.float16)).to(tl.float32)
        else:
            n = vx - tl.dot(kw.load([at, 0]), S16)
            n16 = tl.dot(inverse.load([at, 0]), n.to(tl.float16)).to(tl.float16)
            o = tl.dot(aqk.load([at, 0]), n16, tl.dot(qg.load([at, 0]), S16))
            S = tl.dot(tl.trans(kg.load([at, 0])), n16, S * shrink[:, None])
        tl.store(to, (o * norm).to(out.dtype.element_ty), mask=live[:, None])
        if keep >= 0:
            tl.store(state + keep * (H * K * V) + tile, S.to(state.dtype.element_ty))
        row, tokens = row + tokens, following
    tl.store(state + slot * (H * K * V) + tile, S.to(state.dtype.element_ty))
