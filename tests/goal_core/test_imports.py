from __future__ import annotations

import subprocess
import sys

HEAVY = ("timm", "transformers", "torchvision", "ray", "mlflow", "pandas", "goal_sweep.runners", "goal_sweep.analysis")


def test_importing_sweeps_loads_nothing_heavy() -> None:
    code = f"import sys; from goal_sweep import sweeps; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
