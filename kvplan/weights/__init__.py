"""Parameters and bytes per rank: from safetensors headers where there are any, from the config otherwise."""

from kvplan.weights.report import WeightReport, stage_parts, weigh

__all__ = ["WeightReport", "stage_parts", "weigh"]
