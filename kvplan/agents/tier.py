"""Where idle sessions can live: profiles/tiers/*.toml, schema `kvplan.tier/1`.

Every figure is per GPU or per node, as the profile says; HBM is no profile, as a GPU's own pool is that tier.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kvplan.agents.links import Link
from kvplan.errors import ProfileError
from kvplan.gpu import Gpu
from kvplan.interval import How, Interval
from kvplan.profiles import load, paths

Per = Literal["gpu", "node"]
Copies = Literal["rank", "one"]


class Stated(BaseModel):
    """A figure between two ends, how it is known, and where it stands."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    value: Annotated[float, Field(ge=0, le=1e18, strict=False)]
    low: Annotated[float, Field(ge=0, le=1e18, strict=False)]
    high: Annotated[float, Field(ge=0, le=1e18, strict=False)]
    how: How
    source: str
    url: str = ""

    @model_validator(mode="after")
    def _ordered(self) -> "Stated":
        if not self.low <= self.value <= self.high:
            raise ValueError("value is not between low and high")
        return self

    def interval(self) -> Interval:
        return Interval(self.value, self.low, self.high, self.how)


class TierProfile(BaseModel):
    """One kind of memory beside the GPUs' own."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    schema_: Literal["kvplan.tier/1"] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,29}$")]
    title: str
    order: Annotated[int, Field(ge=1, le=1000)]
    """Fast ones first."""
    gpus: tuple[str, ...] = Field(default=(), strict=False)
    """Only beside these GPUs; beside any where it is empty."""
    replaces: str | None = None
    """The tier that is not there where this one is."""
    per: Per
    """What has a link of its own."""
    survives_node: bool
    """Whether its contents outlive the node."""
    pcie: bool = False
    """True where the link is the GPU's own PCIe, so that a slower one bounds it."""
    bandwidth_bytes_per_s: Stated
    latency_s: Stated
    size_bytes_per_gpu: Stated | None = None
    """None: without a limit that matters here."""
    price_per_gb_hour: Stated


@dataclass(frozen=True, slots=True)
class Tier:
    """A tier beside one deployment's GPUs."""

    name: str
    title: str
    per: Per
    copies: Copies
    """"rank": each rank's own share is stored and loaded, as many times as it is replicated. "one": once a replica."""
    survives_node: bool
    link: Link
    size_bytes_per_gpu: int | None
    price_per_gb_hour: float
    given: tuple[str, ...]
    """What was typed and is not the profile's."""
    sources: tuple[tuple[str, str, float | None, How], ...]
    """Per figure of the profile: its name, source, value and how it is known."""


PCIE_SHARE = 54.3 / 64
"""What host copies were measured to reach of PCIe 5.0 x16's 64 GB/s; taken for slower generations too."""


def bundled_tiers(gpu: Gpu | None) -> list[Tier]:
    """The tiers beside these GPUs, fast ones first. Raises ProfileError for a malformed profile."""
    profiles = sorted((_read(path) for path in paths("tiers").values()), key=lambda one: (one.order, one.name))
    here = [one for one in profiles if not one.gpus or (gpu is not None and gpu.name in one.gpus)]
    gone = {one.replaces for one in here}
    if gpu is not None and gpu.unified_memory:
        gone |= {one.name for one in here if one.pcie}
    return [_beside(one, gpu) for one in here if one.name not in gone]


def _read(path: Path) -> TierProfile:
    try:
        return TierProfile.model_validate(load(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the profile"
        raise ProfileError(f"{path}: {field}: {first['msg'].removeprefix('Value error, ')}") from None


def _beside(profile: TierProfile, gpu: Gpu | None) -> Tier:
    rate = profile.bandwidth_bytes_per_s.interval()
    if profile.pcie and gpu is not None and gpu.pcie_bytes_per_s is not None:
        most = gpu.pcie_bytes_per_s * PCIE_SHARE
        if most < rate.value:
            rate = rate.scaled(most / rate.value)
    named = {
        "bandwidth": profile.bandwidth_bytes_per_s,
        "latency": profile.latency_s,
        "size": profile.size_bytes_per_gpu,
        "price": profile.price_per_gb_hour,
    }
    size = profile.size_bytes_per_gpu
    return Tier(
        name=profile.name,
        title=profile.title,
        per=profile.per,
        copies="rank",
        survives_node=profile.survives_node,
        link=Link(rate, profile.latency_s.interval()),
        size_bytes_per_gpu=None if size is None else int(size.value),
        price_per_gb_hour=profile.price_per_gb_hour.value,
        given=(),
        sources=tuple((key, one.source, one.value, one.how) for key, one in named.items() if one is not None),
    )
