"""MLA decode against softmax attention in fp64, in a cache whose unused entries are NaN."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="kernel tests need torch (its CPU build will do) and triton")
import triton  # noqa: E402

from kvplan_kernels import mla_decode, mla_schedule  # noqa: E402
from kvplan_kernels.case import relative_error, tensor  # noqa: E402
from kvplan_kernels.mla_schedule import Form  # noqa: E402

TOLERANCE = 1e-2
HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SCALE = 192**-0.5
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource
from kvplan_kernels.mla_decode_gluon import TILES, split64

wide, rope = (f"tensordesc<bf16[64, {n}],{TILES.value!r}>" for n in (256, 64))
types = [wide, rope, wide, rope, *["*i32"] * 6, "*fp32", "*fp32", "*bf16", *["i32"] * 3, *["fp32"] * 2, *["i32"] * 2]
signature = dict(zip(split64.arg_names, [*types, "constexpr"], strict=True))
source = GluonASTSource(split64, signature, constexprs={(len(types),): 64})
kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "maxnreg": 168})
counts = (kernel.asm["ptx"].count(f"wgmma.mma_async.sync.aligned.m64n{n}k16") for n in (64, 256))
print(kernel.metadata.shared, *counts)
"""


def check(lengths, H, Q=1, page=64, dtype=torch.bfloat16, form=None, multiprocessors=4, kv_scale=1.0):
    """Scattered pages, poisoned output and cache tails; returns the relative error."""
    B, most = len(lengths), max(1, *(-(-n // page) for n in lengths))
    table = torch.randperm(B * most, generator=torch.Generator(device=HERE).manual_seed(0)).view(B, most).int()
    cache = torch.full((B * most, page, 576), float("nan")).to(dtype)
    for n, length in enumerate(lengths):
        for i in range(-(-length // page)):
            used = min(page, length - i * page)
            cache[int(table[n, i]), :used] = tensor((used, 576), 97 * n + i, HERE, torch.float32).to(dtype)
    q, size = tensor((B, Q, H, 576), 5, HERE), torch.tensor(lengths, dtype=torch.int32)
    chosen = None if form is None else [form._replace(row0=0, row1=Q * H)]
    plan = mla_schedule.schedule(lengths, Q * H, multiprocessors, HERE, chosen)
    out = torch.full((B, Q, H, 512), float("nan"), dtype=torch.bfloat16)
    mla_decode.mla_decode(q, cache, table, size, plan, scale=SCALE, kv_scale=kv_scale, out=out)
    return relative_error(out, mla_decode.reference(q, cache, table, lengths, SCALE, kv_scale))


POINTERS, TMA = Form(0, 0, 16, 64, False, False, 4, 2, 2), Form(0, 0, 64, 64, False, True, 8, 2, 1)
SWAPPED = Form(0, 0, 16, 64, True, True, 4, 2, 1)
GLUON = Form(0, 0, 64, 64, False, True, 4, 2, 1, GLUON=True)
hopper = pytest.mark.skipif(not mla_schedule.has_gluon(HERE), reason="Gluon kernels need a Hopper GPU")


@pytest.mark.parametrize("form", [POINTERS, TMA, SWAPPED, SWAPPED._replace(R=32), POINTERS._replace(R=32, N=32)])
def test_every_form_on_mixed_lengths(form):
    assert check([1, 0, 130, 640], H=12, form=form) < TOLERANCE


@pytest.mark.parametrize("H", [1, 12, 16, 24, 48, 96, 128])
def test_head_counts(H):
    assert check([70], H=H) < TOLERANCE


@hopper
@pytest.mark.parametrize("H", [5, 48, 64, 96, 128])
@pytest.mark.parametrize("lengths", [[64], [128], [1, 0, 130, 640], [3000, 4111, 127], [20000, 1]])
@pytest.mark.parametrize("Q", [1, 3])
def test_gluon(lengths, H, Q):
    """One tile, a pair, odd and even counts, whole sequences and parts; nothing past an end is read (it is NaN)."""
    assert check([max(n, Q) if n else 0 for n in lengths], H=H, Q=Q, form=GLUON) < TOLERANCE


@hopper
@pytest.mark.parametrize("page", [64, 192])
def test_gluon_repeats_itself(page):
    """A race would show as a moving error; a scale beside 1 multiplies the result."""
    errors = {check([5000, 77, 0, 640], H=96, page=page, form=GLUON, kv_scale=0.5) for _ in range(20)}
    assert len(errors) == 1
    assert errors.pop() < TOLERANCE


def test_gluon_compiles_without_a_gpu(tmp_path):
    """For sm_90, in a process of its own because the interpreter may be on in this one."""
    if tuple(int(n) for n in triton.__version__.split(".")[:2]) < (3, 6):
        pytest.skip("Gluon kernels need Triton 3.6")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shared, scores, values = (int(n) for n in done.stdout.split())
    assert shared <= 227 * 1024
    assert scores % (576 // 16) == 0  # [64, 64] scores over 576 dimensions, 16 a time
    assert values % (64 // 16) == 0  # [64, 256] values over 64 tokens


def test_unpadded_head_blocks():
    """96 heads over a million tokens are served as 64 + 32; here the same forms on little work."""
    forms = mla_schedule.forms(96, 128, 2_000_000)
    assert [(f.row0, f.row1, f.R) for f in forms] == [(0, 64, 64), (64, 96, 32)]
    q, cache = tensor((1, 1, 96, 576), 0, HERE), tensor((9, 64, 576), 1, HERE)
    table, lengths = torch.arange(9).view(1, 9).int(), torch.tensor([530], dtype=torch.int32)
    plan = mla_schedule.schedule([530], 96, 8, HERE, forms)
    assert all(part.parts > 1 for part in plan)
    out = mla_decode.mla_decode(q, cache, table, lengths, plan, scale=SCALE)
    assert relative_error(out, mla_decode.reference(q, cache, table, [530], SCALE)) < TOLERANCE


@pytest.mark.parametrize("form", [POINTERS, TMA, SWAPPED])
def test_several_tokens_a_sequence(form):
    assert check([65, 128, 3], H=5, Q=3, form=form) < TOLERANCE


def test_no_sequences():
    assert mla_schedule.schedule([], 12, 4, HERE)[0].parts == 0
    none = torch.empty(0, 1, dtype=torch.int32)
    out = mla_decode.mla_decode(
        torch.empty(0, 1, 12, 576),
        torch.empty(1, 64, 576),
        none,
        none,
        mla_schedule.schedule([], 12, 4, HERE),
        scale=1.0,
    )
    assert out.shape == (0, 1, 12, 512)


def test_large_pages():
    assert check([300, 200], H=16, page=192) < TOLERANCE


def test_pages_must_hold_whole_tiles():
    with pytest.raises(ValueError, match="pages of 48"):
        check([48], H=1, page=48)


def test_splits_fill_whole_waves():
    assert mla_schedule.split_length([16384] * 128, 1, 264) == 8192
    assert mla_schedule.split_length([4096], 1, 132) == 256
    assert mla_schedule.split_length([65536], 1, 132) == 512
