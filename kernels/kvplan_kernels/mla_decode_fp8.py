"""MLA decode from an fp8 (e4m3) latent: the cache is read as pairs of bytes.

The value product wants a tile's columns where the score product wants its rows, and the hardware transposes on the way
from shared memory only what is 16 bits wide. So a token is 288 pairs here: pairs are loaded, pipelined and transposed
like any 16-bit tile, and are widened to fp16 (exact) in registers, just before they are multiplied:

    s = scale (q_even . even + q_odd . odd)         o_even = sum_t p even         o_odd = sum_t p odd

Whatever fp16 would lose is kept by powers of two: rows of q are scaled so that their largest value is near 2^14, and
probabilities by 2^15. Scores must stay below 2^24: a fused multiply-add is exact where the maximum is rounded, and
beyond that the two differ by more than an exponent can hold.
"""

import triton
import triton.language as tl

NOTHING = tl.constexpr(-1e30)  # running maximum before any token: finite, so that no difference is NaN
LIFT = tl.constexpr(15)  # p <= 1 is stored as p 2^15: fp16 then keeps weights down to 2^-39
IN_INTERPRETER = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def _widen(byte):
    """e4m3 in an int16 as fp16, for the interpreter, which has no assembly and whose own cast takes NaN for 480."""
    bits = ((byte & 128) << 8) | ((byte & 127) << 7)  # 2^-8 of the value
    return tl.where((byte & 127) == 127, float("nan"), bits.to(tl.float16, bitcast=True) * 256)


@triton.jit
def _halves(pairs):
    """The even (low byte) and the odd values of an int16 tile of pairs, as fp16."""
    if IN_INTERPRETER:
        return _widen(pairs & 255), _widen((pairs >> 8) & 255)
    else:  # noqa: RET505 (only one of the branches is compiled)
        return tl.inline_asm_elementwise(  # two pairs: bytes 0 2 1 3, then two at a time; Triton's own cast takes 4x
            "{ .reg .b32 sorted; .reg .b16 low, high; prmt.b32 sorted, $2, 0, 0x3120; mov.b32 {low, high}, sorted;"
            " cvt.rn.f16x2.e4m3x2 $0, low; cvt.rn.f16x2.e4m3x2 $1, high; }",
            "=r,=r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=2,
        )  # fmt: skip


