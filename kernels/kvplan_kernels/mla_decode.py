"""MLA decode, absorbed: every head attends to one shared latent of 512 values and 64 rotary ones a token, paged.

    s[r,t] = scale (q[r,:512] . latent[t] + q[r,512:] . rope[t])        o[r] = sum_t softmax(s)[r,t] latent[t]

The cache is [pages, PAGE, 576], a token's 512 latent values before its 64 rotary ones, bf16 or fp8 (e4m3, one scale);
`table` [B, pages of a sequence] names each sequence's pages. Rows are query tokens x heads: with Q tokens a sequence
(speculative decoding), the last of them sees the whole sequence and the others one token less each.

The sequences are cut into items of about equal length (`schedule`); `_split` does one item for a block of rows, and
`_combine` joins the parts of the sequences that were cut. `_split` has three forms: rows on the left of the matrix
product with pointers (few rows, much work: two programs a multiprocessor), the same with TMA (64 rows), and TMA with
the tokens on the left, so that few rows are not padded to 64 (few rows, little work). On Hopper `mla_decode_gluon`
takes the place of all three for bf16, but for the first. An fp8 cache has forms of its own: `mla_decode_fp8` and, on
Hopper, `mla_decode_fp8_gluon`.
"""

from collections.abc import Sequence
from functools import partial

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kvplan_kernels import mla_decode_fp8
from kvplan_kernels.case import Case, Shape, Traffic, Work, buffers_for, relative_error, tensor
from kvplan_kernels.mla_schedule import Schedule, schedule

LATENT, ROPE, TILE = 512, 64, 64
NOTHING = tl.constexpr(-1e30)  # running maximum before any token: finite, so that no difference is NaN


@triton.jit
def _tile(c, e, qc, qe, acc, peak, total, scale, seen, MASK: tl.constexpr, SWAP: tl.constexpr):
    """Online softmax over a tile of N tokens: c [N,512], e [N,64]; scores [N,R] when swapped, else [R,N]; base 2."""
    if SWAP:
        s = tl.dot(e, qe, tl.dot(c, qc))
        if MASK:
            s = tl.where(seen, s, float("-inf"))
        new = tl.maximum(peak, tl.max(s, 0) * scale)
        p = tl.exp2(s * scale - new[None, :])
        alpha = tl.exp2(peak - new)
        acc = tl.dot(tl.trans(c), p.to(c.dtype), acc * alpha[None, :])
        return acc, new, total * alpha + tl.sum(p, 0)
    else:  # noqa: RET505 (only one of the branches is compiled)
        s = tl.dot(qe, tl.trans(e), tl.dot(qc, tl.trans(c)))
        if MASK:
            s = tl.where(seen, s, float("-inf"))
        new = tl.maximum(peak, tl.max(s, 1) * scale)
        p = tl.exp2(s * scale - new[:, None])
        alpha = tl.exp2(peak - new)
        acc = tl.dot(p.to(c.dtype), c, acc * alpha[:, None])
        return acc, new, total * alpha + tl.sum(p, 1)


@triton.jit
def _rows(cache, row, N: tl.constexpr):
    """Latent [N,512] and rotary part [N,64] of N tokens from cache row `row`, as stored."""
    at = cache + row.to(tl.int64) * 576
    t = tl.arange(0, N)[:, None] * 576
    return tl.load(at + (t + tl.arange(0, 512)[None, :])), tl.load(at + (t + tl.arange(0, 64)[None, :] + 512))


