"""KDA prefill: whole prompts of many sequences, in chunks of 64 tokens, through two kernels.

With G the inclusive sum of the log decays inside a chunk (per channel), and rows i >= j of the chunk,

    A_kk[i,j] = sum_c k_ic k_jc exp(G_ic - G_jc)  (i > j)      A_qk[i,j] = sum_c q_ic k_jc exp(G_ic - G_jc)
    M = (I + diag(beta) A_kk)^-1 diag(beta)       n = M (v - exp(G) k S^T)
    o = exp(G) q S^T + A_qk n                     S^T <- exp(G_last) S^T + (exp(G_last - G) k)^T n

`prepare_chunks`, one program a chunk and head, writes exp(G) k, exp(G) q, exp(G_last - G) k, M and A_qk in fp16; q and
k are not normalised there yet: |k| and |q| are known last, scale M, and reach the scan as vectors.
`scan_chunks`, one a sequence, head and slice of V, walks the chunks with S in registers. Chunks end at every requested
snapshot boundary, which may be any token, so a snapshot is one more store of S. Equations: arXiv 2510.26692, section 3.

What is at most about 1, or as large as q, k, v or S, is rounded to fp16, which keeps three bits more than bf16 (the
peers' choice): they must stay below 65504. Log decays are rounded once to 11 bits and then summed without error.

No exponent overflows where it counts: rows of the second half chunk meet columns of the first through the border
between them (both factors at most 1), and pairs inside a half through a fixed centre, which bf16's range allows while
32 tokens decay by no more than 2^-LIMIT: always with lower_bound >= -5. Faster gates take an exact path, by chunk.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kvplan_kernels import kda_decode
from kvplan_kernels.case import Case, Shape, Traffic, Work, relative_error, tensor
from kvplan_kernels.kda_chunks import prepare_chunks, scan_chunks
from kvplan_kernels.kda_decode import Layout

CHUNK = 64
SLAB = 256  # chunks whose intermediates are held at once; the state carries over from slab to slab


class Plan(NamedTuple):
    """How a batch is cut into chunks; made once a step on the host and shared by all layers. int32 tensors."""

    first_chunk: torch.Tensor  # [sequences + 1]
    chunk_start: torch.Tensor  # [chunks] first token
    chunk_tokens: torch.Tensor  # [chunks] 1 to 64
    snapshot: torch.Tensor  # [chunks] slot that takes the state after this chunk, or -1


def plan(
    cu_seqlens: Sequence[int], snapshots: Sequence[tuple[int, int, int]] = (), device: str | torch.device = "cpu"
) -> Plan:
    """Cut tokens cu_seqlens[n] to cu_seqlens[n+1] into chunks; `snapshots` are (sequence, tokens into it, slot)."""
    wanted = {(seq, tokens): slot for seq, tokens, slot in snapshots}
    first, start, size, keep = [0], [], [], []
    for seq, (begin, end) in enumerate(pairwise(cu_seqlens)):
        at = 0
        for stop in sorted({tokens for s, tokens in wanted if s == seq} | {end - begin}):
            if not 0 < stop <= end - begin and (seq, stop) in wanted:
                raise ValueError(f"snapshot at token {stop} of sequence {seq}, which has {end - begin}")
            while at < stop:
                tokens = min(CHUNK, stop - at)
                start.append(begin + at)
                size.append(tokens)
                at += tokens
                keep.append(wanted.get((seq, at), -1))
        first.append(len(start))
    return Plan(*(torch.tensor(x, dtype=torch.int32, device=device) for x in (first, start, size, keep)))


Config = tuple[dict[str, int], dict[str, int]]  # of prepare_chunks, of scan_chunks


def configuration(heads: int, sequences: int) -> Config:
    """The widest slice of V that still gives most of a large GPU's multiprocessors a program."""
    prepare = {"C": 32, "num_warps": 4, "num_stages": 3}
    if heads * sequences > 64:
        return prepare, {"BV": 128, "LEFT": True, "STAGES": 2, "num_warps": 8}
    width, stages = (16, 3) if heads * sequences <= 16 else (32, 3) if heads * sequences <= 32 else (64, 2)
    return prepare, {"BV": width, "LEFT": False, "STAGES": stages, "num_warps": 4}


