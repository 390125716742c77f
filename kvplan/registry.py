"""Discovery: every module of a package registers itself when imported, so no list of names exists anywhere."""

import pkgutil
from importlib import import_module
from types import ModuleType


def import_all(name: str) -> list[ModuleType]:
    """Import each direct submodule of the package called `name`, in name order, private ones left out."""
    package = import_module(name)
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    return [import_module(f"{name}.{module}") for module in names if not module.startswith("_")]
