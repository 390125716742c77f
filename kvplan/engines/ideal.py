"""No engine at all: bytes over bytes. The upper bound that every engine's rules are measured against."""

from typing import ClassVar

from kvplan.deployment import Deployment
from kvplan.document import Binds
from kvplan.dtypes import Dtypes
from kvplan.engines.base import Allocation, Engine, Fit, Share, Units, resolve_dtypes, snapshots_of
from kvplan.ledger import Holding
from kvplan.model import Model


class Ideal(Engine):
    """Sequences are the pool divided by what one sequence keeps, rounded down."""

    name: ClassVar[str] = "ideal"
    rules_version: ClassVar[str] = "1"
    source: ClassVar[str] = "arithmetic"

    def dtypes(self, model: Model, deployment: Deployment) -> Dtypes:
        """The cache in the model's dtype, the state as the config asks, else fp32."""
        return resolve_dtypes(
            model, deployment, kv_auto=model.dtype, state_auto=model.state_dtype or "fp32", conv_auto=model.dtype
        )

    def allocate(self, share: Share, pool_bytes: int, deployment: Deployment, contexts: list[int]) -> Allocation:
        holdings = share.holdings()
        return Allocation(tuple(_fit(holdings, pool_bytes, deployment, tokens) for tokens in contexts))

    def units(self, share: Share, pool_bytes: int, deployment: Deployment, max_model_len: int) -> Units:
        holdings = share.holdings()

        def of(tokens: int) -> int:
            copies = snapshots_of(deployment, tokens)
            return max(holding.footprint(tokens, copies).total for holding in holdings)

        rule = "bytes that the fullest rank stores for a sequence"
        return Units("bytes", max(0, pool_bytes), of, rule, most_running=deployment.max_num_seqs)


def _fit(holdings: list[Holding], pool_bytes: int, deployment: Deployment, tokens: int) -> Fit:
    prints = [holding.footprint(tokens, snapshots_of(deployment, tokens)) for holding in holdings]
    largest = max(prints, key=lambda footprint: footprint.total)
    cap = deployment.max_num_seqs
    if largest.total == 0:
        return Fit(tokens, cap or 0, cap or 0, "max_num_seqs")
    sequences = max(0, pool_bytes) // largest.total
    if cap is not None and cap < sequences:
        return Fit(tokens, cap, cap, "max_num_seqs")
    if pool_bytes <= 0:
        return Fit(tokens, 0, 0, "weights")
    fixed = largest.state + largest.conv + largest.snapshot
    growing = largest.kv + largest.index
    parts: dict[Binds, int] = {"kv": growing, "state": fixed, "window": largest.window}
    binds = max(parts, key=lambda part: parts[part])
    return Fit(tokens, sequences, sequences, binds)


ENGINE = Ideal()