@triton.jit
def _split(
    q, cache, latent_map, rope_map, table, lengths, item_seq, item_begin, item_end, item_part, part_out, part_lse, out,
    row0, row1, stride_table, scale, kv_scale, ROWS: tl.constexpr, H: tl.constexpr, R: tl.constexpr, N: tl.constexpr,
    PAGE: tl.constexpr, SWAP: tl.constexpr, TMA: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Program (block of R rows from row0, item). part < 0: the item is a whole sequence and goes straight to `out`."""
    item = tl.program_id(1)
    seq = tl.load(item_seq + item).to(tl.int64)
    begin, end, part = tl.load(item_begin + item), tl.load(item_end + item), tl.load(item_part + item).to(tl.int64)
    length = tl.load(lengths + seq)
    pages = table + seq * stride_table
    DTYPE: tl.constexpr = cache.dtype.element_ty
    r = row0 + tl.program_id(0) * R + tl.arange(0, R)
    limit = length - (ROWS // H - 1) + r // H
    c, x, t = tl.arange(0, 512), tl.arange(0, 64), tl.arange(0, N)
    at_q = q + (seq * ROWS + r[:, None]) * 576
    qc = tl.load(at_q + c[None, :], mask=(r < row1)[:, None], other=0.0).to(DTYPE)
    qe = tl.load(at_q + 512 + x[None, :], mask=(r < row1)[:, None], other=0.0).to(DTYPE)
    if SWAP:
        qc, qe = tl.trans(qc), tl.trans(qe)
        acc = tl.zeros((512, R), tl.float32)
    else:
        acc = tl.zeros((R, 512), tl.float32)
    peak, total = tl.full((R,), NOTHING, tl.float32), tl.zeros((R,), tl.float32)

    # tiles that every row sees whole need no mask; the page of the next tile is looked up one tile ahead
    whole = tl.maximum(begin, tl.minimum(end, (length - (ROWS // H - 1)) // N * N))
    page = tl.load(pages + begin // PAGE, mask=begin < end, other=0)
    for n in tl.range(begin, whole, N, num_stages=STAGES):
        row = page * PAGE + n % PAGE
        page = tl.load(pages + (n + N) // PAGE, mask=n + N < end, other=0)
        if TMA:
            lat, rope = latent_map.load([row, 0]), rope_map.load([row, 512])
        else:
            lat, rope = _rows(cache, row, N)
        acc, peak, total = _tile(lat.to(DTYPE), rope.to(DTYPE), qc, qe, acc, peak, total, scale, None, False, SWAP)
    for n in range(whole, end, N):
        row = tl.load(pages + n // PAGE).to(tl.int64) * PAGE + n % PAGE
        at, valid = cache + (row + t[:, None]) * 576, (n + t < length)[:, None]
        lat = tl.load(at + c[None, :], mask=valid, other=0.0).to(DTYPE)
        rope = tl.load(at + 512 + x[None, :], mask=valid, other=0.0).to(DTYPE)
        seen = (n + t)[:, None] < limit[None, :] if SWAP else (n + t)[None, :] < limit[:, None]
        acc, peak, total = _tile(lat, rope, qc, qe, acc, peak, total, scale, seen, True, SWAP)

    live = r < row1
    share = kv_scale / tl.where(total > 0.0, total, 1.0)
    rows = (tl.where(part < 0, seq, part) * ROWS + r) * 512
    to = rows[None, :] + c[:, None] if SWAP else rows[:, None] + c[None, :]
    o = acc * (share[None, :] if SWAP else share[:, None])
    mask = live[None, :] if SWAP else live[:, None]
    if part < 0:
        tl.store(out + to, o.to(out.dtype.element_ty), mask=mask)
    else:
        tl.store(part_out + to, o, mask=mask)
        tl.store(part_lse + part * ROWS + r, tl.where(total > 0.0, peak + tl.log2(total), NOTHING), mask=live)


@triton.jit
def _combine(part_out, part_lse, first_part, out, ROWS: tl.constexpr, PARTS: tl.constexpr, BD: tl.constexpr):
    """Program (slice of BD values, row, sequence): weighted mean of the sequence's parts, PARTS at a time."""
    row, seq = tl.program_id(1), tl.program_id(2).to(tl.int64)
    first, last = tl.load(first_part + seq), tl.load(first_part + seq + 1)
    if first == last:
        return
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    peak = NOTHING + 0.0
    total, acc = 0.0, tl.zeros((BD,), tl.float32)
    for n in range(first, last, PARTS):
        part = (n + tl.arange(0, PARTS)).to(tl.int64)
        live = part < last
        lse = tl.load(part_lse + part * ROWS + row, mask=live, other=NOTHING)
        values = tl.load(part_out + (part * ROWS + row)[:, None] * 512 + d[None, :], mask=live[:, None], other=0.0)
        new = tl.maximum(peak, tl.max(lse, 0))
        weight, alpha = tl.where(live, tl.exp2(lse - new), 0.0), tl.exp2(peak - new)
        acc = acc * alpha + tl.sum(values * weight[:, None], 0)
        total, peak = total * alpha + tl.sum(weight, 0), new
    tl.store(out + (seq * ROWS + row) * 512 + d, (acc / total).to(out.dtype.element_ty))


def mla_decode(
    q: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor, plan: Sequence[Schedule],
    *, scale: float, kv_scale: float = 1.0, out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """q [B,Q,H,576] bf16 contiguous, cache [pages,PAGE,576] bf16 or float8_e4m3fn; returns o [B,Q,H,512] in q's dtype.

    PAGE is a multiple of 64. lengths [B] int32 count the Q new tokens too; a sequence of length 0 gives zeros. Cache
    entries past a sequence's end are never read into the result, whatever they hold. kv_scale multiplies fp8 entries.
    """
    B, Q, H, _ = q.shape
    rows, page = Q * H, cache.shape[1]
    if page % TILE:
        raise ValueError(f"pages of {page} tokens: {TILE} or a multiple is needed")
    out = torch.empty(B, Q, H, LATENT, dtype=q.dtype, device=q.device) if out is None else out
    flat, kernel, fp8 = cache.view(-1, LATENT + ROPE), _split, cache.dtype == torch.float8_e4m3fn
    if any(fp8 != one.form.FP8 for one in plan):
        raise ValueError(f"the plan was not made for a cache of {cache.dtype}: schedule(…, fp8={fp8})")
    if fp8:
        flat, kernel = flat.view(torch.int16), mla_decode_fp8.split
    for form, seq, begin, end, part, first_part, parts, most in plan if B else ():
        lse = torch.empty(parts, rows, dtype=torch.float32, device=q.device)
        part_out = torch.empty(parts, rows, LATENT, dtype=torch.float32, device=q.device)
        widths = [n * flat.shape[1] // (LATENT + ROPE) for n in (LATENT, ROPE)]
        maps = [TensorDescriptor.from_tensor(flat, [form.N, n]) if form.TMA else None for n in widths]
        blocks = -(-(form.row1 - form.row0) // form.R)
        if form.GLUON:
            from kvplan_kernels import mla_decode_fp8_gluon, mla_decode_gluon  # no form asks for what Gluon here lacks

            module = mla_decode_gluon if kernel is _split else mla_decode_fp8_gluon
            module.launch(
                q, flat, table, lengths, (seq, begin, end, part), (part_out, lse), out, (form.row0, form.row1),
                scale=scale * kv_scale * 1.4426950408889634, kv_scale=kv_scale, page=page,
            )  # fmt: skip
        else:
            kernel[(blocks, seq.numel())](
                q, flat, *maps, table, lengths, seq, begin, end, part, part_out, lse, out, form.row0, form.row1,
                table.stride(0), scale * kv_scale * 1.4426950408889634, kv_scale, ROWS=rows, H=H, R=form.R, N=form.N,
                PAGE=page, SWAP=form.SWAP, TMA=form.TMA, STAGES=form.STAGES,
                num_stages=form.STAGES, num_warps=form.num_warps,
            )  # fmt: skip
        if parts:
            kept, ours = form.row1 - form.row0, slice(form.row0, None)
            wide = LATENT if kept * B > 512 else LATENT // 4  # few rows are spread over more programs
            _combine[(LATENT // wide, kept, B)](
                part_out[:, ours], lse[:, ours], first_part, out.view(B, rows, LATENT)[:, ours],
                ROWS=rows, PARTS=min(16, triton.next_power_of_2(most)), BD=wide, num_warps=4,
            )  # fmt: skip
    return out


def reference(
    q: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: Sequence[int],
    scale: float,
    kv_scale: float = 1.0,
) -> torch.Tensor:
    """The equations in fp64, one sequence at a time; o [B,Q,H,512]."""
    out = torch.zeros(*q.shape[:3], LATENT, dtype=torch.float64, device=q.device)
    for n, length in enumerate(lengths):
        pages = table[n, : -(-length // cache.shape[1])].long()
        kv = cache[pages].flatten(0, 1)[:length].double() * kv_scale
        s = torch.einsum("qhd,td->qht", q[n].double(), kv) * scale
        last = length - q.shape[1] + torch.arange(q.shape[1], device=q.device)
        future = torch.arange(length, device=q.device)[None, :] > last[:, None]
        p = s.masked_fill(future[:, None, :], float("-inf")).softmax(-1)
        out[n] = torch.einsum("qht,td->qhd", p.nan_to_num(0.0), kv[:, :LATENT])
    return out


def traffic(lengths: Sequence[int], Q: int, H: int, cache_bytes: int) -> Traffic:
    """Each cached token read once, q read and o written in bf16; 2 (576 + 512) FLOPs a token and row."""
    tokens, rows = sum(lengths), Q * H
    return Traffic(tokens * 576 * cache_bytes + 2 * len(lengths) * rows * (576 + 512), 2 * tokens * rows * (576 + 512))


def _work(shape: Shape, device: torch.device) -> Work:
    H, B, length, Q = (int(shape[x]) for x in ("heads", "batch", "context", "query_tokens"))
    dtype = torch.bfloat16 if shape["cache"] == "bf16" else torch.float8_e4m3fn
    pages, scale = -(-length // 64), 192**-0.5
    caches = [
        torch.randn(B * pages, 64, 576, dtype=torch.bfloat16, device=device).to(dtype)
        for _ in range(buffers_for(B * pages * 64 * 576 * dtype.itemsize, most=64))
    ]
    table = torch.randperm(B * pages, device=device).view(B, pages).int()
    q, lengths = tensor((B, Q, H, 576), 1, device), torch.full((B,), length, dtype=torch.int32, device=device)
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    items, out = (
        schedule([length] * B, Q * H, sms, device, fp8=dtype.itemsize == 1),
        torch.empty(B, Q, H, LATENT, dtype=q.dtype, device=device),
    )

    def check() -> float:
        got = mla_decode(q, caches[0], table, lengths, items, scale=scale, out=out.fill_(float("nan")))
        return relative_error(got[:2], reference(q[:2], caches[0], table[:2], [length] * min(B, 2), scale))

    calls = [partial(mla_decode, q, c, table, lengths, items, scale=scale, out=out) for c in caches]
    return Work(calls, check, traffic([length] * B, Q, H, dtype.itemsize), 1e-2)


def case(**shape: int | str) -> Case:
    return Case("mla_decode", shape, partial(_work, shape), "read")


def cases(suite: str) -> list[Case]:
    """Heads of a rank at TP 1 to 16, contexts 4K to 1M, bf16 and fp8 latent, one and four query tokens."""

    def shape(heads: int, batch: int, context: int, cache: str = "bf16", tokens: int = 1) -> Shape:
        return {"heads": heads, "batch": batch, "context": context, "cache": cache, "query_tokens": tokens}

    large = (128, 16384)
    shapes = [shape(h, *large) for h in (12, 16, 24, 48, 96, 128)]
    shapes += [shape(12, 1, n) for n in (4096, 16384, 65536)] + [shape(96, 1, 65536), shape(12, *large, "fp8")]
    if suite == "full":
        shapes += [shape(h, *large, "fp8") for h in (16, 24, 48, 96, 128)]
        shapes += [shape(h, *large, tokens=4) for h in (12, 96)]
        more = [
            (1, 262144),
            (1, 1048576),
            (4, 65536),
            (8, 16384),
            (8, 262144),
            (16, 4096),
            (32, 4096),
            (32, 16384),
            (128, 4096),
            (512, 4096),
        ]
        shapes += [shape(h, *n) for h in (12, 96) for n in more]
        shapes += [shape(h, 1, n) for h in (16, 96) for n in (4096, 16384, 65536)]
        grid = [(b, n) for b in (1, 4, 16, 64, 256) for n in (4096, 16384, 65536, 262144, 1048576) if b * n <= 1 << 24]
        shapes += [shape(h, *n) for h in (12, 24, 32, 48, 64, 96) for n in grid]
        few = [(1, 4096), (1, 65536), (1, 1048576), (16, 4096), (16, 65536), (64, 16384), (256, 16384), (16, 1048576)]
        shapes += [shape(h, *n) for h in (4, 128) for n in few]
        shapes += [shape(h, *n, "fp8") for h in (12, 32, 96) for n in few]
    return [case(**s) for s in {tuple(s.values()): s for s in shapes}.values()]
