"""`kvplan agents tiers`, schema `kvplan.tiers/1`: where idle sessions should live, and what that rests on."""

from dataclasses import dataclass
from typing import Any

from kvplan.agents.host_pools import Split, balanced, split_of
from kvplan.agents.idle import Replica, read_replica
from kvplan.agents.prefill import prefill_of
from kvplan.agents.prices import parse_prices
from kvplan.agents.tier import Tier
from kvplan.agents.tier_flag import find_tiers
from kvplan.agents.tiers import BreakEven, Case, TierRow, break_evens, nearest, tier_rows
from kvplan.agents.usage import Usage, read_usage
from kvplan.document import Assumption
from kvplan.errors import NO, YES, UsageError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.units import ceil_div

LENGTHS = (8_000, 32_000, 105_000, 1_000_000)
GPU_PRICE = 4.0
RISK = 0.01
TIER = "tier_"
"""What the names of tiers' assumptions begin with."""
STATES = 2


@dataclass(frozen=True, slots=True)
class TierOptions:
    """What is asked beside the deployment, under the names of the flags."""

    tier: tuple[str, ...] = ()
    risk: float | None = None
    """Per cent."""
    gpu_price: str | None = None
    states_per_session: int = STATES
    prefill_tokens_per_s: float | None = None
    seed: int = 0

    @property
    def risk_share(self) -> float:
        return RISK if self.risk is None else self.risk / 100

    def check(self) -> None:
        """Raises UsageError naming the flag that cannot be meant."""
        if self.risk is not None and not 0.01 <= self.risk <= 99.99:
            raise UsageError(f"--risk {self.risk}: per cent, 0.01 to 99.99")


@dataclass(frozen=True, slots=True)
class HostSplit:
    """A host's rows and slots, as the engine cuts them and as neither would strand the other."""

    session_tokens: int
    """Of one rank."""
    states: int
    budget_bytes: int
    now: Split | None
    """None where the engine's flags ask for no host cache."""
    balanced: Split


@dataclass(frozen=True, slots=True)
class TiersReport:
    inputs: dict[str, Any]
    replica: Replica
    usage: Usage
    risk: float
    context_tokens: int
    pool_share: float
    rows: tuple[TierRow, ...]
    break_evens: tuple[BreakEven, ...]
    host: HostSplit | None
    assumptions: tuple[Assumption, ...]

    @property
    def best(self) -> TierRow | None:
        """The nearest tier beside the GPUs that is surely sooner than computing again; None where there is none."""
        return nearest(self.rows, caching=self.replica.caching)

    @property
    def exit_code(self) -> int:
        """0 where some tier beside the GPUs is worth its name."""
        return YES if self.best is not None else NO


def tiers_report(
    model: str | Model, workload: str, *, flags: dict[str, Any], options: TierOptions, notes: list[Assumption]
) -> TiersReport:
    """Tiers for `workload` (a profile's name or a trace's path) on `model` under the flags of `kvplan estimate`.

    Raises UsageError where nothing says how fast the replica prefills.
    """
    options.check()
    usage, replica = read_usage(workload), read_replica(model, **flags)
    prefill, rests_on = prefill_of(replica, options.prefill_tokens_per_s)
    tiers = find_tiers(replica.gpu, list(options.tier), replica.fleet.per_node)
    price = gpu_price(options.gpu_price, replica.gpu)
    case = Case(replica, usage, prefill, options.risk_share, price, options.seed)
    tokens = case.tokens
    lengths = sorted({*(length for length in LENGTHS if length <= replica.pool.max_model_len), tokens})
    return TiersReport(
        inputs=_inputs(replica, workload, options) | flags,
        replica=replica,
        usage=usage,
        risk=options.risk_share,
        context_tokens=tokens,
        pool_share=case.pool_share(),
        rows=tier_rows(case, tiers),
        break_evens=break_evens(replica, prefill, lengths),
        host=host_split(replica, tokens, options.states_per_session, tiers),
        assumptions=(
            *notes,
            *rests_on,
            price_assumption(options.gpu_price, price),
            *tier_assumptions(tiers),
            *usage.by_time.assumptions,
            *usage.by_time.beyond(replica.pool.max_model_len),
        ),
    )


def gpu_price(text: str | None, gpu: Gpu | None) -> float:
    """Of one GPU and hour. Raises UsageError for what is no price, and where another GPU's alone was given."""
    if text is None:
        return GPU_PRICE
    prices = parse_prices(text)
    found = prices.of(gpu) if gpu is not None else prices.each
    if found is None:
        raise UsageError(f"--gpu-price {text[:60]!r} has no price of {gpu.name if gpu else 'these GPUs'}")
    return found


def _inputs(replica: Replica, workload: str, options: TierOptions) -> dict[str, Any]:
    return {
        "model": replica.model.name, "workload": workload, "tier": list(options.tier), "risk": options.risk_share,
        "gpu_price": options.gpu_price, "states_per_session": options.states_per_session,
        "prefill_tokens_per_s": options.prefill_tokens_per_s, "seed": options.seed,
    }  # fmt: skip


def tier_assumptions(tiers: list[Tier]) -> list[Assumption]:
    """Every figure of the tiers, as the profile has it or as it was typed."""
    return [
        Assumption(f"{TIER}{tier.name}_{key}", _typed(tier, key), "given", "--tier")
        if key in tier.given
        else Assumption(f"{TIER}{tier.name}_{key}", value, "assumed", f"{how}: {source}")
        for tier in tiers
        for key, source, value, how in tier.sources
    ]


def price_assumption(text: str | None, price: float) -> Assumption:
    return Assumption("gpu_price", price, "assumed" if text is None else "given", "--gpu-price, per GPU and hour")


def _typed(tier: Tier, key: str) -> float | int | None:
    known = {
        "bandwidth": tier.link.bytes_per_s.value, "latency": tier.link.latency_s.value,
        "size": tier.size_bytes_per_gpu, "price": tier.price_per_gb_hour,
    }  # fmt: skip
    return known[key]


def host_split(replica: Replica, tokens: int, states: int, tiers: list[Tier]) -> HostSplit | None:
    """SGLang's two host pools; None for engines whose blocks serve both, and for models without state or rows."""
    figures = replica.figures
    slot, rows = figures.get("state_slot_bytes"), figures.get("kv_cache_tokens")
    if replica.pool.engine != "sglang" or not slot or not rows:
        return None
    dcp = replica.fleet.layout.dcp
    per_token = int(figures["kv_cache_bytes"]) * dcp // int(rows)
    session = ceil_div(tokens, dcp)
    host = figures.get("host")
    dram = next((tier for tier in tiers if tier.name.startswith("dram")), None)
    budget = int(host["total_bytes"]) if host else dram.size_bytes_per_gpu if dram else None
    if not per_token or not budget:
        return None
    now = (
        split_of(int(host["kv_tokens"]), int(host["state_slots"] or 0), per_token, int(slot), session, states)
        if host
        else None
    )
    return HostSplit(session, states, budget, now, balanced(budget, per_token, int(slot), session, states))
