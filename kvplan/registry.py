"""Discovery: every module of a package registers itself when imported, so no list of names exists anywhere."""

import pkgutil
from importlib import import_module
from types import ModuleType


def import_all(package: ModuleType) -> list[ModuleType]:
    """Import each direct submodule of `package`, in name order, private ones left out."""
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    return [import_module(f"{package.__name__}.{name}") for name in names if not name.startswith("_")]
