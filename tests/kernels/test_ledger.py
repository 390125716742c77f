"""The tensors that the kernels run on are the bytes that the ledger counts: one rank of Kimi K3 over eight."""

import pytest

torch = pytest.importorskip("torch", reason="kernel tests need torch (its CPU build will do) and triton")
from kvplan.dtypes import Dtypes  # noqa: E402
from kvplan.layers.base import Stored  # noqa: E402
from kvplan.layers.delta import Kda  # noqa: E402
from kvplan.layers.mla import Mla  # noqa: E402
from kvplan_kernels import kda_decode, mla_decode, mla_schedule, short_conv  # noqa: E402
from kvplan_kernels.case import tensor  # noqa: E402

HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
LAYER = Kda(96, 128, 4).on_rank(8)


def stored(name: str, state: str = "fp32") -> Stored:
    return next(part for part in LAYER.stored(Dtypes(state=state)) if part.name == name)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_slot_of_the_state_pool(dtype):
    expected = stored("recurrent", dtype)
    pool = torch.zeros(2, *expected.shape, dtype=TYPES[dtype])
    q, k, v, g = (tensor((1, *expected.shape[:2]), n, HERE) for n in range(4))
    slots, heads = torch.tensor([1], dtype=torch.int32), expected.shape[0]
    out = kda_decode.kda_decode(
        q, k, v, g, tensor((1, heads), 4, HERE), pool, slots, torch.zeros(heads), torch.zeros(expected.shape[:2])
    )
    assert out.isfinite().all() and pool[1].abs().sum() > 0
    assert pool[1].nbytes == expected.entry_bytes


def test_a_slot_of_the_convolution_pool():
    expected = stored("conv")
    rows, width = expected.shape
    pool = torch.zeros(1, rows, width, dtype=torch.bfloat16)
    slots = torch.zeros(1, dtype=torch.int32)
    short_conv.conv_step(tensor((1, width), 0, HERE), tensor((width, rows + 1), 1, HERE), pool, slots)
    assert pool[0, -1].abs().sum() > 0
    assert pool[0].nbytes == expected.entry_bytes


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_a_page_of_the_latent_cache(dtype):
    expected = sum(part.bytes(64) for part in Mla(512, 64).stored(Dtypes(kv=dtype)))
    cache = tensor((1, 64, 576), 0, HERE, torch.float32).to(TYPES[dtype])
    lengths = torch.tensor([64], dtype=torch.int32)
    plan = mla_schedule.schedule([64], 12, 4, HERE, fp8=dtype == "fp8")
    table = torch.zeros(1, 1, dtype=torch.int32)
    out = mla_decode.mla_decode(tensor((1, 1, 12, 576), 1, HERE), cache, table, lengths, plan, scale=192**-0.5)
    assert out.isfinite().all()
    assert cache.nbytes == expected


def test_a_plan_for_another_type_of_cache_is_refused():
    cache, lengths = tensor((1, 64, 576), 0, HERE), torch.tensor([64], dtype=torch.int32)
    plan = mla_schedule.schedule([64], 12, 4, HERE, fp8=True)
    with pytest.raises(ValueError, match="not made for a cache of"):
        mla_decode.mla_decode(tensor((1, 1, 12, 576), 1, HERE), cache, torch.zeros(1, 1), lengths, plan, scale=1.0)
