"""Trackers of plugins hear of each training while a launch goes on, beside MLflow, and harm none."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from goal_sweep.runners.launch import launch as launch_module
from tests.helpers.in_process import without_ray
from tests.helpers.launches import goal_sweep_here
from tests.helpers.product import STORE, check_mlflow, results, tiny_in

pytestmark = [pytest.mark.usefixtures("without_plugins"), pytest.mark.integration]
PAGE = Path(__file__).parents[3] / "docs" / "plugins.md"
(WANDB,) = (one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "import wandb" in one)


class Wandb(ModuleType):
    """As much of Weights & Biases as the example uses. Each run keeps what it is told."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: list[Run] = []

    def init(self, **settings: Any) -> Run:
        self.runs.append(Run(settings))
        return self.runs[-1]


class Run:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.summary = settings, dict[str, float]()
        self.steps: list[int] = []
        self.exit_code = -1

    def log(self, values: dict[str, float], *, step: int) -> None:
        assert "val/rsum" in values
        self.steps.append(step)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


def launch(folder: Path, plugins: dict[str, str], empty_database: Path, patch: pytest.MonkeyPatch) -> str:
    """Launch the tiny sweep with plugins. Returns what was said."""
    tiny_in(folder, 2)
    for name, text in plugins.items():
        (folder / name).write_text(text)
    (folder / STORE).mkdir()
    shutil.copy(empty_database, folder / STORE / "mlflow.db")
    without_ray(patch)
    done = goal_sweep_here(folder, "launch", "tiny.yaml", "--set", f"plugins=[{','.join(plugins)}]")
    assert done.returncode == 0, done.stdout + done.stderr
    check_mlflow(folder, 2)
    return done.stdout + done.stderr


TRACKER = """
import time
from goal_sweep.trackers import trackers

@trackers.register("mine")
class Mine:
    def __init__(self, sweep):
        pass

    def __getattr__(self, name):
        {does}
"""
FAILS = TRACKER.format(does="raise ConnectionError('no route')")


def test_the_example_gets_every_training_live_beside_mlflow_and_one_that_fails(
    tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    told = launch(tmp_path / "run", {"mine.py": FAILS, "theirs.py": WANDB}, empty_database, monkeypatch)
    assert told.count("an update is skipped: mine: ConnectionError: no route") == 1
    stored = {name.rpartition("-")[2]: metrics for name, metrics in results(tmp_path / "run").items()}
    assert {run.settings["id"] for run in wandb.runs} == stored.keys()
    for run in wandb.runs:
        stage = "frozen" if "(frozen)" in run.settings["name"] else "finetune"
        assert run.settings["project"] == "tiny"
        assert run.settings["config"][f"setting/stages.{stage}.lr"] == {"frozen": "0.001", "finetune": "0.0001"}[stage]
        assert run.steps == {"frozen": [1, 2], "finetune": [1]}[stage]
        assert run.summary.items() <= stored[run.settings["id"]].items()
        assert (len(run.summary) > 6, run.exit_code) == (True, 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("does", "said"), [("raise SystemExit(3)", "mine: SystemExit: 3"), ("time.sleep(60)", "")], ids=["leaves", "hangs"]
)
def test_a_tracker_that_leaves_or_hangs_is_told_once_and_harms_nobody(
    tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch, does: str, said: str
) -> None:
    monkeypatch.setattr(launch_module, "CATCH_UP_S", 5.0 if "sleep" in does else 60.0)
    told = launch(tmp_path / "run", {"mine.py": TRACKER.format(does=does)}, empty_database, monkeypatch)
    assert told.count("an update is skipped") == bool(said)
    assert said in told
