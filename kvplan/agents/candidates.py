"""Every way to serve a model that `kvplan frontier` looks at: GPUs, layouts and the engine settings worth trying."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from kvplan.capacity import engine_for
from kvplan.deployment import Deployment, Layout
from kvplan.engines.base import Engine
from kvplan.errors import PlacementError, UsageError
from kvplan.gpu import Gpu, find_gpu, list_gpus
from kvplan.model import Model
from kvplan.placement import check_layout, max_dcp

TP = (1, 2, 4, 8, 16)
PP = (1, 2, 4)
WIDE_EP = (2, 4, 8, 16, 32)
"""Attention replicas that share one copy of the routed experts."""
MOST_GROUP_GPUS = 64
RACK_GPUS = 72
"""GPUs of an NVL72 rack, joined as those of a node are."""
SGLANG_RATIOS = (0.3, 0.6, 1.8, 3.6)
"""--mamba-full-memory-ratio beside its default of 0.9."""
LAYOUT_FLAGS = ("tp", "pp", "dcp", "dp", "ep")
NOT_SEARCHED = ("gpus", "nodes", "gpu_memory", "kv_cache_memory", "num_gpu_blocks_override")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One layout and one set of engine settings on one GPU. A group is the fewest GPUs that serve on their own."""

    gpu: Gpu
    layout: Layout
    settings: tuple[tuple[str, Any], ...]
    """Engine settings that are searched and differ from what the user typed or the engine does by itself."""
    base: dict[str, Any] = field(repr=False)

    @property
    def wide(self) -> bool:
        """Whether attention replicas share experts, so that none serves without the others."""
        return self.layout.ep > self.layout.tp

    @property
    def group_replicas(self) -> int:
        return self.layout.dp if self.wide else 1

    @property
    def group_gpus(self) -> int:
        return self.layout.tp * self.layout.pp * self.group_replicas

    @property
    def narrowed(self) -> int:
        """Settings that may cost quality or that the engine does not choose by itself."""
        return len(self.settings)

    def flags(self, groups: int) -> dict[str, Any]:
        """The flags of `kvplan estimate` for so many groups."""
        one = self.layout
        count, nodes = _nodes(groups * self.group_gpus, self.group_gpus, _domain(self.gpu))
        spread = {"tp": one.tp, "pp": one.pp, "dcp": one.dcp, "dp": one.dp if self.wide else 1, "ep": one.ep}
        said = {name: size for name, size in spread.items() if size > 1 or name == "tp"}
        placed = {"gpu": f"{self.gpu.name}:{count}"} | ({"nodes": nodes} if nodes > 1 else {})
        return self.base | placed | said | dict(self.settings)


def _nodes(gpus: int, group: int, node: int) -> tuple[int, int]:
    """GPUs of each node and nodes, all alike: as few nodes as hold whole groups, or that groups fill."""
    if gpus <= node:
        return gpus, 1
    fits = [size for size in range(node, 0, -1) if gpus % size == 0 and (size % group == 0 or group % size == 0)]
    return fits[0], gpus // fits[0]


def _domain(gpu: Gpu) -> int:
    """GPUs that a fast link joins: those of a node, or of a rack."""
    return RACK_GPUS if any("nvl72" in name for name in gpu.aliases) else gpu.gpus_per_node


@dataclass(frozen=True, slots=True)
class Field:
    """What is searched, and how much of each GPU there is."""

    candidates: list[Candidate]
    most_gpus: dict[str, int]
    """By GPU name."""
    axes: dict[str, list[Any]]
    left_out: tuple[str, ...]
    """What was not searched, in words."""


def search_field(
    model: Model, deployment: Deployment, flags: dict[str, Any], most_gpus: int, priced: Sequence[Gpu] | None
) -> Field:
    """Candidates on the GPUs of `--gpu A,B:8`, else on all that are known (and priced). What flags say is fixed."""
    for name in NOT_SEARCHED:
        if name in flags:
            raise UsageError(f"--{name.replace('_', '-')}: the search sets it; leave it out, or leave --sessions out")
    if "dp" in flags and "ep" not in flags:
        raise UsageError("--dp: the search sets the replicas; leave it out, or give --ep too where they share experts")
    limits = _gpus(flags.get("gpu"), most_gpus, priced)
    engine = engine_for(deployment, with_gpu=True)
    if type(engine).units is Engine.units:
        raise UsageError(f"--engine {engine.name}: sessions in one pool are not modelled; use vllm, sglang or ideal")
    axes = _axes(model, deployment, engine, flags)
    base = {name: value for name, value in flags.items() if name not in ("gpu", *LAYOUT_FLAGS)}
    found = [
        Candidate(gpu, layout, settings, base)
        for gpu in limits
        for layout in _layouts(model, gpu, engine, flags)
        for settings in _settings(gpu, axes)
        if Candidate(gpu, layout, (), base).group_gpus <= limits[gpu]
    ]
    if not found:
        _refuse(model, limits, flags)
    sizes = {"tp": [one.layout.tp for one in found], "pp": [one.layout.pp for one in found]}
    sizes |= {"dcp": [one.layout.dcp for one in found], "ep": [one.layout.ep for one in found if one.wide]}
    seen = {name: sorted(set(values)) for name, values in sizes.items() if values}
    return Field(found, {gpu.name: most for gpu, most in limits.items()}, seen | axes, _left_out(engine))


