"""Commands that only look at a sweep load neither torch nor Ray nor MLflow, which together take five seconds."""

import subprocess
import sys
from pathlib import Path

SLOW = ("torch", "torchvision", "timm", "transformers", "ray", "mlflow", "pandas", "scipy", "matplotlib")
RUN = f"""
import sys
from goal_sweep.runners.cli.app import run
for command in sys.argv[1:]:
    status = run(command.split())
    print("-- end")
    print([name for name in {SLOW} if name in sys.modules], status, command, file=sys.stderr)
"""
SAID = {
    "objectives": "sig-ms/cir",
    "status quickstart": "waiting",
    "status quickstart --json": '"cell"',
    "plan quickstart --set objectives.params.tau=20": "45 cells",
    "plan coco_vsepp --set data.root=/nowhere": "published size",
    "logs quickstart": "nothing has been logged yet",
    "--help": "launch",
}
"""Commands, and a part of what each says."""


def test_commands_that_only_look_load_no_large_library(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", RUN, *SAID], cwd=tmp_path, capture_output=True, text=True)
    for command, said, part in zip(SAID, done.stdout.split("-- end\n")[:-1], SAID.values(), strict=True):
        assert part in said, command
    assert done.stderr.splitlines() == [f"[] 0 {command}" for command in SAID]


OPEN = """
import sys, goal_sweep.runners.launch.launch
from goal_sweep.runners.launch.opened import open_sweep
from goal_sweep.sweeps import load_sweep
open_sweep(load_sweep("quickstart", sys.argv[1:])).check_trainable()
print("torch" in sys.modules)
"""


def test_a_driver_has_no_torch_in_memory(tmp_path: Path) -> None:
    """Neither for what it imports nor for the check of the first weights."""
    command = [sys.executable, "-c", OPEN, f"store={tmp_path}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
