"""MLA decode from an fp8 latent against softmax attention in fp64, in a cache whose unused entries are NaN."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="kernel tests need torch (its CPU build will do) and triton")
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from kvplan_kernels import mla_decode, mla_decode_fp8, mla_schedule  # noqa: E402
from kvplan_kernels.case import relative_error, tensor  # noqa: E402
from kvplan_kernels.mla_schedule import Form  # noqa: E402

TOLERANCE = 1e-2
HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SCALE = 192**-0.5
POINTERS = Form(0, 0, 16, 64, False, False, 4, 3, 2, FP8=True)
GLUON = pytest.param(
    Form(0, 0, 32, 64, True, True, 4, 2, 2, GLUON=True, FP8=True),
    marks=pytest.mark.skipif(not mla_schedule.has_gluon(HERE), reason="Gluon kernels need a Hopper GPU"),
)
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource
from kvplan_kernels.mla_decode_fp8_gluon import PAIRS, ROPE, split32

maps = [f"tensordesc<i16[64, {n}],{layout.value!r}>" for n, layout in ((256, PAIRS), (32, ROPE))]
numbers = [*["i32"] * 3, *["fp32"] * 2, *["i32"] * 2]
types = ["*bf16", *maps, *["*i32"] * 6, "*fp32", "*fp32", "*bf16", *numbers]
signature = dict(zip(split32.arg_names, [*types, "constexpr", "constexpr"], strict=True))
source = GluonASTSource(split32, signature, constexprs={(len(types),): 32, (len(types) + 1,): 64})
kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
print(kernel.metadata.shared, kernel.asm["ptx"].count("wgmma.mma_async.sync.aligned.m64n32k16"))
"""
FORMS = [POINTERS, POINTERS._replace(R=32, N=32), POINTERS._replace(R=32, TMA=True), GLUON]


