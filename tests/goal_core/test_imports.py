import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT

HEAVY = ("torch", "timm", "transformers", "torchvision", "ray", "mlflow", "pandas", "goal_sweep.runners")


@pytest.mark.parametrize(
    "module",
    ["goal_sweep", "goal_sweep.sweeps", "goal_sweep.goal_core.models.frameworks", "goal_sweep.goal_core.training.plan"],
)
def test_what_commands_read_settings_with_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_second_copy_of_the_package_is_refused_with_the_right_name() -> None:
    code = "import goal_core.models.config"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stderr.splitlines()[-1].endswith("import goal_sweep.goal_core")
