"""How many long-lived AI agents fit on this hardware with this model, for how long, at what risk, and why.

The data flows one way: a config becomes layers, layers a ledger of integer bytes, the ledger a placement and an
engine's own units, those a capacity, and a capacity a plan. `kvplan.plan()` is the whole of it as a function:

    from kvplan import plan

    plan("kimi-k3", gpu="B300:8", context="128K").capacity[0].sequences
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvplan.document import Plan as Plan
    from kvplan.errors import KvplanError as KvplanError
    from kvplan.plan import plan as plan

__version__ = "0.1.0"

__all__ = ["KvplanError", "Plan", "__version__", "plan"]

_HOMES = {"Plan": "kvplan.document", "KvplanError": "kvplan.errors", "plan": "kvplan.plan"}


def __getattr__(name: str) -> Any:
    """The public names, imported when first asked for, so that `import kvplan` stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kvplan' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """`kvplan.plan` is the function; importing the submodule of that name would put the module in its place."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "plan" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
