"""Movement kernels, and attention as prefill runs it, against plain torch."""

import pytest

torch = pytest.importorskip("torch", reason="kernel tests need torch (its CPU build will do) and triton")
from kvplan_kernels import copy, gemm, mla_prefill  # noqa: E402
from kvplan_kernels.case import relative_error, tensor  # noqa: E402

TOLERANCE = 1e-2
HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("size", [1, 1023, 5000])
@pytest.mark.parametrize("how", ["read", "write", "copy", "inplace"])
def test_move(how, size):
    source = tensor((size,), 0, HERE, torch.float32)
    target = source.clone() if how == "inplace" else torch.full((1 if how == "read" else size,), float("nan"))
    copy.move(target if how == "inplace" else source, target, how)
    want = {"read": source.sum()[None] * 1.0001, "write": torch.ones(size)}.get(how, source * 1.0001)
    assert relative_error(target, want) < TOLERANCE


@pytest.mark.parametrize(("P", "E", "N"), [(1, 1, 13), (3, 5, 8)])
def test_gemv_reads_the_named_experts(P, E, N):
    x, weight = tensor((P, 512), 0, HERE), tensor((E, N, 512), 1, HERE)
    expert = torch.arange(E).flip(0)[:P].int()
    out = copy.gemv(x, weight, expert, torch.full((P, N), float("nan"), dtype=torch.bfloat16))
    assert relative_error(out, copy.gemv_reference(x, weight, expert)) < TOLERANCE


def test_mla_prefill():
    q, k, v = (tensor((1, 2, 37, n), n, HERE) for n in (192, 192, 128))
    assert relative_error(mla_prefill.mla_prefill(q, k, v), mla_prefill.reference(q, k, v)) < TOLERANCE


def test_mla_prefix_sees_all_of_it():
    q, k, v = (tensor((1, 2, t, n), n, HERE) for t, n in ((5, 192), (37, 192), (37, 128)))
    got = mla_prefill.mla_prefill(q, k, v, causal=False)
    assert relative_error(got, mla_prefill.reference(q, k, v, causal=False)) < TOLERANCE
    assert mla_prefill.traffic(5, 2, 37).flops == 2 * 2 * 5 * 37 * (
        192 + 128
    )  # a product and a sum for q k and for p v


@pytest.mark.parametrize("format", ["bf16", "fp8"])
def test_gemm_checks_what_it_computes(format):
    work = gemm.case("gemm", tokens=3, rows=48, columns=32, format=format).prepare(HERE)
    assert work.check() < TOLERANCE
    assert work.traffic.flops == 2 * 3 * 48 * 32
    assert work.traffic.bytes == (2 if format == "bf16" else 1) * (48 * 32 + 3 * 32) + 2 * 3 * 48


def test_grouped_gemm_uses_each_tokens_expert():
    x, weight = tensor((6, 16), 0, HERE), tensor((3, 32, 16), 1, HERE)
    out = gemm.grouped_gemm(x, weight, torch.tensor([1, 1, 6], dtype=torch.int32))
    want = torch.cat([x[:1].double() @ weight[0].double().t(), x[1:].double() @ weight[2].double().t()])
    assert relative_error(out, want) < TOLERANCE
