"""Other owners' kernels, timed on the same inputs where their packages are installed: flash-linear-attention's KDA."""

from functools import partial
from importlib.util import find_spec

import torch

from kvplan_kernels import kda_decode, kda_prefill
from kvplan_kernels.case import Case, Shape, Work, buffers_for, relative_error, tensor


def _inputs(
    shape: tuple[int, ...], device: torch.device
) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v, g of [...,H,128]; b [...,H]; A_log [H]; dt_bias [H,128]."""
    H = shape[-1]
    data = [tensor((*shape, 128), n, device) for n in range(4)]
    return data, tensor(shape, 4, device), torch.rand(H, device=device), torch.rand(H, 128, device=device)


def _decode(shape: Shape, device: torch.device) -> Work:
    from fla.ops.kda import fused_recurrent_kda

    H, B = int(shape["heads"]), int(shape["batch"])
    (q, k, v, g), b, A_log, dt_bias = _inputs((B, H), device)
    work = kda_decode.traffic(B, H, 128, 128, 4)
    states = [torch.randn(B, H, 128, 128, device=device) for _ in range(buffers_for(work.bytes))]

    def call(state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result: tuple[torch.Tensor, torch.Tensor] = fused_recurrent_kda(
            q[:, None], k[:, None], v[:, None], g[:, None], b[:, None], A_log=A_log, dt_bias=dt_bias.flatten(),
            initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, lower_bound=-5.0, state_v_first=True,
        )  # fmt: skip
        return result

    def check() -> float:
        got, few = call(states[0])[0], slice(0, min(B, 2))
        want, _ = kda_decode.reference(q[few], k[few], v[few], g[few], b[few], states[0][few], A_log, dt_bias, -5.0)
        return relative_error(got[few, 0], want)

    return Work([partial(call, s) for s in states], check, work, 1e-2)


def _prefill(shape: Shape, device: torch.device) -> Work:
    from fla.ops.kda import chunk_kda

    H, T = int(shape["heads"]), int(shape["tokens"])
    (q, k, v, g), b, A_log, dt_bias = _inputs((1, T, H), device)

    def call() -> torch.Tensor:
        result: torch.Tensor = chunk_kda(
            q, k, v, g, torch.sigmoid(b), A_log=A_log, dt_bias=dt_bias.flatten(), output_final_state=True,
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, safe_gate=True, lower_bound=-5.0,
        )[0]  # fmt: skip
        return result

    def check() -> float:
        q0, k0, v0, g0, b0 = (t[0, :128, :2] for t in (q, k, v, g, b))
        nothing = torch.zeros(2, 128, 128, device=device)
        want, _ = kda_prefill.reference(q0, k0, v0, g0, b0, nothing, A_log[:2], dt_bias[:2], -5.0)
        return relative_error(call()[0, :128, :2], want)

    return Work([call], check, kda_prefill.traffic(T, H, 128, 128, 1), 2e-2)


def cases(suite: str) -> list[Case]:
    """The suite `peers` alone: the owner's own tuning on first use can take a minute a shape."""
    if suite != "peers" or find_spec("fla") is None:
        return []
    decode: list[Shape] = [
        {"heads": h, "batch": n, "state": "fp32", "layout": "vk"} for h in (96, 12) for n in (1, 64, 256)
    ]
    prefill: list[Shape] = [
        {"heads": h, "sequences": 1, "tokens": 8192, "gate": "fast", "snapshot_every": 0} for h in (96, 12)
    ]
    return [
        *(Case("kda_decode", s, partial(_decode, s), "inplace", "fla") for s in decode),
        *(Case("kda_prefill", s, partial(_prefill, s), "matmul", "fla") for s in prefill),
    ]
