"""MLA decode from an fp8 latent for up to 32 query rows a program on Hopper, in Gluon: tokens on the left.

`mla_decode_fp8.split` multiplies with the rows on the left, 16 at a time, and loads q from shared memory again for
every tile. Here 64 tokens (then 64 pairs of latent columns) are the rows of a warpgroup's product: q and the
probabilities are its right operand, which the tensor cores read from shared memory themselves, and the cache, widened
in registers, its left one:

    S [64 tokens, R] = K Q^T          O [64 pairs, R] += V^T P          (even and odd bytes apart; V is the latent of K)

Triton reads all of a tile into registers at once, which spills; here a quarter at a time is read and widened. Two
programs of four warps share a multiprocessor, and while one waits the other works. Each has two tiles in shared memory
(R = 32: 115,344 of the 115,712 bytes that it may have). With R = 32 the accumulators leave few registers and spills
cost much, so sums are kept apart by lane (`_by_lane`) and the rows' scales in shared memory.
"""

from collections.abc import Sequence

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# the second is the name until Triton 3.7
copy_in = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
meet = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
NOTHING = gl.constexpr(-1e30)  # running maximum before any token: finite, so that no difference is NaN
LIFT = gl.constexpr(15)  # p <= 1 is stored as p 2^15: fp16 then keeps weights down to 2^-39
PAIRS = gl.constexpr(gl.NVMMASharedLayout(128, 16, 2))  # blocks of 64 pairs
ROPE = gl.constexpr(gl.NVMMASharedLayout(64, 16, 2))  # 32 pairs
PLAIN = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))


