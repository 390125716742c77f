"""KDA prefill against the token-by-token recurrence in fp64."""

import pytest

torch = pytest.importorskip("torch", reason="kernel tests need torch (its CPU build will do) and triton")
from kvplan_kernels import kda_prefill  # noqa: E402
from kvplan_kernels.case import relative_error, tensor  # noqa: E402

TOLERANCE = 1e-2
HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def check(lengths, H=1, K=64, V=64, dtype=torch.float32, layout="vk", lower_bound=-5.0, spread=1.0, snapshots=(),
          resumed=(), padded=(), slab=256, shift=0.0, config=None):  # fmt: skip
    """Prefill a packed batch into poisoned outputs; the larger of the errors of o and of final states and snapshots.

    Each is taken over the whole batch: a single short sequence's o can cancel to almost nothing.
    """
    T, N, extra = sum(lengths), len(lengths), len(snapshots)
    q, k, g = (tensor((T, H, K), i, HERE) for i in range(3))
    v, b = tensor((T, H, V), 3, HERE), tensor((T, H), 4, HERE)
    g = (g * spread + shift).to(torch.bfloat16)
    A_log, dt_bias = tensor((H,), 5, HERE, torch.float32) * 0.3, tensor((H, K), 6, HERE, torch.float32)
    dense = tensor((N, H, V, K), 7, HERE, torch.float32).to(dtype)
    pool = torch.full((N + extra + 1, H, V, K), 7.0, dtype=dtype)
    pool[:N] = dense
    pool = pool if layout == "vk" else pool.transpose(2, 3).contiguous()
    slots = torch.arange(N, dtype=torch.int32)
    slots[list(padded)] = -1
    resume = torch.zeros(N, dtype=torch.int32)
    resume[list(resumed)] = 1
    cu = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    chunks = kda_prefill.plan(cu, [(seq, at, N + i) for i, (seq, at) in enumerate(snapshots)], HERE)
    out = torch.full((T, H, V), float("nan"), dtype=torch.bfloat16)
    kda_prefill.kda_prefill(q, k, v, g, b, pool, slots, chunks, resume, A_log, dt_bias, lower_bound=lower_bound,
                            layout=layout, out=out, slab=slab, config=config)  # fmt: skip
    pool = pool if layout == "vk" else pool.transpose(2, 3)
    assert bool((pool[-1] == 7).all())
    found, wanted = [], []
    for n in range(N):
        part = slice(cu[n], cu[n + 1])
        if n in padded:
            assert torch.equal(pool[n], dense[n])
            assert bool(torch.isnan(out[part]).all())
            continue
        start = dense[n] if n in resumed else torch.zeros(H, V, K)
        if not lengths[n]:
            assert torch.equal(pool[n], start.to(dtype))
            continue
        o, states = kda_prefill.reference(
            q[part], k[part], v[part], g[part], b[part], start, A_log, dt_bias, lower_bound
        )
        found += [(out[part], pool[n])]
        wanted += [(o, states[-1])]
        for i, (seq, at) in enumerate(snapshots):
            if seq == n:
                found += [(out[part], pool[N + i])]
                wanted += [(o, states[at - 1])]
    return max(
        relative_error(torch.cat([x[part].flatten() for x in found]), torch.cat([x[part].flatten() for x in wanted]))
        for part in (0, 1)
    )


@pytest.mark.parametrize("lower_bound", [None, -5.0])
@pytest.mark.parametrize("layout", ["vk", "kv"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layouts_gates_and_state_types(dtype, layout, lower_bound):
    assert check([77], dtype=dtype, layout=layout, lower_bound=lower_bound, V=128, resumed=[0]) < TOLERANCE


def test_mixed_lengths_with_empty_and_padded_sequences():
    assert check([1, 0, 65, 0, 17, 128], resumed=[2, 3], padded=[4]) < TOLERANCE


def test_two_heads_wide_keys():
    assert check([70], H=2, K=128, V=64) < TOLERANCE


def test_the_configuration_for_many_heads():
    assert check([130], K=128, V=128, config=kda_prefill.configuration(96, 1), snapshots=[(0, 70)]) < TOLERANCE


def test_snapshots_at_any_token():
    assert check([150, 64], snapshots=[(0, 1), (0, 64), (0, 150), (1, 63)]) < TOLERANCE


def test_slabs_carry_the_state():
    assert check([130, 1, 70], slab=2, resumed=[0]) < TOLERANCE


@pytest.mark.parametrize("lower_bound", [None, -5.0])
@pytest.mark.parametrize(("spread", "shift"), [(0.0, -30.0), (0.0, 30.0), (100.0, 0.0), (5.0, 4.0)])
def test_extreme_gates(spread, shift, lower_bound):
    """No decay at all, the fastest possible, both mixed, and fast beside slow channels."""
    assert check([80], spread=spread, shift=shift, lower_bound=lower_bound) < TOLERANCE


def test_slow_gates_and_equal_keys_stay_stable():
    """The worst case for the triangular inverse: one key repeated, nothing forgotten."""
    T, K, V = 128, 64, 64
    k = tensor((1, 1, K), 0, HERE).expand(T, 1, K).contiguous()
    q, v = tensor((T, 1, K), 1, HERE), tensor((T, 1, V), 2, HERE)
    g, b = torch.full((T, 1, K), -20.0, dtype=torch.bfloat16), torch.full((T, 1), 4.0, dtype=torch.bfloat16)
    A_log, dt_bias, pool = torch.zeros(1), torch.zeros(1, K), torch.zeros(1, 1, V, K)
    out = kda_prefill.kda_prefill(q, k, v, g, b, pool, torch.zeros(1).int(), kda_prefill.plan([0, T], (), HERE),
                                  torch.zeros(1).int(), A_log, dt_bias, lower_bound=-5.0)  # fmt: skip
    o, states = kda_prefill.reference(q, k, v, g, b, torch.zeros(1, V, K), A_log, dt_bias, -5.0)
    assert max(relative_error(out, o), relative_error(pool[0], states[-1])) < TOLERANCE


def test_a_snapshot_past_the_end_is_refused():
    with pytest.raises(ValueError, match="snapshot at token 9"):
        kda_prefill.plan([0, 8], [(0, 9, 0)])
