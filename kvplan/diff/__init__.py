"""Two plan documents against each other: what changed, by which rule, and whether capacity was lost."""

from kvplan.diff.compare import Diff, compare
from kvplan.diff.read import PlanDocument, read_plan

__all__ = ["Diff", "PlanDocument", "compare", "read_plan"]
