"""Kernel tests run on the GPU if there is one, else in Triton's CPU interpreter; without torch they are skipped."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

READY = all(find_spec(name) for name in ("torch", "triton"))
if READY:
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is imported
    if find_spec("kvplan_kernels") is None:
        home = str(Path(__file__).parents[2] / "kernels")
        sys.path.insert(0, home)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    import triton.language as tl
    from triton.runtime import interpreter

    cast_as_it_was = interpreter.InterpreterBuilder.cast_impl


def _widen(handle: Any) -> Any:
    if handle.dtype.scalar == tl.bfloat16:
        return (handle.data.astype(np.uint32) << 16).view(np.float32)
    if handle.dtype.scalar in (tl.float8e4nv, tl.float8e5):
        return interpreter._convert_float(handle.data, handle.dtype, tl.float16, None).view(np.float16)
    return handle.data


def _dot(self: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
    """The interpreter's own dot multiplies bf16 bit patterns as integers."""
    product = np.matmul(_widen(a).astype(np.float32), _widen(b).astype(np.float32))
    return interpreter.TensorHandle(product + d.data, d.dtype.scalar)


def _cast(self: Any, src: Any, dst_type: Any) -> Any:
    """The interpreter's own fp32 to bf16 truncates; hardware rounds to nearest even."""
    if src.dtype.scalar == tl.float32 and dst_type.scalar == tl.bfloat16:
        bits = np.ascontiguousarray(src.data).view(np.uint32)
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return interpreter.TensorHandle(nearest, tl.bfloat16)
    if src.dtype.scalar == tl.bfloat16 and dst_type.scalar == tl.float32:
        return interpreter.TensorHandle(_widen(src), tl.float32)
    return cast_as_it_was(self, src, dst_type)


@pytest.fixture(autouse=True)
def _interpreter_and_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """bf16 as hardware has it, tensors where the kernels run, and no warning about an exp that is meant to overflow."""
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", _dot)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "cast_impl", _cast)
    with np.errstate(all="ignore"), torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        yield
