"""MLA decode of a bf16 latent for 64 query rows a program on Hopper, in Gluon: two warpgroups multiply, a third copies.

Triton's own form gives both warpgroups the whole score tile; here layouts and roles are explicit. The tiles of an item,
64 tokens each, go round two buffers. Warpgroup w (0 or 1) does

* scores and softmax of the tiles w, w + 2, ...: S [64 rows, 64 tokens] over all 576 dimensions, 32 registers a thread;
* columns 256 w to 256 w + 255 of the output, for *every* tile: O [64 rows, 256 columns], 128 registers a thread.

So no product is computed twice, one warpgroup's softmax runs beside the other's products, and little is exchanged: the
probabilities P [64, 64] in bf16 and the running maximum [64]. Both take the tiles in the same order: the maximum is one
chain through all of them; each keeps its own sum until the end. Shared memory, 222,608 bytes: Q in three pieces (two
halves of 256 columns, the rotary 64) and the same three of K for either buffer. V is the two halves of K; P of a tile
lies where its rotary piece was. Half w of a buffer is free for the next tile but one once warpgroup w has multiplied by
it, the rotary piece once both have.
"""

from collections.abc import Sequence

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

copy_in = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared  # the name until Triton 3.7
NOTHING = gl.constexpr(-1e30)  # running maximum before any token: finite, so that no difference is NaN
SCORES = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))  # [64 rows, 64 tokens], one warpgroup
OUTPUT = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 256, 16]))  # [64 rows, 256 columns], one warpgroup
ROW, OUTPUT_ROW = gl.constexpr(gl.SliceLayout(1, SCORES.value)), gl.constexpr(gl.SliceLayout(1, OUTPUT.value))
TILES = gl.constexpr(gl.NVMMASharedLayout(128, 16, 2))  # blocks of 64 columns: what TMA writes and wgmma reads
PLAIN = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))


