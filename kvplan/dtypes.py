"""Element types and cache record formats, under the names that engines and checkpoints use."""

from dataclasses import dataclass

from kvplan.errors import UsageError

BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "mxfp8": 8, "fp4": 4, "int4": 4}

BLOCKS = {"q8_0": (8, 16), "q5_1": (5, 32), "q5_0": (5, 16), "q4_1": (4, 32), "q4_0": (4, 16), "iq4_nl": (4, 16)}
"""ggml's block formats, llama.cpp's quantised caches: bits of an element, bits of scales per 32 elements."""

BLOCK_ELEMENTS = 32

_ALIASES = {
    "float32": "fp32", "float": "fp32", "f32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16", "half": "fp16", "f16": "fp16",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "float8_e4m3fn": "fp8", "fp8_inc": "fp8",
    "mxfp4": "fp4",
}  # fmt: skip

KV_FORMATS = ("auto", "bf16", "fp16", "fp32", "fp8", "int8", "fp8_ds_mla", "nvfp4", "nvfp4_ds_mla")
INDEX_FORMATS = ("auto", "bf16", "fp16", "fp8", "fp4")
STATE_FORMATS = ("auto", "fp32", "bf16", "fp16")


def canonical(name: str) -> str:
    """`bfloat16`, `torch.bfloat16` and `BF16` are all `bf16`; an unknown name comes back lower-cased."""
    short = name.strip().lower().removeprefix("torch.")
    return _ALIASES.get(short, short)


def parse_format(name: str, allowed: tuple[str, ...], flag: str) -> str:
    """The canonical spelling of a dtype flag, or UsageError naming the flag and what it accepts."""
    short = canonical(name)
    if short not in allowed:
        raise UsageError(f"{flag} {name[:40]!r} is not modelled; use one of {', '.join(allowed)}")
    return short


@dataclass(frozen=True, slots=True)
class Dtypes:
    """How a deployment stores each kind of thing. Every field is resolved; only `index` may stay `auto`,
    since what an indexer keeps by default differs by attention kind (each kind's file says what and why)."""

    kv: str = "bf16"
    value: str | None = None
    """The values' format where it is not the keys' (llama.cpp's --cache-type-v)."""
    index: str = "auto"
    state: str = "fp32"
    conv: str | None = "bf16"
    """None leaves the short-convolution tail out, as some published figures do."""
