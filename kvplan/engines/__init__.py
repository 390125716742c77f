"""One file per engine: what a pool of so many bytes becomes in its own units."""

from importlib import import_module

from kvplan.deployment import Deployment
from kvplan.engines.base import Engine
from kvplan.errors import UsageError
from kvplan.registry import module_names


def engine_names() -> list[str]:
    """Every engine whose rules are modelled: the modules of kvplan.engines, their contract aside."""
    return [name for name in module_names("kvplan.engines") if name != "base"]


def find_engine(name: str) -> Engine:
    """An engine by name; raises UsageError naming those that are modelled."""
    if name not in engine_names():
        raise UsageError(f"--engine {name[:60]!r} is not modelled; use one of {', '.join(engine_names())}")
    engine: Engine = import_module(f"kvplan.engines.{name}").ENGINE
    return engine


def engine_for(deployment: Deployment, with_gpu: bool) -> Engine:
    """The engine asked for; else vLLM's rules once a GPU is named."""
    return find_engine(deployment.engine or ("vllm" if with_gpu else "ideal"))
