"""Shapes that the suite `full` does not hold: other heads, batches, lengths, between its points or just outside.

An estimate made from a full run is tested against them, so nothing may ever be fitted to these.
"""

from kvplan_kernels import gemm, kda_decode, kda_prefill, mla_decode, mla_prefill, short_conv
from kvplan_kernels.case import Case

KDA_DECODE = (  # heads, batch, state
    (96, 3, "fp32"), (96, 12, "fp32"), (96, 96, "fp32"), (96, 320, "fp32"), (96, 640, "fp32"), (40, 24, "fp32"),
    (20, 48, "fp32"), (12, 6, "fp32"), (12, 192, "fp32"), (10, 12, "fp32"), (3, 1, "fp32"), (3, 100, "fp32"),
    (96, 5, "bf16"), (96, 40, "bf16"), (96, 384, "bf16"), (40, 96, "bf16"), (12, 24, "bf16"), (12, 640, "bf16"),
    (10, 3, "bf16"), (3, 50, "bf16"),
)  # fmt: skip
KDA_PREFILL = (  # heads, sequences, tokens
    (96, 1, 1536), (96, 1, 12000), (96, 1, 49152), (96, 3, 2048), (48, 1, 6000), (40, 1, 8192), (24, 1, 24576),
    (20, 1, 3000), (12, 1, 768), (12, 1, 6000), (12, 1, 100000), (12, 5, 4096), (12, 20, 1024), (6, 1, 10000),
    (3, 1, 12288),
)  # fmt: skip
MLA_DECODE = (  # heads, batch, context, cache
    (12, 1, 10000, "bf16"), (12, 1, 100000, "bf16"), (12, 1, 700000, "bf16"), (12, 3, 40000, "bf16"),
    (12, 12, 12000, "bf16"), (12, 48, 100000, "bf16"), (12, 100, 6000, "bf16"), (12, 300, 20000, "bf16"),
    (10, 24, 24000, "bf16"), (20, 6, 50000, "bf16"), (24, 40, 12000, "bf16"), (40, 20, 30000, "bf16"),
    (96, 1, 30000, "bf16"), (96, 1, 400000, "bf16"), (96, 3, 100000, "bf16"), (96, 24, 10000, "bf16"),
    (96, 200, 6000, "bf16"), (64, 12, 40000, "bf16"), (12, 3, 100000, "fp8"), (12, 40, 30000, "fp8"),
    (96, 30, 20000, "fp8"),
)  # fmt: skip
MLA_PREFILL = ((96, 1536), (96, 6000), (96, 24576), (40, 10000), (20, 3000), (12, 768), (12, 12000), (12, 50000))
MLA_PREFIX = ((96, 1000, 20000), (12, 3000, 100000), (12, 600, 10000))  # heads, tokens, prefix
SHORT_CONV = ((96, 24), (40, 100), (12, 40), (3, 200))  # heads, batch
GEMM = (  # tokens, rows, columns
    (2, 4608, 7168), (24, 4608, 7168), (100, 36864, 7168), (600, 7168, 12288), (3000, 4608, 7168), (12000, 7168, 1536),
    (8, 8448, 7168), (2000, 8448, 7168), (40, 12288, 2304),
)  # fmt: skip


def cases() -> list[Case]:
    """At least 40 over the four KDA and MLA kernels, and some of the rest."""
    return [
        *(kda_decode.case(heads=h, batch=n, state=s, layout="vk") for h, n, s in KDA_DECODE),
        *(kda_prefill.case(heads=h, sequences=n, tokens=t, gate="fast", snapshot_every=0) for h, n, t in KDA_PREFILL),
        *(mla_decode.case(heads=h, batch=n, context=t, cache=c, query_tokens=1) for h, n, t, c in MLA_DECODE),
        *(mla_prefill.case(heads=h, tokens=t) for h, t in MLA_PREFILL),
        *(mla_prefill.case(heads=h, tokens=t, prefix=p) for h, t, p in MLA_PREFIX),
        *(short_conv.case(heads=h, batch=n) for h, n in SHORT_CONV),
        *(gemm.case("gemm", tokens=t, rows=n, columns=k, format="bf16") for t, n, k in GEMM),
    ]