@gluon.constexpr_function
def _product(R):
    """Layout of a product [64, R] of four warps."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, R, 16])


@gluon.jit
def _halves(pairs):
    """The even (low byte) and the odd values of an int16 tile of pairs, as fp16."""
    return gl.inline_asm_elementwise(
        "{ .reg .b32 sorted; .reg .b16 low, high; prmt.b32 sorted, $2, 0, 0x3120; mov.b32 {low, high}, sorted;"
        " cvt.rn.f16x2.e4m3x2 $0, low; cvt.rn.f16x2.e4m3x2 $1, high; }",
        "=r,=r,r", [pairs], dtype=(gl.float16, gl.float16), is_pure=True, pack=2,
    )  # fmt: skip


@gluon.jit
def _fetch(latent_map, rope_map, row, latent, rope, ready, b):
    """Start copying the 64 tokens from cache row `row` to buffer b."""
    at = ready.index(b)
    mbarrier.expect(at, 64 * 576)
    copy_in(latent_map, [row, 0], at, latent.index(b))
    copy_in(rope_map, [row, 256], at, rope.index(b))


@gluon.jit
def _scores(latent, rope, q_latent, q_rope, R: gl.constexpr):
    """S [64 tokens, R] of a tile."""
    LEFT: gl.constexpr = gl.DotOperandLayout(0, _product(R), 2)
    k0, k1 = _halves(rope.load(LEFT))
    s = gl.zeros([64, R], gl.float32, _product(R))
    s = hopper.warpgroup_mma(k0, q_rope.index(0).permute((1, 0)), s, use_acc=False, is_async=True)
    s = hopper.warpgroup_mma(k1, q_rope.index(1).permute((1, 0)), s, is_async=True)
    for i in gl.static_range(4):
        s, k0, k1 = hopper.warpgroup_mma_wait(0, deps=(s, k0, k1))
        k0, k1 = _halves(latent.slice(64 * i, 64, 1).load(LEFT))
        s = hopper.warpgroup_mma(k0, q_latent.index(2 * i).permute((1, 0)), s, is_async=True)
        s = hopper.warpgroup_mma(k1, q_latent.index(2 * i + 1).permute((1, 0)), s, is_async=True)
    s, k0, k1 = hopper.warpgroup_mma_wait(0, deps=(s, k0, k1))
    return s


@gluon.jit
def _values(latent, i: gl.constexpr, left, R: gl.constexpr, MASK: gl.constexpr):
    """Quarter i of V^T, [64 pairs, 64 tokens]; tokens past the end as 0: a probability of 0 does not undo NaN."""
    LEFT: gl.constexpr = gl.DotOperandLayout(0, _product(R), 2)
    v = latent.slice(64 * i, 64, 1).permute((1, 0)).load(LEFT)
    if MASK:
        live = gl.arange(0, 64, gl.SliceLayout(0, LEFT)) < left
        v = gl.where(live[None, :], v, gl.zeros_like(v))
    return _halves(v)


@gluon.jit
def _accumulate(accs, alpha, weights, latent, left, R: gl.constexpr, MASK: gl.constexpr):
    """O = alpha O + V^T P: eight accumulators, even and odd of the quarters."""
    done = ()
    v0, v1 = _values(latent, 0, left, R, MASK)
    for i in gl.static_range(4):
        even = hopper.warpgroup_mma(v0, weights, accs[2 * i] * alpha[None, :], is_async=True)
        odd = hopper.warpgroup_mma(v1, weights, accs[2 * i + 1] * alpha[None, :], is_async=True)
        if i < 3:
            next0, next1 = _values(latent, i + 1, left, R, MASK)
        even, odd, v0, v1 = hopper.warpgroup_mma_wait(0, deps=(even, odd, v0, v1))
        if i < 3:
            v0, v1 = next0, next1
        done = done + (even, odd)  # noqa: RUF005 (Gluon knows no starred tuple)
    return done


@gluon.jit
def _now(x):
    """x, computed here: without it the compiler puts the sum off and holds all of its terms in registers."""
    return gl.inline_asm_elementwise("mov.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=False, pack=1)


@gluon.jit
def _by_lane(x, R: gl.constexpr):
    """[64, R] as [warp, half, lane, R]: what is summed over the halves only stays in its thread."""
    return gl.reshape(x, [4, 2, 8, R])


@gluon.jit
def _tile(accs, peak, total, left, limit, latent, rope, staged, R: gl.constexpr, MASK: gl.constexpr):
    """Online softmax, base 2, over a tile; `left` tokens of it exist, row r sees `limit[r]` of them."""
    q_latent, q_rope, weights, scales = staged
    s = _scores(latent, rope, q_latent, q_rope, R)
    s *= scales.load(gl.SliceLayout(0, _product(R)))[None, :]
    if MASK:
        t = gl.arange(0, 64, gl.SliceLayout(1, _product(R)))
        s = gl.where(t[:, None] < limit[None, :], s, float("-inf"))
    new = gl.maximum(peak, gl.max(s, 0))
    p = gl.exp2(s - (new - LIFT)[None, :])
    alpha = gl.exp2(peak - new)
    total = total * gl.max(_by_lane(gl.zeros_like(p) + alpha[None, :], R), 1) + gl.sum(_by_lane(p, R), 1)
    total = _now(total)
    weights.store(p.to(gl.float16))
    hopper.fence_async_shared()
    return _accumulate(accs, alpha, weights, latent, left, R, MASK), new, total


@gluon.jit
def _step(
    accs, peak, total, j, item, limit, maps, buffers, staged, R: gl.constexpr, PAGE: gl.constexpr, MASK: gl.constexpr
):
    """Take in tile j of the item and start copying tile j + 2 to its buffer; the page is looked up before."""
    pages, begin, end, length = item
    latent, rope, ready = buffers
    n, b = begin + 64 * j, j % 2
    page = gl.load(pages + (n + 128) // PAGE, mask=n + 128 < end, other=0)
    mbarrier.wait(ready.index(b), (j // 2) & 1)
    accs, peak, total = _tile(accs, peak, total, length - n, limit - n, latent.index(b), rope.index(b), staged, R, MASK)
    meet()
    if n + 128 < end:
        _fetch(maps[0], maps[1], page * PAGE + (n + 128) % PAGE, latent, rope, ready, b)
    return accs, peak, total


@gluon.constexpr_function
def _columns(W):
    """Layout of [R, W] values of q."""
    return gl.BlockedLayout([1, W // 8], [4, 8], [4, 1], [1, 0])


@gluon.jit
def _rows(q, first, row1, R: gl.constexpr, W: gl.constexpr):
    """Pointers to columns 0, 2, ... of 2 W, and which of the rows exist."""
    r, c = gl.arange(0, R, gl.SliceLayout(1, _columns(W))), 2 * gl.arange(0, W, gl.SliceLayout(0, _columns(W)))
    return q + (r * 576)[:, None] + c[None, :], (first + r < row1)[:, None] & (c >= 0)[None, :]


@gluon.jit
def _stage(q, first, row1, q_latent, q_rope, scales, scale, R: gl.constexpr):
    """q to shared memory as fp16, even and odd apart, each row over a power of two: 2^14 below its largest value."""
    at, here = _rows(q, first, row1, R, 64)
    at_rope, here_rope = _rows(q + 512, first, row1, R, 32)
    x = gl.maximum(
        gl.abs(gl.load(at_rope, mask=here_rope, other=0.0)), gl.abs(gl.load(at_rope + 1, mask=here_rope, other=0.0))
    )
    size = gl.convert_layout(gl.max(x.to(gl.float32), 1), gl.SliceLayout(1, _columns(64)))
    for i in gl.static_range(8):
        x = gl.load(at + 128 * (i // 2) + i % 2, mask=here, other=0.0).to(gl.float32)
        size = gl.maximum(size, gl.max(gl.abs(x), 1))
    exponent = gl.maximum(size.to(gl.int32, bitcast=True) >> 23, 15)
    shrink = ((268 - exponent) << 23).to(gl.float32, bitcast=True)
    for i in gl.static_range(8):
        x = gl.load(at + 128 * (i // 2) + i % 2, mask=here, other=0.0).to(gl.float32)
        q_latent.index(i).store((x * shrink[:, None]).to(gl.float16))
    shrink = gl.convert_layout(shrink, gl.SliceLayout(1, _columns(32)))
    for i in gl.static_range(2):
        x = gl.load(at_rope + i, mask=here_rope, other=0.0).to(gl.float32)
        q_rope.index(i).store((x * shrink[:, None]).to(gl.float16))
    scales.store(scale * ((exponent - 14) << 23).to(gl.float32, bitcast=True))
    hopper.fence_async_shared()


@gluon.jit
def _write(accs, peak, total, part, to, part_to, kv_scale, row0, row1, out, part_out, part_lse, R: gl.constexpr):
    """Rows row0 to row0 + R that are below row1: the part of a cut sequence, or the end result."""
    S: gl.constexpr = _product(R)
    COLUMN: gl.constexpr = gl.SliceLayout(0, S)
    total = gl.convert_layout(gl.sum(gl.sum(total, 0), 0), COLUMN)
    share = (kv_scale / gl.where(total > 0.0, total, 1.0))[None, :]
    r, pair = gl.arange(0, R, COLUMN), 2 * gl.arange(0, 64, gl.SliceLayout(1, S))
    live = (row0 + r < row1)[None, :] & (pair >= 0)[:, None]
    mask, row = gl.join(live, live), (gl.where(part < 0, to, part_to) + r) * 512
    for i in gl.static_range(4):
        at = row[None, :] + (128 * i + pair)[:, None]
        at, o = gl.join(at, at + 1), gl.join(accs[2 * i] * share, accs[2 * i + 1] * share)
        if part < 0:
            gl.store(out + at, o.to(out.dtype.element_ty), mask=mask)
        else:
            gl.store(part_out + at, o, mask=mask)
    if part >= 0:
        lse = gl.where(total > 0.0, peak - LIFT + gl.log2(total), NOTHING)
        gl.store(part_lse + part_to + r, lse, mask=row0 + r < row1)


@gluon.jit(do_not_specialize=["row0", "row1", "stride_table", "kv_scale", "row_count", "heads"])
def split32(
    q, latent_map, rope_map, table, lengths, item_seq, item_begin, item_end, item_part, part_out, part_lse, out,
    row0, row1, stride_table, scale, kv_scale, row_count, heads, R: gl.constexpr, PAGE: gl.constexpr,
):  # fmt: skip
    """Program (block of R rows from row0, item), as `mla_decode._split`; four warps."""
    S: gl.constexpr = _product(R)
    COLUMN: gl.constexpr = gl.SliceLayout(0, S)
    item = gl.program_id(1)
    seq = gl.load(item_seq + item).to(gl.int64)
    begin, end, part = gl.load(item_begin + item), gl.load(item_end + item), gl.load(item_part + item).to(gl.int64)
    length = gl.load(lengths + seq)
    pages = table + seq * stride_table
    first = row0 + gl.program_id(0) * R

    latent = gl.allocate_shared_memory(gl.int16, [2, 64, 256], PAIRS)
    rope = gl.allocate_shared_memory(gl.int16, [2, 64, 32], ROPE)
    q_latent = gl.allocate_shared_memory(gl.float16, [8, R, 64], PAIRS)  # [quarter and half]
    q_rope = gl.allocate_shared_memory(gl.float16, [2, R, 32], ROPE)  # [half]
    weights = gl.allocate_shared_memory(gl.float16, [64, R], gl.NVMMASharedLayout(2 * R, 16, 2))
    scales = gl.allocate_shared_memory(gl.float32, [R], PLAIN)
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())  # [buffer]: copied
    for b in gl.static_range(2):
        mbarrier.init(ready.index(b), count=1)
    hopper.fence_async_shared()
    for j in gl.static_range(2):
        n = begin + 64 * j
        if n < end:
            _fetch(latent_map, rope_map, gl.load(pages + n // PAGE) * PAGE + n % PAGE, latent, rope, ready, j)
    _stage(q + (seq * row_count + first) * 576, first, row1, q_latent, q_rope, scales, scale, R)

    shortest = length - (row_count // heads - 1)
    limit = shortest + (first + gl.arange(0, R, COLUMN)) // heads
    peak, zero = gl.full([R], NOTHING, gl.float32, COLUMN), gl.zeros([64, R], gl.float32, S)
    total, accs = gl.sum(_by_lane(zero, R), 1), (zero, zero, zero, zero, zero, zero, zero, zero)
    what, buffers, staged = (pages, begin, end, length), (latent, rope, ready), (q_latent, q_rope, weights, scales)
    maps = (latent_map, rope_map)
    whole = gl.maximum(0, (gl.minimum(end, shortest) - begin) // 64)  # tiles that every row sees whole
    for j in range(whole):
        accs, peak, total = _step(accs, peak, total, j, what, limit, maps, buffers, staged, R, PAGE, False)
    for j in range(whole, (end - begin + 63) // 64):
        accs, peak, total = _step(accs, peak, total, j, what, limit, maps, buffers, staged, R, PAGE, True)
    to, part_to = seq * row_count + first, part * row_count + first
    _write(accs, peak, total, part, to, part_to, kv_scale, first, row1, out, part_out, part_lse, R)


def launch(
    q: torch.Tensor, flat: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, items: Sequence[torch.Tensor],
    parts: Sequence[torch.Tensor], out: torch.Tensor, rows: tuple[int, int], *, scale: float, kv_scale: float,
    page: int,
) -> None:  # fmt: skip
    """Rows [rows[0], rows[1]) of every sequence, 16 or 32 a program; q [B,Q,H,576], flat [tokens,288] int16.

    items: sequence, begin, end and part of each; parts: partial outputs and their log-sum-exps; scale in base 2.
    """
    block = 16 if rows[1] - rows[0] <= 16 else 32
    latent = TensorDescriptor.from_tensor(flat, [64, 256], PAIRS.value)
    rope = TensorDescriptor.from_tensor(flat, [64, 32], ROPE.value)
    split32[(-(-(rows[1] - rows[0]) // block), items[0].numel())](
        q, latent, rope, table, lengths, *items, *parts, out, *rows, table.stride(0), scale, kv_scale,
        q.shape[1] * q.shape[2], q.shape[2], R=block, PAGE=page, num_warps=4,
    )  # fmt: skip