def batch(lengths, H, Q=1, page=64, size=1.0):
    """Scattered pages, cache tails NaN: q, cache, table, lengths."""
    B, most = len(lengths), max(1, *(-(-n // page) for n in lengths))
    table = torch.randperm(B * most, generator=torch.Generator(device=HERE).manual_seed(0)).view(B, most).int()
    cache = torch.full((B * most, page, 576), float("nan")).to(torch.float8_e4m3fn)
    for n, length in enumerate(lengths):
        for i in range(-(-length // page)):
            used = min(page, length - i * page)
            values = size * tensor((used, 576), 97 * n + i, HERE, torch.float32)
            cache[int(table[n, i]), :used] = values.clamp(-448, 448).to(torch.float8_e4m3fn)
    return tensor((B, Q, H, 576), 5, HERE), cache, table, torch.tensor(lengths, dtype=torch.int32)


def attend(q, cache, table, size, form=None, kv_scale=1.0, multiprocessors=4):
    """The kernel's output over a poisoned one, and the reference."""
    lengths, rows = size.tolist(), q.shape[1] * q.shape[2]
    block = 16 if rows <= 16 else 32
    chosen = form and [form._replace(row0=0, row1=rows, R=block if form.GLUON else form.R)]
    plan = mla_schedule.schedule(lengths, rows, multiprocessors, HERE, chosen, fp8=True)
    out = torch.full((*q.shape[:3], 512), float("nan"), dtype=torch.bfloat16)
    mla_decode.mla_decode(q, cache, table, size, plan, scale=SCALE, kv_scale=kv_scale, out=out)
    return out, mla_decode.reference(q, cache, table, lengths, SCALE, kv_scale)


@pytest.mark.parametrize("form", FORMS)
def test_mixed_lengths(form):
    assert relative_error(*attend(*batch([1, 0, 130, 640], H=12), form, kv_scale=0.5)) < TOLERANCE


@pytest.mark.parametrize("form", FORMS)
def test_several_tokens_a_sequence(form):
    assert relative_error(*attend(*batch([65, 128, 3], H=5, Q=3), form)) < TOLERANCE


@pytest.mark.parametrize("H", [1, 16, 24, 48])
def test_head_counts(H):
    assert relative_error(*attend(*batch([70], H))) < TOLERANCE


@pytest.mark.parametrize("form", [POINTERS, GLUON])
def test_cut_sequences_and_large_pages(form):
    """Items of 256 tokens and more, the last one with 1 token; pages of 192 tokens."""
    assert relative_error(*attend(*batch([769, 200], H=7, page=192), form, multiprocessors=8)) < TOLERANCE


@pytest.mark.parametrize("form", [POINTERS, GLUON])
@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_extreme_entries(form, size):
    """Subnormal entries (below 2^-6) and saturated ones (448)."""
    assert relative_error(*attend(*batch([100], H=4, size=size), form, kv_scale=1 / size)) < TOLERANCE


@pytest.mark.parametrize("form", [POINTERS, GLUON])
def test_queries_beyond_fp16(form):
    """Rows of q of many sizes side by side, far outside fp16: the large ones attend to one token, the small to all."""
    q, cache, table, size = batch([150, 64], H=6)
    q *= torch.tensor([1e6, 1e3, 1.0, 1e-6, 1e-30, 0.0]).to(q.dtype)[:, None]
    out, reference = attend(q, cache, table, size, form)
    for h in range(6):
        assert relative_error(out[:, :, h], reference[:, :, h]) < TOLERANCE


@pytest.mark.parametrize("form", [POINTERS, GLUON])
def test_a_long_tail_of_small_weights_counts(form):
    """One token of weight 1 and 447 of 2^-18 each, below what fp16 keeps well; its own share is told apart by value."""
    q, cache, table, size = batch([448], H=2)
    cache[:] = torch.zeros(cache.shape).to(cache.dtype)
    first = int(table[0, 0])
    row = torch.zeros(576)
    row[512], row[0] = 1.0, 1.0
    cache[first, 0] = row.to(cache.dtype)
    others = torch.zeros(64, 576)
    others[:, 1] = 448.0
    for i in range(7):
        cache[int(table[0, i])] = torch.where((torch.arange(64) + i == 0)[:, None], cache[first].float(), others).to(
            cache.dtype
        )
    q[:] = 0
    q[..., 512] = 18.0 * 0.6931472 / SCALE
    out, reference = attend(q, cache, table, size, form)
    assert float(reference[0, 0, 0, 1]) > 0.5
    assert relative_error(out[..., 1], reference[..., 1]) < TOLERANCE


@triton.jit
def _widen_all(pairs, low, high):
    at = tl.arange(0, 65536)
    even, odd = mla_decode_fp8._halves(tl.load(pairs + at))
    tl.store(low + at, even)
    tl.store(high + at, odd)


def test_every_pair_of_bytes_is_widened_exactly():
    """All 65,536 pairs, NaN included, against torch's own cast."""
    pairs = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    low, high = torch.empty(65536, dtype=torch.float16), torch.empty(65536, dtype=torch.float16)
    _widen_all[(1,)](pairs, low, high)
    want = pairs.view(torch.float8_e4m3fn).to(torch.float16).view(-1, 2)
    assert torch.equal(low.nan_to_num(nan=999.0), want[:, 0].nan_to_num(nan=999.0))
    assert torch.equal(high.nan_to_num(nan=999.0), want[:, 1].nan_to_num(nan=999.0))


def test_gluon_compiles_without_a_gpu(tmp_path):
    """For sm_90, in a process of its own because the interpreter may be on in this one."""
    if tuple(int(n) for n in triton.__version__.split(".")[:2]) < (3, 6):
        pytest.skip("Gluon kernels need Triton 3.6")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shared, products = (int(n) for n in done.stdout.split())
    assert 2 * (shared + 1024) <= 228 * 1024  # two programs a multiprocessor
    assert (
        products == 2 * (576 + 512) // 16
    )  # each tile loop: 64 rows by 32 over 576 dimensions, 512 columns by 64 tokens


def test_unpadded_head_blocks():
    """48 heads over a million tokens are served as 32 + 16."""
    forms = mla_schedule.forms(48, 128, 2_000_000, fp8=True, gluon=True)
    assert [(f.row0, f.row1, f.R) for f in forms] == [(0, 32, 32), (32, 48, 16)]


def test_a_nan_in_the_sequence_is_not_hidden():
    q, cache, table, size = batch([10], H=1)
    cache[int(table[0, 0]), 3, 7] = float("nan")
    out, _ = attend(q, cache, table, size, POINTERS)
    assert bool(out.isnan().all())
