"""Boot logs of serving engines: what they printed, line by line, with its rounding."""

from kvplan.logs.figures import Facts, Printed
from kvplan.logs.read import open_log, read_log

__all__ = ["Facts", "Printed", "open_log", "read_log"]
