"""Models and pools that the tests of vLLM's rules share."""

from typing import Any

from kvplan.deployment import Layout, make_deployment
from kvplan.engines.base import Allocation, Share
from kvplan.engines.vllm import ENGINE
from kvplan.layers.base import Layer
from kvplan.layers.delta import Gdn, Kda
from kvplan.layers.full import Full
from kvplan.layers.mla import Mla
from kvplan.model import Model, Source
from kvplan.placement import stage_layers

GIB = 1 << 30
MILLION = 1_048_576
B300_POOL = 45_344_117_227
B300 = {"gpu": "B300", "tp": 8, "kv_cache_dtype": "fp8", "enable_prefix_caching": True}


def model(*layers: tuple[Layer, int], state_dtype: str | None = None, mtp: tuple[Layer, ...] = ()) -> Model:
    blocks = tuple((layer,) for layer, count in layers for _ in range(count))
    return Model(
        "made", Source("a test"), "made", "made", "bf16", blocks, mtp=mtp, num_attention_heads=96,
        max_context_tokens=MILLION, state_dtype=state_dtype,
    )  # fmt: skip


def kimi_linear() -> Model:
    return model((Mla(512, 64), 7), (Kda(32, 128, 4), 20))


def qwen_27b(**more: Any) -> Model:
    """Qwen3.5-, 3.6- and 3.8-27B: 16 attention layers of 4 × 256, 48 Gated DeltaNets of 16 and 48 heads."""
    return model((Full(4, 256, 256), 16), (Gdn(16, 48, 128, 128, 4), 48), state_dtype="fp32", **more)


def allocate(made: Model, pool_bytes: int, *contexts: int, **flags: Any) -> Allocation:
    deployment = make_deployment(engine="vllm", **flags)
    layout = Layout(tp=deployment.tp or 1, pp=deployment.pp, dcp=deployment.dcp)
    share = Share(made, layout, ENGINE.dtypes(made, deployment), stage_layers(made, layout))
    return ENGINE.allocate(share, pool_bytes, deployment, list(contexts))


def figures(made: Model, pool_bytes: int, length: int, **flags: Any) -> dict[str, Any]:
    return allocate(made, pool_bytes, length, max_model_len=length, **flags).figures


def blocked(made: Model, blocks: int, length: int, **flags: Any) -> dict[str, Any]:
    """Figures for a published number of blocks."""
    return figures(made, GIB, length, num_gpu_blocks_override=blocks, **flags)
