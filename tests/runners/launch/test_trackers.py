"""Trackers of plugins hear of each training while a launch goes on, and harm none."""

from __future__ import annotations

import io
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from goal_sweep.runners.launch import launcher
from goal_sweep.runners.launch.opened import OpenedSweep, open_sweep
from goal_sweep.sweeps import pack
from tests.helpers.in_process import SWEEP, launch, results

pytestmark = pytest.mark.usefixtures("without_plugins")
PAGE = Path(__file__).parents[3] / "docs" / "plugins.md"
(WANDB,) = (one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "import wandb" in one)
STAGES = "stages=[{name: frozen, epochs: 2, lr: 1e-3, batch_size: 16}]"


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
        self.steps: list[tuple[int, dict[str, float]]] = []
        self.exit_code = -1

    def log(self, values: dict[str, float], *, step: int) -> None:
        self.steps.append((step, values))

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a launch prints."""
    text = io.StringIO()
    monkeypatch.setattr("tests.helpers.in_process.Console", lambda **_: Console(file=text, width=200))
    return text


def sweep_with(folder: Path, plugin: str) -> OpenedSweep:
    (folder / "mine.py").write_text(plugin)
    (folder / "tiny.yaml").write_text(SWEEP)
    own = ["plugins=[mine.py]", f"store={folder / 'store'}", STAGES]
    return open_sweep(str(folder / "tiny.yaml"), own, trusted=True)


def test_the_example_gets_every_training_live_and_no_id_depends_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    sweep = sweep_with(tmp_path, WANDB)
    assert launch(sweep, monkeypatch).status == 0
    assert [run.settings["id"] for run in wandb.runs] == [training.key for training in sweep.trainings]
    for run, (name, (final, _, history)) in zip(wandb.runs, results(sweep).items(), strict=True):
        assert (run.settings["name"], run.settings["project"]) == (name, "tiny")
        assert run.settings["config"]["setting/stages.frozen.lr"] == "0.001"
        assert [(step, values["val/rsum"]) for step, values in run.steps] == [
            (epoch, values["val/rsum"]) for epoch, values in history
        ]
        assert run.summary["test/rsum"] == final["test/rsum"]
        assert run.exit_code == 0
    assert sweep.plan_unit(pack(sweep.trainings, sweep.config.execution)[0]).plugins == ()
    edited = sweep_with(tmp_path, f"{WANDB}# edited\n")
    assert [one.key for one in edited.trainings] == [one.key for one in sweep.trainings]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("wandb") is None, reason="needs wandb")
def test_the_example_runs_with_the_real_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: io.StringIO
) -> None:
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    sweep = sweep_with(tmp_path, WANDB)
    assert launch(sweep, monkeypatch).status == 0
    assert "tracker" not in output.getvalue()
    found = {path.name.rpartition("-")[2] for path in (tmp_path / "wandb").glob("offline-run-*")}
    assert found == {training.key for training in sweep.trainings}


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


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("raise ConnectionError('no route')", "mine.py): ConnectionError: no route; training goes on"),
        ("raise SystemExit(3)", "mine.py): SystemExit: 3; training goes on"),
        ("time.sleep(60)", "trackers have not taken everything within 0.1 s"),
    ],
)
def test_a_tracker_that_fails_or_hangs_is_told_once_and_harms_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: io.StringIO, does: str, said: str
) -> None:
    monkeypatch.setattr(launcher, "CATCH_UP_S", 0.1 if "sleep" in does else 60)
    sweep = sweep_with(tmp_path, TRACKER.format(does=does))
    assert launch(sweep, monkeypatch).status == 0
    assert len(results(sweep)) == 2
    assert output.getvalue().count(said) == 1
    assert sum("tracker" in line for line in output.getvalue().splitlines()) == 1
