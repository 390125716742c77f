"""Where a model comes from. `resolve` is the only way in for a model argument."""

from kvplan.sources.bundled import list_models
from kvplan.sources.resolve import resolve

__all__ = ["list_models", "resolve"]