def _gpus(text: str | None, most: int, priced: Sequence[Gpu] | None) -> dict[Gpu, int]:
    """Each GPU and how many there are. Raises UsageError where one is asked for that has no price."""
    if text is None:
        return dict.fromkeys(list_gpus() if priced is None else priced, most)
    found: dict[Gpu, int] = {}
    for part in text.split(","):
        name, _, count = part.strip().partition(":")
        if count and not (count.isascii() and count.isdigit() and 1 <= int(count[:8]) <= 1 << 20):
            raise UsageError(f"--gpu {text[:60]!r}: write NAME or NAME:COUNT, for example H200,B300:8")
        gpu = find_gpu(name)
        if priced is not None and gpu not in priced:
            raise UsageError(f"--gpu-price has no price for {gpu.name}; add {gpu.name}=X/h")
        found[gpu] = int(count) if count else most
    return found


def _axes(model: Model, deployment: Deployment, engine: Engine, flags: dict[str, Any]) -> dict[str, list[Any]]:
    """Engine settings that are tried beside the engine's own choice; none that the user has typed."""
    dtypes = engine.dtypes(model, deployment)
    found: dict[str, list[Any]] = {}
    if "kv_cache_dtype" not in flags and dtypes.kv in ("bf16", "fp16"):
        found["kv_cache_dtype"] = ["fp8"]
    roles = {tensor.role for mixer in set(model.mixers()) for tensor in mixer.stored(dtypes)}
    if "mamba_ssm_dtype" not in flags and dtypes.state == "fp32" and "state" in roles:
        found["mamba_ssm_dtype"] = ["bf16"]
    if (
        engine.name == "sglang"
        and "state" in roles
        and not {"mamba_full_memory_ratio", "max_mamba_cache_size"} & {*flags}
    ):
        found["mamba_full_memory_ratio"] = list(SGLANG_RATIOS)
    return found


def _settings(gpu: Gpu, axes: dict[str, list[Any]]) -> Iterator[tuple[tuple[str, Any], ...]]:
    """Every choice of settings; fp8 only where the GPU computes in it."""
    able = {name: values for name, values in axes.items() if name != "kv_cache_dtype" or gpu.fp8_flops}
    for chosen in product(*([None, *values] for values in able.values())):
        yield tuple((name, value) for name, value in zip(able, chosen, strict=True) if value is not None)


def _layouts(model: Model, gpu: Gpu, engine: Engine, flags: dict[str, Any]) -> Iterator[Layout]:
    """Layouts that the model allows: tp inside a fast link, pp beyond it, dcp over the copies of the cache."""
    for tp, pp in product(_sizes(flags, "tp", TP), _sizes(flags, "pp", PP)):
        if "tp" not in flags and tp > _domain(gpu):
            continue
        try:
            most = max_dcp(model, tp)
        except PlacementError:
            continue
        dcps = [size for size in _sizes(flags, "dcp", TP) if size <= most and tp % size == 0]
        for dcp, (dp, ep) in product(dcps, _experts(model, engine, flags, tp, pp)):
            if tp * pp * dp <= MOST_GROUP_GPUS and (layout := _legal(model, tp, pp, dp, dcp, ep)):
                yield layout


def _sizes(flags: dict[str, Any], name: str, tried: tuple[int, ...]) -> tuple[int, ...]:
    return (int(flags[name]),) if name in flags else tried


def _experts(model: Model, engine: Engine, flags: dict[str, Any], tp: int, pp: int) -> list[tuple[int, int]]:
    """(dp, ep): replicas apart, then replicas that share experts, as vLLM's --enable-expert-parallel has it."""
    if "ep" in flags or "dp" in flags:
        return [(int(flags.get("dp", 1)), int(flags.get("ep", 1)))]
    if engine.name == "sglang" or pp > 1:
        return [(1, 1)]
    return [(1, 1), *((dp, tp * dp) for dp in WIDE_EP if tp * dp <= model.num_experts)]


def _legal(model: Model, tp: int, pp: int, dp: int, dcp: int, ep: int) -> Layout | None:
    try:
        layout = Layout(tp, pp, dp, dcp, ep)
        check_layout(model, layout)
    except PlacementError:
        return None
    return layout


def _refuse(model: Model, limits: dict[Gpu, int], flags: dict[str, Any]) -> None:
    """Raise what is wrong with the layout that the flags fix."""
    tp, pp, dp, dcp, ep = (int(flags.get(name, 1)) for name in ("tp", "pp", "dp", "dcp", "ep"))
    check_layout(model, Layout(tp, pp, dp, dcp, ep))
    most = ", ".join(f"{count} {gpu.name}" for gpu, count in limits.items())
    raise PlacementError(f"no layout of {model.name} with these flags lies on {most[:200]}")


def _left_out(engine: Engine) -> tuple[str, ...]:
    found = ["sizes of tp, pp and dcp that are no power of two", "other checkpoints (--quantization)"]
    return (*found, "attention data parallelism") if engine.name == "sglang" else tuple(found)
