"""Several models, or one on several GPUs, side by side: what `kvplan compare` shows."""

from kvplan.compare.figures import Comparison, compare

__all__ = ["Comparison", "compare"]