@gluon.jit
def _feed(latent_map, rope_map, pages, begin, tiles, latent, rope, ready, used, PAGE: gl.constexpr):
    """Tile j into buffer j % 2, each piece once its former content is used; pages are looked up one tile ahead."""
    page = gl.load(pages + begin // PAGE, mask=tiles > 0, other=0)
    for j in range(tiles):
        b, free = j % 2, (j // 2 + 1) & 1  # a fresh barrier counts as having passed phase 1
        n = begin + j * 64
        row = page * PAGE + n % PAGE
        page = gl.load(pages + (n + 64) // PAGE, mask=j + 1 < tiles, other=0)
        for half in gl.static_range(2):
            mbarrier.wait(used.index(2 * b + half), free)
            at = ready.index(3 * b + half)
            mbarrier.expect(at, 64 * 256 * 2)
            copy_in(latent_map, [row, 256 * half], at, latent.index(2 * b + half))
        at = ready.index(3 * b + 2)
        mbarrier.expect(at, 64 * 64 * 2)
        copy_in(rope_map, [row, 512], at, rope.index(b))


@gluon.jit
def _scores(q_latent, q_rope, latent, rope, ready, b: gl.constexpr, phase):
    """S = Q K^T of the tile in buffer b, each piece as soon as it is there."""
    s = gl.zeros([64, 64], gl.float32, SCORES)
    # a zero that the compiler cannot see through: it would hoist 72 operand descriptors out of the loop and spill
    z = gl.inline_asm_elementwise("mov.b32 $0, 0;", "=r", [], dtype=gl.int32, is_pure=False, pack=1)
    for half in gl.static_range(2):
        mbarrier.wait(ready.index(3 * b + half), phase)
        k = latent.index(z + 2 * b + half).permute((1, 0))
        s = hopper.warpgroup_mma(q_latent.index(z + half), k, s, use_acc=half > 0, is_async=True)
    mbarrier.wait(ready.index(3 * b + 2), phase)
    s = hopper.warpgroup_mma(q_rope, rope.index(z + b).permute((1, 0)), s, is_async=True)
    return hopper.warpgroup_mma_wait(0, deps=(s,))


@gluon.jit
def _clear(latent, b: gl.constexpr, left):
    """Zero the tokens from `left` on, past the sequence's end: a probability of 0 does not undo NaN."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    live = gl.arange(0, 64, gl.SliceLayout(1, LAYOUT)) < left
    for half in range(2):
        for piece in gl.static_range(4):
            part = latent.index(2 * b + half).slice(64 * piece, 64, 1)
            x = part.load(LAYOUT)
            part.store(gl.where(live[:, None], x, gl.zeros_like(x)))


@gluon.jit
def _own(s, peak, total, n, item, limit, buffers, given, b: gl.constexpr):
    """Softmax of this warpgroup's tile, from token n; P and the new maximum go to shared memory. Base 2."""
    length, whole, scale = item
    _, _, latent, rope, peaks, _ = buffers
    if n >= whole:
        t = n + gl.arange(0, 64, gl.SliceLayout(0, SCORES))
        s = gl.where(t[None, :] < limit[:, None], s, float("-inf"))
        if n + 64 > length:
            _clear(latent, b, length - n)
    new = gl.maximum(peak, gl.max(s, 1) * scale)
    p = gl.exp2(s * scale - new[:, None])
    rope.index(b).store(p.to(gl.bfloat16))
    peaks.index(b).store(new)
    hopper.fence_async_shared()
    mbarrier.arrive(given.index(b))
    alpha = gl.exp2(peak - new)
    return new, alpha, total * alpha + gl.sum(p, 1)


@gluon.jit
def _other(peak, total, buffers, given, b: gl.constexpr, phase):
    """Wait for the other warpgroup's P and take over its maximum."""
    mbarrier.wait(given.index(b), phase)
    new = buffers[4].index(b).load(ROW)
    alpha = gl.exp2(peak - new)
    return new, alpha, total * alpha


@gluon.jit
def _begin_product(acc, alpha, buffers, b: gl.constexpr, W: gl.constexpr):
    """Start acc = alpha acc + P V for this warpgroup's columns of the tile in buffer b."""
    p, v = buffers[3].index(b), buffers[2].index(2 * b + W)
    return hopper.warpgroup_mma(p, v, acc * gl.convert_layout(alpha, OUTPUT_ROW)[:, None], is_async=True)


@gluon.jit
def _end_product(acc, used, b: gl.constexpr, W: gl.constexpr):
    """Wait for it; then this half of the buffer may be filled again."""
    acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(used.index(2 * b + W))
    return acc


@gluon.jit
def _attend(item, rows, results, buffers, barriers, W: gl.constexpr):
    """What warpgroup W does: pairs of tiles, perhaps one more, then its columns of the result."""
    begin, tiles, length, scale = item
    q_latent, q_rope, latent, rope, _, _ = buffers
    q_ready, ready, used, given, _ = barriers
    first, _, row_count, heads = rows
    shortest = length - (row_count // heads - 1)  # what the first query token sees
    limit = shortest + (first + gl.arange(0, 64, ROW)) // heads
    tail = (length, shortest // 64 * 64, scale)
    peak, total = gl.full([64], NOTHING, gl.float32, ROW), gl.zeros([64], gl.float32, ROW)
    acc = gl.zeros([64, 256], gl.float32, OUTPUT)
    mbarrier.wait(q_ready, 0)
    for i in range(tiles // 2):
        phase, n = i & 1, begin + 128 * i
        s = _scores(q_latent, q_rope, latent, rope, ready, W, phase)
        if W == 0:
            peak, alpha, total = _own(s, peak, total, n, tail, limit, buffers, given, 0)
            acc = _end_product(_begin_product(acc, alpha, buffers, 0, 0), used, 0, 0)
            peak, alpha, total = _other(peak, total, buffers, given, 1, phase)
        else:
            peak, alpha, total = _other(peak, total, buffers, given, 0, phase)
            acc = _begin_product(acc, alpha, buffers, 0, 1)
            peak, alpha, total = _own(s, peak, total, n + 64, tail, limit, buffers, given, 1)
            acc = _end_product(acc, used, 0, 1)
        acc = _end_product(_begin_product(acc, alpha, buffers, 1, W), used, 1, W)
    if tiles % 2 == 1:
        phase, n = (tiles // 2) & 1, begin + 64 * (tiles - 1)
        if W == 0:
            s = _scores(q_latent, q_rope, latent, rope, ready, 0, phase)
            peak, alpha, total = _own(s, peak, total, n, tail, limit, buffers, given, 0)
        else:
            peak, alpha, total = _other(peak, total, buffers, given, 0, phase)
        acc = _end_product(_begin_product(acc, alpha, buffers, 0, W), used, 0, W)
    _finish(acc, peak, total, rows, results, buffers[5], barriers[4], W)


@gluon.jit
def _finish(acc, peak, total, rows, results, sums, summed, W: gl.constexpr):
    """Join the two sums and write columns 256 W to 256 W + 255; part < 0: a whole sequence, straight to `out`."""
    first, row1, row_count, _ = rows
    seq, part, out, part_out, part_lse, kv_scale = results
    sums.index(W).store(total)
    mbarrier.arrive(summed.index(W))
    mbarrier.wait(summed.index(1 - W), 0)
    total += sums.index(1 - W).load(ROW)
    share = kv_scale / gl.where(total > 0.0, total, 1.0)
    o = acc * gl.convert_layout(share, OUTPUT_ROW)[:, None]
    r = first + gl.arange(0, 64, OUTPUT_ROW)
    c = 256 * W + gl.arange(0, 256, gl.SliceLayout(0, OUTPUT))
    to = ((gl.where(part < 0, seq, part) * row_count + r) * 512)[:, None] + c[None, :]
    if part < 0:
        gl.store(out + to, o.to(out.dtype.element_ty), mask=(r < row1)[:, None])
    else:
        gl.store(part_out + to, o, mask=(r < row1)[:, None])
        if W == 0:
            r1 = first + gl.arange(0, 64, ROW)
            lse = gl.where(total > 0.0, peak + gl.log2(total), NOTHING)
            gl.store(part_lse + part * row_count + r1, lse, mask=r1 < row1)


@gluon.jit
def _barriers(N: gl.constexpr):
    """N barriers that one arrival passes."""
    at = gl.allocate_shared_memory(gl.int64, [N, 1], mbarrier.MBarrierLayout())
    for n in gl.static_range(N):
        mbarrier.init(at.index(n), count=1)
    return at


@gluon.jit(do_not_specialize=["row0", "row1", "stride_table", "row_count", "heads"])
def split64(
    q_latent_map, q_rope_map, latent_map, rope_map, table, lengths, item_seq, item_begin, item_end, item_part,
    part_out, part_lse, out, row0, row1, stride_table, scale, kv_scale, row_count, heads, PAGE: gl.constexpr,
):  # fmt: skip
    """Program (block of 64 rows from row0, item), as `mla_decode._split`; four warps for each of three roles."""
    item = gl.program_id(1)
    seq, part = gl.load(item_seq + item).to(gl.int64), gl.load(item_part + item).to(gl.int64)
    begin, end = gl.load(item_begin + item), gl.load(item_end + item)
    first, tiles, length = row0 + gl.program_id(0) * 64, (end - begin + 63) // 64, gl.load(lengths + seq)

    q_latent = gl.allocate_shared_memory(gl.bfloat16, [2, 64, 256], TILES)
    q_rope = gl.allocate_shared_memory(gl.bfloat16, [64, 64], TILES)
    latent = gl.allocate_shared_memory(gl.bfloat16, [4, 64, 256], TILES)  # [2 buffer + half]
    rope = gl.allocate_shared_memory(gl.bfloat16, [2, 64, 64], TILES)  # [buffer], later P
    peaks = gl.allocate_shared_memory(gl.float32, [2, 64], PLAIN)  # [buffer]
    sums = gl.allocate_shared_memory(gl.float32, [2, 64], PLAIN)  # [warpgroup]
    ready, used = _barriers(6), _barriers(4)  # [3 buffer + piece]: copied; [2 buffer + half]: multiplied by
    given, summed, q_ready = _barriers(2), _barriers(2), _barriers(1).index(0)  # [buffer]: P written; [warpgroup]: sum
    hopper.fence_async_shared()
    mbarrier.expect(q_ready, 64 * 576 * 2)
    row = (seq * row_count + first).to(gl.int32)
    for half in gl.static_range(2):
        copy_in(q_latent_map, [row, 256 * half], q_ready, q_latent.index(half))
    copy_in(q_rope_map, [row, 512], q_ready, q_rope)

    work = (begin, tiles, length, scale)
    rows, results = (first, row1, row_count, heads), (seq, part, out, part_out, part_lse, kv_scale)
    buffers, barriers = (q_latent, q_rope, latent, rope, peaks, sums), (q_ready, ready, used, given, summed)
    gl.warp_specialize(
        [
            (_feed, (latent_map, rope_map, table + seq * stride_table, begin, tiles, latent, rope, ready, used, PAGE)),
            (_attend, (work, rows, results, buffers, barriers, 0)),
            (_attend, (work, rows, results, buffers, barriers, 1)),
        ],
        [4, 4],
        [232, 232],  # registers a thread; the copying warps keep 40 of the 504 that 12 warps share
    )


def launch(
    q: torch.Tensor, flat: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, items: Sequence[torch.Tensor],
    parts: Sequence[torch.Tensor], out: torch.Tensor, rows: tuple[int, int],
    *, scale: float, kv_scale: float, page: int,
) -> None:  # fmt: skip
    """Rows [rows[0], rows[1]) of every sequence; q [B,Q,H,576] and the cache flat [tokens,576], both bf16.

    items: sequence, begin, end and part of each; parts: partial outputs and their log-sum-exps; scale in base 2.
    """
    maps = [TensorDescriptor.from_tensor(x, [64, n], TILES.value) for x in (q.view(-1, 576), flat) for n in (256, 64)]
    split64[(triton.cdiv(rows[1] - rows[0], 64), items[0].numel())](
        *maps, table, lengths, *items, *parts, out, *rows, table.stride(0), scale, kv_scale,
        q.shape[1] * q.shape[2], q.shape[2], PAGE=page, num_warps=4, maxnreg=168,
    )  # fmt: skip
