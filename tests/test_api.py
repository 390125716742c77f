"""The names that `import kvplan` promises, whatever was imported before."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "code",
    [
        "from kvplan import plan; from kvplan.plan import plan as same; assert plan is same",
        "from kvplan.plan import plan; from kvplan import plan as same; assert plan is same",
        "import kvplan.plan; from kvplan import plan; assert callable(plan)",
        "import kvplan; assert kvplan.plan is kvplan.plan and callable(kvplan.plan)",
        "import importlib; m = importlib.import_module('kvplan.plan'); import kvplan; assert kvplan.plan is m.plan",
        "from kvplan.agents import pools; import kvplan; assert callable(kvplan.plan)",
        "from kvplan import *; assert callable(plan) and issubclass(KvplanError, Exception) and Plan",
        "import kvplan, sys; assert not {'pydantic', 'numpy', 'typer', 'kvplan.plan'} & set(sys.modules)",
        "import kvplan; assert {'plan', 'Plan', 'KvplanError', '__version__'} <= set(dir(kvplan))",
    ],
)
def test_plan_is_the_function_in_any_order(code: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_name_is_an_attribute_error() -> None:
    import kvplan

    with pytest.raises(AttributeError, match="'nope'"):
        kvplan.nope  # noqa: B018  (asked for to be refused)