def kda_prefill(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, b: torch.Tensor,
    state: torch.Tensor, slots: torch.Tensor, chunks: Plan, resume: torch.Tensor,
    A_log: torch.Tensor, dt_bias: torch.Tensor, *, lower_bound: float | None = None, scale: float | None = None,
    layout: Layout = "vk", out: torch.Tensor | None = None, config: Config | None = None, slab: int = SLAB,
) -> torch.Tensor:  # fmt: skip
    """Prefill a packed batch; returns o [T,H,V] in q's dtype, leaves every sequence's final state in its slot.

    q, k, g [T,H,K], v [T,H,V] bf16: heads and channels contiguous, any stride between tokens
    (of v, a multiple of 8). b [T,H] contiguous. `state`,
    `slots`, A_log, dt_bias as in `kda_decode`; a sequence with a negative slot is skipped. `resume` [N] int: nonzero
    continues from what the slot holds, zero starts from nothing. Snapshots go to their own slots of the same pool.
    K is 64 or 128, V a multiple of 64. Workspace: 65 KiB a chunk and head (K = 128), `slab` chunks at once.
    """
    T, H, K = q.shape
    V = v.shape[-1]
    out = torch.empty(T, H, V, dtype=q.dtype, device=q.device) if out is None else out
    n_chunks, sequences = chunks.chunk_start.numel(), chunks.first_chunk.numel() - 1
    if not n_chunks:
        state[slots[(resume == 0) & (slots >= 0)].long()] = 0
        return out
    at_once = min(slab, n_chunks)
    wide = [q.new_empty(at_once * H * CHUNK, K, dtype=torch.float16) for _ in range(3)]
    square = [q.new_empty(at_once * H * CHUNK, CHUNK, dtype=torch.float16) for _ in range(2)]
    scales = [q.new_empty(at_once * H, n, dtype=torch.float32) for n in (CHUNK, CHUNK, K)]
    prepare, tile = config or configuration(H, sequences)
    maps = [TensorDescriptor(v, [T, H * V], [v.stride(0), 1], [CHUNK, tile["BV"]])]
    maps += [TensorDescriptor.from_tensor(x, [CHUNK, x.shape[1]]) for x in (*wide, *square)]
    scale, bound = K**-0.5 if scale is None else scale, lower_bound or 0.0
    for chunk0 in range(0, n_chunks, at_once):
        chunk1 = min(chunk0 + at_once, n_chunks)
        prepare_chunks[(H, chunk1 - chunk0)](
            q, k, g, b, A_log, dt_bias, chunks.chunk_start, chunks.chunk_tokens, *wide, *square, *scales,
            q.stride(0), k.stride(0), g.stride(0), chunk0, scale, bound, H=H, K=K,
            BOUNDED=lower_bound is not None, EXACT=lower_bound is None or lower_bound < -5.0, **prepare,
        )  # fmt: skip
        scan_chunks[(V // tile["BV"], H, sequences)](
            *maps, *scales, out, state, slots, resume, *chunks, chunk0, chunk1,
            H=H, K=K, V=V, V_FIRST=layout == "vk", **tile,
        )  # fmt: skip
    return out


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, b: torch.Tensor, state: torch.Tensor,
    A_log: torch.Tensor, dt_bias: torch.Tensor, lower_bound: float | None = None, scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """One sequence, token by token, in fp64: q.. [T,H,.], state [H,V,K]; o [T,H,V] and every state [T,H,V,K]."""
    s, outs, states = state.double()[None], [], []
    for t in range(q.shape[0]):
        one = slice(t, t + 1)
        o, s = kda_decode.reference(q[one], k[one], v[one], g[one], b[one], s, A_log, dt_bias, lower_bound, scale)
        outs.append(o)
        states.append(s)
    return torch.cat(outs), torch.cat(states)


def traffic(T: int, H: int, K: int, V: int, sequences: int, snapshots: int = 0) -> Traffic:
    """q, k, v, g read and o written in bf16, b, initial and final fp32 states, snapshots; 6KV FLOPs a token and head.

    The least any chunking needs; what our two kernels move beyond it (about 130 KiB a chunk and head) is overhead.
    """
    states = (2 * sequences + snapshots) * H * K * V * 4
    return Traffic(T * H * (2 * (3 * K + 2 * V) + 2) + states, 6 * T * H * K * V)


def _work(shape: Shape, device: torch.device) -> Work:
    """`gate` fast: mean log decay about -3 a token, FlashKDA's own benchmark; slow: half the channels about -0.001."""
    H, N, T, every = (int(shape[x]) for x in ("heads", "sequences", "tokens", "snapshot_every"))
    K = V = 128
    q, k, v, g = (tensor((N * T, H, K), n, device) for n in range(4))
    b, A_log, dt_bias = tensor((N * T, H), 4, device), torch.rand(H, device=device), torch.rand(H, K, device=device)
    if shape["gate"] == "slow":
        dt_bias[:, ::2] -= 9.0
    wanted = (
        [(n, (i + 1) * every, N + n * (T // every) + i) for n in range(N) for i in range(T // every)] if every else []
    )
    pool, zeros = torch.zeros(N + len(wanted), H, V, K, device=device), torch.zeros(N, dtype=torch.int32, device=device)
    chunks, slots = (
        plan([n * T for n in range(N + 1)], wanted, device),
        torch.arange(N, dtype=torch.int32, device=device),
    )
    out = torch.empty(N * T, H, V, dtype=q.dtype, device=device)

    def call() -> torch.Tensor:
        return kda_prefill(q, k, v, g, b, pool, slots, chunks, zeros, A_log, dt_bias, lower_bound=-5.0, out=out)

    def check() -> float:
        n, few, state = min(T, 333), slice(0, min(T, 333)), torch.zeros(1, H, V, K, device=device)
        q0, k0, v0, g0, b0 = (t[few] for t in (q, k, v, g, b))
        first, one = plan([0, n], (), device), zeros[:1]
        got = kda_prefill(q0, k0, v0, g0, b0, state, one, first, one, A_log, dt_bias, lower_bound=-5.0)
        q0, k0, v0, g0, b0 = (t[:, :2] for t in (q0, k0, v0, g0, b0))
        nothing = torch.zeros(2, V, K, device=device)
        want, states = reference(q0, k0, v0, g0, b0, nothing, A_log[:2], dt_bias[:2], -5.0)
        return max(relative_error(got[:, :2], want), relative_error(state[0, :2], states[-1]))

    return Work([call], check, traffic(N * T, H, K, V, N, len(wanted)), 1e-2)


def case(**shape: int | str) -> Case:
    return Case("kda_prefill", shape, partial(_work, shape), "matmul")


def cases(suite: str) -> list[Case]:
    """Prompts of 1K to 128K tokens on the heads of a rank; both gates; snapshots; several sequences at once."""

    def shape(heads: int, tokens: int, gate: str = "fast", every: int = 0, sequences: int = 1) -> Shape:
        return {"heads": heads, "sequences": sequences, "tokens": tokens, "gate": gate, "snapshot_every": every}

    shapes = [shape(h, 8192, gate) for h in (96, 12) for gate in ("fast", "slow")]
    shapes += [shape(h, 8192, every=1536) for h in (96, 12)]
    if suite == "full":
        shapes += [shape(h, t) for h in (96, 12) for t in (1024, 2048, 4096, 16384, 32768, 65536, 131072)]
        shapes += [shape(h, t) for h in (48, 24, 6, 32, 16, 8, 4, 2) for t in (1024, 4096, 8192, 32768)]
        shapes += [shape(h, 1024, sequences=n) for h in (96, 32, 12, 4) for n in (2, 8, 32)]
        shapes += [
            shape(h, t, sequences=n) for h in (96, 32, 12, 4) for n, t in ((4, 8192), (4, 2048), (2, 8192), (8, 4096))
        ]
    return [case(**s) for s in shapes]
