"""Seconds from bytes: one decode step and one prefill of a deployment, read off a calibration."""

from kvplan.latency.clock import Clock
from kvplan.latency.device import Calibration, read_calibration
from kvplan.latency.make import make_clock
from kvplan.latency.meter import Term

__all__ = ["Calibration", "Clock", "Term", "make_clock", "read_calibration"]
