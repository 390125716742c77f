"""KDA decode and the short convolution against their fp64 references."""

import pytest

torch = pytest.importorskip("torch", reason="kernel tests need torch (its CPU build will do) and triton")
from kvplan_kernels import kda_decode, short_conv  # noqa: E402
from kvplan_kernels.case import relative_error, tensor  # noqa: E402

TOLERANCE = 1e-2
HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def tokens(B, H, K, V, spread=1.0, seed=0):
    q, k, g = (tensor((B, H, K), seed + i, HERE) for i in range(3))
    v, b = tensor((B, H, V), seed + 3, HERE), tensor((B, H), seed + 4, HERE)
    A_log, dt_bias = tensor((H,), seed + 5, HERE, torch.float32), tensor((H, K), seed + 6, HERE, torch.float32)
    return q, k, v, (g * spread).to(torch.bfloat16), b, A_log, dt_bias


def run(B, H, K, V, dtype, layout, lower_bound, spread=1.0, config=None, padded=()):
    """Decode in a pool with guard slots; the errors of o and of the states, having checked what must not move."""
    q, k, v, g, b, A_log, dt_bias = tokens(B, H, K, V, spread)
    dense = tensor((B, H, V, K), 9, HERE, torch.float32).to(dtype)
    pool = torch.full((B + 2, H, V, K), 7.0, dtype=dtype)
    slots = torch.randperm(B, generator=torch.Generator(device=HERE).manual_seed(1)).int() + 1
    pool[slots.long()] = dense
    slots[list(padded)] = -1
    pool = pool if layout == "vk" else pool.transpose(2, 3).contiguous()
    before, out = pool.clone(), torch.full((B, H, V), float("nan"), dtype=q.dtype)
    kda_decode.kda_decode(
        q, k, v, g, b, pool, slots, A_log, dt_bias, lower_bound=lower_bound, layout=layout, out=out, config=config
    )
    want_o, want_s = kda_decode.reference(q, k, v, g, b, dense, A_log, dt_bias, lower_bound)
    live = slots >= 0
    untouched = torch.ones(B + 2, dtype=torch.bool)
    untouched[slots[live].long()] = False
    assert torch.equal(pool[untouched], before[untouched])
    assert bool(torch.isnan(out[~live]).all())
    got_s = pool[slots[live].long()] if layout == "vk" else pool[slots[live].long()].transpose(2, 3)
    return relative_error(out[live], want_o[live]), relative_error(got_s, want_s[live])


@pytest.mark.parametrize("lower_bound", [None, -5.0])
@pytest.mark.parametrize("layout", ["vk", "kv"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layouts_and_gates(dtype, layout, lower_bound):
    # K != V: a transposed state cannot hide
    assert max(run(2, 1, 128, 64, dtype, layout, lower_bound)) < TOLERANCE


@pytest.mark.parametrize("rows", [1, 64, 4000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_configuration(rows, dtype):
    config = kda_decode.configuration(rows, dtype, "vk")
    assert max(run(1, 1, 128, 64, dtype, "vk", -5.0, config=config)) < TOLERANCE


def test_one_head_odd_batch_and_padding():
    assert max(run(3, 1, 128, 32, torch.float32, "vk", -5.0, padded=(1,))) < TOLERANCE


def test_empty_batch_and_all_padding():
    q, k, v, g, b, A_log, dt_bias = tokens(0, 2, 64, 32)
    pool = torch.ones(1, 2, 32, 64)
    out = kda_decode.kda_decode(q, k, v, g, b, pool, torch.empty(0, dtype=torch.int32), A_log, dt_bias)
    assert out.shape == (0, 2, 32)
    q, k, v, g, b, A_log, dt_bias = tokens(2, 1, 64, 32)
    pool = torch.ones(1, 1, 32, 64)
    kda_decode.kda_decode(q, k, v, g, b, pool, torch.tensor([-1, -1]), A_log, dt_bias)
    assert bool((pool == 1).all())


@pytest.mark.parametrize("lower_bound", [None, -5.0])
@pytest.mark.parametrize("spread", [0.0, 300.0])
def test_extreme_gates(spread, lower_bound):
    assert max(run(1, 2, 64, 16, torch.float32, "vk", lower_bound, spread=spread)) < TOLERANCE


def test_strided_tokens():
    """q, k and v may be views of one packed row, as a fused convolution leaves them."""
    packed = tensor((2, 3, 1, 64), 0, HERE)
    _, _, _, g, b, A_log, dt_bias = tokens(2, 1, 64, 64)
    dense = tensor((2, 1, 64, 64), 9, HERE, torch.float32)
    q, k, v = packed[:, 0], packed[:, 1], packed[:, 2]
    pool = dense.clone()
    out = kda_decode.kda_decode(q, k, v, g, b, pool, torch.arange(2), A_log, dt_bias, lower_bound=-5.0)
    want_o, want_s = kda_decode.reference(q, k, v, g, b, dense, A_log, dt_bias, -5.0)
    assert max(relative_error(out, want_o), relative_error(pool, want_s)) < TOLERANCE


@pytest.mark.parametrize(("B", "D", "W"), [(3, 300, 4), (1, 256, 2), (2, 1, 3)])
def test_short_conv(B, D, W):
    x, weight = tensor((B, D), 0, HERE), tensor((D, W), 1, HERE)
    pool = tensor((B + 2, W - 1, D), 2, HERE)
    slots = torch.arange(B).flip(0) + 1
    slots[0] = -1 if B > 1 else slots[0]
    before, out = pool.clone(), torch.full((B, D), float("nan"), dtype=torch.bfloat16)
    short_conv.conv_step(x, weight, pool, slots, out)
    live = slots >= 0
    want_y, want_s = short_conv.reference(x[live], weight, before[slots[live]])
    assert relative_error(out[live], want_y) < TOLERANCE
    assert relative_error(pool[slots[live]], want_s) == 0.0
    assert torch.equal(pool[0], before[0])
    assert torch.equal(pool[-1], before[-1])
    assert bool(torch.isnan(out[~live]).all())
