"""Reports on paper. A page is a module of this package; `_base.py` says what it has to offer."""

from kvplan.pages._reports import claims_report, deployment_report, frontier_report
from kvplan.pages._write import Report, write_report

__all__ = ["Report", "claims_report", "deployment_report", "frontier_report", "write_report"]
