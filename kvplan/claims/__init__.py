"""Published claims, re-derived: a file says what was printed and what to compute; the verdict follows."""

from kvplan.claims.judge import Judged, judge
from kvplan.claims.schema import Claim, find_claim, list_claims

__all__ = ["Claim", "Judged", "find_claim", "judge", "list_claims"]