@triton.jit
def _even_odd(x, R: tl.constexpr, D: tl.constexpr):
    """Columns 0, 2, ... and 1, 3, ... of [R,D], as fp16."""
    return tl.split(tl.reshape(x.to(tl.float16), (R, D // 2, 2)))


@triton.jit
def _tile(c, e, q0, q1, e0, e1, acc0, acc1, peak, total, scale, seen, MASK: tl.constexpr):
    """Online softmax, base 2, over a tile of N tokens: pairs c [N,256] and e [N,32]; scores [R,N]."""
    k0, k1 = _halves(tl.trans(c))
    x0, x1 = _halves(tl.trans(e))
    s = tl.dot(q1, k1, tl.dot(q0, k0, tl.dot(e1, x1, tl.dot(e0, x0)))) * scale[:, None]
    if MASK:
        s = tl.where(seen, s, float("-inf"))
    new = tl.maximum(peak, tl.max(s, 1))
    p = tl.exp2(s - (new - LIFT)[:, None])
    alpha = tl.exp2(peak - new)
    v0, v1 = _halves(c)
    acc0 = tl.dot(p.to(tl.float16), v0, acc0 * alpha[:, None])
    acc1 = tl.dot(p.to(tl.float16), v1, acc1 * alpha[:, None])
    return acc0, acc1, new, total * alpha + tl.sum(p, 1)


@triton.jit
def split(
    q, cache, latent_map, rope_map, table, lengths, item_seq, item_begin, item_end, item_part, part_out, part_lse, out,
    row0, row1, stride_table, scale, kv_scale, ROWS: tl.constexpr, H: tl.constexpr, R: tl.constexpr, N: tl.constexpr,
    PAGE: tl.constexpr, SWAP: tl.constexpr, TMA: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """`mla_decode._split` for a cache of pairs, [tokens,288] int16: the same arguments, rows on the left only."""
    tl.static_assert(not SWAP)
    item = tl.program_id(1)
    seq = tl.load(item_seq + item).to(tl.int64)
    begin, end, part = tl.load(item_begin + item), tl.load(item_end + item), tl.load(item_part + item).to(tl.int64)
    length = tl.load(lengths + seq)
    pages = table + seq * stride_table
    r = row0 + tl.program_id(0) * R + tl.arange(0, R)
    limit, live = length - (ROWS // H - 1) + r // H, (r < row1)[:, None]
    d, c, x, t = tl.arange(0, 512), tl.arange(0, 256), tl.arange(0, 32), tl.arange(0, N)
    at_q = q + (seq * ROWS + r[:, None]) * 576
    qc = tl.load(at_q + d[None, :], mask=live, other=0.0).to(tl.float32)
    qe = tl.load(at_q + 512 + tl.arange(0, 64)[None, :], mask=live, other=0.0).to(tl.float32)

    # power of two near the row's largest value, by its exponent bits; 2^14 above it, so that the quotient stays normal
    size = tl.maximum(tl.max(tl.abs(qc), 1), tl.max(tl.abs(qe), 1))
    exponent = tl.maximum(size.to(tl.int32, bitcast=True) >> 23, 15)
    shrink = ((268 - exponent) << 23).to(tl.float32, bitcast=True)[:, None]
    scale *= ((exponent - 14) << 23).to(tl.float32, bitcast=True)
    q0, q1 = _even_odd(qc * shrink, R, 512)
    e0, e1 = _even_odd(qe * shrink, R, 64)
    acc0, acc1 = tl.zeros((R, 256), tl.float32), tl.zeros((R, 256), tl.float32)
    peak, total = tl.full((R,), NOTHING, tl.float32), tl.zeros((R,), tl.float32)

    # tiles that every row sees whole need no mask; the page of the next tile is looked up one tile ahead
    whole = tl.maximum(begin, tl.minimum(end, (length - (ROWS // H - 1)) // N * N))
    page = tl.load(pages + begin // PAGE, mask=begin < end, other=0)
    for n in tl.range(begin, whole, N, num_stages=STAGES):
        row = page * PAGE + n % PAGE
        page = tl.load(pages + (n + N) // PAGE, mask=n + N < end, other=0)
        if TMA:
            lat, rope = latent_map.load([row, 0]), rope_map.load([row, 256])
        else:
            at = cache + row.to(tl.int64) * 288 + t[:, None] * 288
            lat, rope = tl.load(at + c[None, :]), tl.load(at + 256 + x[None, :])
        acc0, acc1, peak, total = _tile(lat, rope, q0, q1, e0, e1, acc0, acc1, peak, total, scale, None, False)
    for n in range(whole, end, N):
        row = tl.load(pages + n // PAGE).to(tl.int64) * PAGE + n % PAGE
        at, valid = cache + (row + t[:, None]) * 288, (n + t < length)[:, None]
        lat, rope = tl.load(at + c[None, :], mask=valid, other=0), tl.load(at + 256 + x[None, :], mask=valid, other=0)
        seen = (n + t)[None, :] < limit[:, None]
        acc0, acc1, peak, total = _tile(lat, rope, q0, q1, e0, e1, acc0, acc1, peak, total, scale, seen, True)

    share = (kv_scale / tl.where(total > 0.0, total, 1.0))[:, None]
    o = tl.interleave(acc0 * share, acc1 * share)
    to = (tl.where(part < 0, seq, part) * ROWS + r[:, None]) * 512 + d[None, :]
    if part < 0:
        tl.store(out + to, o.to(out.dtype.element_ty), mask=live)
    else:
        tl.store(part_out + to, o, mask=live)
        lse = tl.where(total > 0.0, peak - LIFT + tl.log2(total), NOTHING)
        tl.store(part_lse + part * ROWS + r, lse, mask=r < row1)
