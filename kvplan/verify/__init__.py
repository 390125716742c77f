"""A boot log against kvplan's own arithmetic: every memory figure that the engine printed, recomputed."""

from kvplan.verify.check import verify_log
from kvplan.verify.report import Report, Row

__all__ = ["Report", "Row", "verify_log"]
