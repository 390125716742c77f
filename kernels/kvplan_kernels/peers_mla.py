"""MLA decode of other owners on our paged cache: FlashInfer, and the Triton kernels of SGLang and vLLM.

Versions read: FlashInfer 0.7.4, SGLang 0.5.23, vLLM 0.33.0. What an engine makes once a step (plans, split counts, page
lists) is made outside of the timed call, as ours is.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from kvplan_kernels import mla_decode
from kvplan_kernels.case import Shape, Work, buffers_for, relative_error, tensor

LATENT, ROPE, PAGE, SCALE = 512, 64, 64, 192**-0.5
SGLANG_SPLITS = 8  # its --triton-attention-num-kv-splits


class Batch(NamedTuple):
    """q [B,H,576] bf16, table [B,pages] int32, lengths [B] int32, all `context` long."""

    q: torch.Tensor
    table: torch.Tensor
    lengths: torch.Tensor
    context: int


Step = Callable[[torch.Tensor], torch.Tensor]  # cache [pages,64,576] bf16; o [B,H,512]


def flashinfer(x: Batch) -> Step:
    from flashinfer.mla import BatchMLAPagedAttentionWrapper

    B, H, _ = x.q.shape
    where = x.q.device
    wrapper = BatchMLAPagedAttentionWrapper(torch.empty(128 << 20, dtype=torch.int8, device=where), backend="auto")
    starts = torch.arange(B + 1, dtype=torch.int32, device=where)
    wrapper.plan(
        starts, starts * x.table.shape[1], x.table.flatten(), x.lengths, H, LATENT, ROPE, PAGE, False, SCALE,
        torch.bfloat16, torch.bfloat16,
    )  # fmt: skip
    q_nope, q_pe = x.q[..., :LATENT].contiguous(), x.q[..., LATENT:].contiguous()
    out = x.q.new_empty(B, H, LATENT)

    def step(cache: torch.Tensor) -> torch.Tensor:
        o: torch.Tensor = wrapper.run(q_nope, q_pe, cache[..., :LATENT], cache[..., LATENT:], out=out)
        return o

    return step


def sglang(x: Batch) -> Step:
    from sglang.kernels.ops.attention.decode_attention import decode_attention_fwd

    B, H, _ = x.q.shape
    where = x.q.device
    starts = torch.arange(B + 1, dtype=torch.int32, device=where) * x.context
    token = torch.arange(x.context, device=where)
    indices = (x.table[:, token // PAGE].long() * PAGE + token % PAGE).flatten()
    splits = torch.full((B,), SGLANG_SPLITS, dtype=torch.int32, device=where)
    logits = torch.empty(B, H, SGLANG_SPLITS, LATENT, device=where)
    lse, out = torch.empty(B, H, SGLANG_SPLITS, device=where), x.q.new_empty(B, H, LATENT)

    def step(cache: torch.Tensor) -> torch.Tensor:
        flat = cache.view(-1, 1, LATENT + ROPE)
        decode_attention_fwd(
            x.q, flat, flat[..., :LATENT], out, starts, indices, logits, lse, splits, SGLANG_SPLITS, SCALE, 1.0, 1.0,
            has_mla=True,
        )  # fmt: skip
        return out

    return step


def vllm(x: Batch) -> Step:
    """Splits as its Triton backend counts them: one for 512 tokens, a power of two, at most two a multiprocessor."""
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd

    B, H, _ = x.q.shape
    where = x.q.device
    sms = torch.cuda.get_device_properties(where).multi_processor_count
    splits = min(1 << max(0, (max(1, x.context // 512) - 1).bit_length()), 2 * sms)
    logits, lse = torch.empty(B, H, splits, LATENT + 1, device=where), x.q.new_empty(B, H)
    out = x.q.new_empty(B, H, LATENT)

    def step(cache: torch.Tensor) -> torch.Tensor:
        paged = cache.unsqueeze(2)
        decode_attention_fwd(
            x.q, paged, paged[..., :LATENT], out, lse, x.table, x.lengths, logits, splits, SCALE, PAGE, is_mla=True
        )
        return out

    return step


Make = Callable[[Batch], Step]
DECODE: dict[str, Make] = {"flashinfer": flashinfer, "sglang": sglang, "vllm": vllm}


def decode(make: Make, shape: Shape, device: torch.device) -> Work:
    H, B, context = (int(shape[name]) for name in ("heads", "batch", "context"))
    pages = -(-context // PAGE)
    size = B * pages * PAGE * (LATENT + ROPE)
    caches = [tensor((B * pages, PAGE, LATENT + ROPE), n, device) for n in range(buffers_for(2 * size, most=64))]
    table = torch.randperm(B * pages, device=device).view(B, pages).int()
    q, lengths = tensor((B, H, LATENT + ROPE), 99, device), torch.full((B,), context, dtype=torch.int32, device=device)
    step = make(Batch(q, table, lengths, context))

    def check() -> float:
        want = mla_decode.reference(q[:2, None], caches[0], table[:2], [context] * min(B, 2), SCALE)
        return relative_error(step(caches[0])[:2], want[:, 0])

    return Work([partial(step, c) for c in caches], check, mla_decode.traffic([context] * B, 1, H, 2), 1e-2)
