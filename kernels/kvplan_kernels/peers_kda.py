"""KDA of other owners: one function an owner that turns our inputs into a call of its public function.

Versions read: fla-core 0.6.0, SGLang 0.5.23, vLLM 0.33.0. vLLM serves decode with a compiled kernel that also does the
convolution and the norm; timed here is the recurrence alone, which it falls back to.
"""

from collections.abc import Callable
from functools import partial

import torch

from kvplan_kernels import kda_decode, kda_prefill
from kvplan_kernels.case import Shape, Work, buffers_for, relative_error, tensor
from kvplan_kernels.kda_inputs import Inputs

BOUND = -5.0


Step = Callable[[torch.Tensor], torch.Tensor]  # pool [slots,H,128,128] fp32, updated in place or not; o [n,H,128]


def inputs(n: int, H: int, device: torch.device) -> Inputs:
    q, k, v, g = (tensor((n, H, 128), i, device) for i in range(4))
    b = tensor((n, H), 4, device)
    return Inputs(q, k, v, g, b, torch.rand(H, device=device), torch.rand(H, 128, device=device))


def fla_decode(x: Inputs) -> Step:
    from fla.ops.kda import fused_recurrent_kda

    def step(pool: torch.Tensor) -> torch.Tensor:
        o: torch.Tensor = fused_recurrent_kda(
            *(t[:, None] for t in x[:5]), A_log=x.A_log, dt_bias=x.dt_bias.flatten(), initial_state=pool[1:],
            output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
            use_beta_sigmoid_in_kernel=True, lower_bound=BOUND, state_v_first=True,
        )[0]  # fmt: skip
        return o[:, 0]

    return step


def sglang_decode(x: Inputs) -> Step:
    from sglang.kernels.ops.attention.fla.fused_recurrent import fused_recurrent_kda_packed_decode

    B, H, K = x.q.shape
    mixed, gate, out = x.packed(), x.g.flatten(1), x.q.new_empty(B, 1, H, K)
    slots = torch.arange(1, B + 1, dtype=torch.int32, device=x.q.device)

    def step(pool: torch.Tensor) -> torch.Tensor:
        fused_recurrent_kda_packed_decode(
            mixed_qkv=mixed, a=gate, b=x.b, A_log=x.A_log, dt_bias=x.dt_bias.flatten(), scale=K**-0.5,
            initial_state=pool, out=out, ssm_state_indices=slots, use_qk_l2norm_in_kernel=True, lower_bound=BOUND,
        )  # fmt: skip
        return out[:, 0]

    return step


def vllm_decode(x: Inputs) -> Step:
    from vllm.models.kimi_k3.nvidia.ops.third_party.kda import fused_recurrent_kda_packed_decode

    B = x.q.shape[0]
    mixed, out = x.packed(), x.q.new_empty(1, *x.q.shape)
    slots = torch.arange(1, B + 1, dtype=torch.int32, device=x.q.device)

    def step(pool: torch.Tensor) -> torch.Tensor:
        fused_recurrent_kda_packed_decode(
            mixed, x.g[None], x.b[None], x.A_log, x.dt_bias.flatten(), BOUND, pool, slots, out=out
        )
        return out[0]

    return step


def fla_prefill(x: Inputs) -> Step:
    from fla.ops.kda import chunk_kda

    q, k, v, g, b = (t[None] for t in x[:5])

    def step(pool: torch.Tensor) -> torch.Tensor:
        o: torch.Tensor = chunk_kda(
            q, k, v, g, torch.sigmoid(b), A_log=x.A_log, dt_bias=x.dt_bias.flatten(), output_final_state=True,
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, safe_gate=True, lower_bound=BOUND,
        )[0]  # fmt: skip
        return o[0]

    return step


def sglang_prefill(x: Inputs) -> Step:
    """Writes its output over v, so that a call works on what the call before left; its time does not depend on that."""
    from sglang.kernels.ops.attention.fla.kda import chunk_kda

    q, k, v, g, b = (t[None] for t in x[:5])
    ends = torch.tensor([0, q.shape[1]], dtype=torch.int32, device=q.device)
    slot = torch.zeros(1, dtype=torch.int32, device=q.device)

    def step(pool: torch.Tensor) -> torch.Tensor:
        o: torch.Tensor = chunk_kda(
            q=q, k=k, v=v, g=g, beta=b, initial_state=pool, initial_state_indices=slot, use_qk_l2norm_in_kernel=True,
            cu_seqlens=ends, A_log=x.A_log, dt_bias=x.dt_bias.flatten(), lower_bound=BOUND, beta_is_raw=True,
        )  # fmt: skip
        return o[0]

    return step


def vllm_prefill(x: Inputs) -> Step:
    from vllm.models.kimi_k3.nvidia.ops.third_party.kda import chunk_kda_with_fused_gate

    q, k, v, g, b = (t[None] for t in x[:5])
    ends = torch.tensor([0, q.shape[1]], dtype=torch.int32, device=q.device)

    def step(pool: torch.Tensor) -> torch.Tensor:
        o: torch.Tensor = chunk_kda_with_fused_gate(
            q, k, v, g, b, x.A_log, x.dt_bias.flatten(), initial_state=pool, output_final_state=True,
            lower_bound=BOUND, use_qk_l2norm_in_kernel=True, cu_seqlens=ends,
        )[0]  # fmt: skip
        return o[0]

    return step


Make = Callable[[Inputs], Step]
DECODE: dict[str, Make] = {"fla": fla_decode, "sglang": sglang_decode, "vllm": vllm_decode}
PREFILL: dict[str, Make] = {"fla": fla_prefill, "sglang": sglang_prefill, "vllm": vllm_prefill}


def decode(make: Make, shape: Shape, device: torch.device) -> Work:
    """Sequences have slots 1 to B: vLLM keeps slot 0 for padding."""
    H, B = int(shape["heads"]), int(shape["batch"])
    x, work = inputs(B, H, device), kda_decode.traffic(B, H, 128, 128, 4)
    pools = [torch.randn(B + 1, H, 128, 128, device=device) for _ in range(buffers_for(work.bytes))]
    step = make(x)

    def check() -> float:
        few = slice(0, min(B, 2))
        before = pools[0][1:][few].clone()
        want, _ = kda_decode.reference(*(t[few] for t in x[:5]), before, x.A_log, x.dt_bias, BOUND)
        return relative_error(step(pools[0])[few], want)

    return Work([partial(step, pool) for pool in pools], check, work, 1e-2)


def prefill(make: Make, shape: Shape, device: torch.device) -> Work:
    """One prompt that starts from nothing."""
    H, T = int(shape["heads"]), int(shape["tokens"])
    x, pool = inputs(T, H, device), torch.zeros(1, H, 128, 128, device=device)
    step = make(x)

    def check() -> float:
        few = [t[:128, :2].clone() for t in x[:5]]
        nothing = torch.zeros(2, 128, 128, device=device)
        want, _ = kda_prefill.reference(*few, nothing, x.A_log[:2], x.dt_bias[:2], BOUND)
        return relative_error(step(pool)[:128, :2], want)

    return Work([partial(step, pool)], check, kda_prefill.traffic(T, H, 128, 128, 1), 2e-2)
