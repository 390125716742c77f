"""What a bf16 recurrent state costs in accuracy: our kernels against the exact recurrence over up to a million tokens.

`exact` walks the KDA recurrence in fp64, token by token, on the same bf16 inputs. Two ways to serve them are compared
with it: decode, where the state goes to memory and back at every token, and prefill in calls of CALL tokens, where it
stays in fp32 registers and goes to memory after each call. A bf16 state is rounded to nearest even at each of those
stores. Outputs are written in fp32 here, so that their own rounding to bf16 (about 1.7e-3) is not in the figures.
Inputs are synthetic: independent normal q, k, v, as no model produces them; what they show is growth, not quality.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from kvplan_kernels import calibration, runner, table, timing
from kvplan_kernels.case import relative_error, tensor
from kvplan_kernels.kda_decode import kda_decode
from kvplan_kernels.kda_inputs import Inputs
from kvplan_kernels.kda_prefill import kda_prefill, plan

LENGTHS = tuple(1024 * 4**n for n in range(6))  # 1K to 1M tokens
WINDOW = 1024  # outputs compared: the last so many before each length
CALL = 8192  # tokens of a prefill call
HEADS, DIM, LOWER_BOUND = 2, 128, -5.0
GATES = {  # what is added to the gate's logit in every second channel, and to beta's: by how much each token changes S
    "fast": (0.0, 0.0),  # mean log decay about -3 a token
    "slow": (-9.0, 0.0),  # half of the channels about -0.001 a token
    "still": (-14.0, -4.0),  # half of the channels about -1e-5 a token, and writes at a fiftieth of their strength
}


@triton.jit
def _exact(
    q, k, v, g, b, A_log, dt_bias, state, out, T, lower_bound, H: tl.constexpr, K: tl.constexpr, BV: tl.constexpr
):
    """Program (BV value rows, head): T tokens in fp64; `out` lacks the scale, which fp32 arguments would round."""
    head = tl.program_id(1)
    r, c = tl.program_id(0) * BV + tl.arange(0, BV), tl.arange(0, K)
    tile = state + head * K * K + r[:, None] * K + c[None, :]
    s = tl.load(tile)
    rate = tl.exp(tl.load(A_log + head).to(tl.float64))
    bias = tl.load(dt_bias + head * K + c).to(tl.float64)
    for t in range(T):
        at = (t * H + head) * K
        kx, qx = tl.load(k + at + c).to(tl.float64), tl.load(q + at + c).to(tl.float64)
        vx = tl.load(v + at + r).to(tl.float64)
        a = lower_bound / (1.0 + tl.exp(-rate * (tl.load(g + at + c).to(tl.float64) + bias)))
        beta = 1.0 / (1.0 + tl.exp(-tl.load(b + t * H + head).to(tl.float64)))
        kx = kx / tl.sqrt(tl.sum(kx * kx, 0) + 1e-6)
        qx = qx / tl.sqrt(tl.sum(qx * qx, 0) + 1e-6)
        s = s * tl.exp(a)[None, :]
        u = beta * (vx - tl.sum(s * kx[None, :], 1))
        s += u[:, None] * kx[None, :]
        tl.store(out + at + r, tl.sum(s * qx[None, :], 1))
    tl.store(tile, s)


def exact(x: Inputs, state: torch.Tensor) -> torch.Tensor:
    """The recurrence of `kda_decode` in fp64; state [H,128,128] fp64 is updated in place, returns o [T,H,128] fp64."""
    T, H, K = x.q.shape
    out = torch.empty(T, H, K, dtype=torch.float64, device=x.q.device)
    _exact[(K // 4, H)](*x, state, out, T, LOWER_BOUND, H=H, K=K, BV=4, num_warps=1)
    return out * K**-0.5


def inputs(T: int, gate: str, where: torch.device) -> Inputs:
    """A_log is 0, so that the gates are what GATES says; log decays are -5 sigmoid(g + dt_bias)."""
    shift, write = GATES[gate]
    q, k, v, g = (tensor((T, HEADS, DIM), n, where) for n in range(4))
    b = (tensor((T, HEADS), 4, where).float() + write).bfloat16()
    dt_bias = torch.rand(HEADS, DIM, generator=torch.Generator(device=where).manual_seed(5), device=where)
    dt_bias[:, ::2] += shift
    return Inputs(q, k, v, g, b, torch.zeros(HEADS, device=where), dt_bias)


Point = tuple[torch.Tensor, torch.Tensor]  # outputs of the last WINDOW tokens [WINDOW,H,128], state [H,128,128]


def exact_points(x: Inputs, lengths: Sequence[int], window: int) -> Iterator[Point]:
    state = torch.zeros(HEADS, DIM, DIM, dtype=torch.float64, device=x.q.device)
    for begin, end in pairwise((0, *lengths)):
        exact(x.tokens(begin, end - window), state)
        yield exact(x.tokens(end - window, end), state), state.clone()


def decode_points(x: Inputs, dtype: torch.dtype, lengths: Sequence[int], window: int) -> Iterator[Point]:
    """Token by token; `window` steps are one CUDA graph, over inputs that are copied to where the graph reads."""
    where = x.q.device
    pool = torch.zeros(1, HEADS, DIM, DIM, dtype=dtype, device=where)
    slot, out = torch.zeros(1, dtype=torch.int32, device=where), torch.empty(window, HEADS, DIM, device=where)
    held = Inputs(*(torch.empty_like(t[:window]) for t in x[:5]), x.A_log, x.dt_bias)
    calls = [partial(_decode, held.tokens(t, t + 1), pool, slot, out[t : t + 1]) for t in range(window)]
    held.b.zero_()
    replay = timing.replayable(calls) if where.type == "cuda" else lambda: [call() for call in calls]
    pool.zero_()
    for begin in range(0, lengths[-1], window):
        for to, come in zip(held[:5], x.tokens(begin, begin + window)[:5], strict=True):
            to.copy_(come)
        replay()
        if begin + window in lengths:
            yield out.clone(), pool[0].clone()


def _decode(x: Inputs, pool: torch.Tensor, slot: torch.Tensor, out: torch.Tensor) -> None:
    kda_decode(*x[:5], pool, slot, x.A_log, x.dt_bias, lower_bound=LOWER_BOUND, out=out)


def prefill_points(x: Inputs, dtype: torch.dtype, lengths: Sequence[int], window: int) -> Iterator[Point]:
    """In calls of at most CALL tokens, one ending at each length."""
    where = x.q.device
    pool = torch.zeros(1, HEADS, DIM, DIM, dtype=dtype, device=where)
    slot, resume = (torch.full((1,), n, dtype=torch.int32, device=where) for n in (0, 1))
    for begin, end in pairwise(sorted({*range(0, lengths[-1], CALL), *lengths})):
        part, out = x.tokens(begin, end), torch.empty(end - begin, HEADS, DIM, device=where)
        chunks = plan([0, end - begin], (), where)
        kda_prefill(
            *part[:5], pool, slot, chunks, resume, x.A_log, x.dt_bias, lower_bound=LOWER_BOUND, out=out
        )  # fmt: skip
        if end in lengths:
            yield out[-window:].clone(), pool[0].clone()


def study(
    where: torch.device, lengths: Sequence[int] = LENGTHS, window: int = WINDOW, say: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """Relative errors, one row a gate, path, state type and length; lengths are multiples of `window`."""
    rows = []
    for gate in GATES:
        x = inputs(lengths[-1], gate, where)
        want = list(exact_points(x, lengths, window))
        for path, points in (("decode", decode_points), ("prefill", prefill_points)):
            for state, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
                say(f"{gate} gate, {path}, {state} state")
                for tokens, (o, s), (o_want, s_want) in zip(
                    lengths, points(x, dtype, lengths, window), want, strict=True
                ):
                    errors = {"output_error": relative_error(o, o_want), "state_error": relative_error(s, s_want)}
                    rows.append({"gate": gate, "path": path, "state": state, "tokens": tokens, **errors})
    return rows


def run(path: Path, command: str) -> int:
    """Measure and write the study; prints its table. Raises ValueError while another run writes `path`."""
    new = runner.new_document(command)
    with calibration.only_writer(path):
        rows = study(torch.device("cuda"), say=lambda line: None)
        about = {"heads": HEADS, "head_dim": DIM, "window_tokens": WINDOW, "prefill_call_tokens": CALL}
        head = {name: new[name] for name in ("device", "versions", "source")}
        calibration.write(path, {**head, "study": about, "errors": rows}, calibration.PRECISION_SCHEMA)
    print(table.aligned(*table.precision(rows)))
    return 0
