"""Discovery: every module of a package registers itself when imported, so no list of names exists anywhere."""

import pkgutil
from functools import cache
from importlib import import_module
from types import ModuleType


@cache
def module_names(package: str) -> tuple[str, ...]:
    """The direct submodules of `package`, in name order; private ones (`_name`) are left out."""
    paths = import_module(package).__path__
    return tuple(sorted(info.name for info in pkgutil.iter_modules(paths) if not info.name.startswith("_")))


def import_all(package: str) -> list[ModuleType]:
    """Import each of `module_names(package)`."""
    return [import_module(f"{package}.{name}") for name in module_names(package)]
