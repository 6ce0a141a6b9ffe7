"""Ray gives units their parts of GPUs. GPUs are numbers to Ray, so none is needed; the units only sleep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

_LAUNCH = """
import json, os, sys, time
from pathlib import Path

os.environ["RAY_OVERRIDE_RESOURCES"] = '{"CPU": 8, "GPU": 2}'

from goal_sweep.runners.execution import ray_tune
from goal_sweep.runners.execution.capacity import Resources
from goal_sweep.sweeps import pack
from tests.helpers.sweep_cases import opened_in

folder = Path(sys.argv[1])


def train_trial(config):
    import ray
    from ray import tune

    job, node, began = ray.get(config["job"]), ray.get_runtime_context().get_node_id(), time.time()
    tune.report({"node": node, "events": []})
    name = f"{job.unit.stage.name}-{job.unit.trainings[0].cell.seed}"
    (folder / name).touch()
    while len(list(folder.glob("frozen-*"))) < 3:  # all of them have room at the same time
        time.sleep(0.1)
    time.sleep(1)
    tune.report({"node": node, "events": []})
    (gpu,) = ray.get_gpu_ids()
    (folder / f"{name}.json").write_text(json.dumps({"gpu": gpu, "began": began, "ended": time.time()}))


ray_tune.train_trial = train_trial


class Observer:
    stopping = False

    def finished(self, *arguments):
        return []

    def note(self, *arguments):
        pass

    started = ended = events = step = restarts = given_up = note


settings = ["seeds=[1, 2, 3]", "objectives={only: [con/con]}", "resources.gpus=0.5"]
sweep = opened_in(folder / "store", *settings)
jobs = [sweep.job(unit, "L", {}) for stage in sweep.by_stage for unit in pack(stage, sweep.config.execution)]
with ray_tune.RayUnits(None, Resources(cpus=1, gpus=0.5)) as units:
    units.run(jobs, Observer())
"""


def test_units_share_a_gpu_as_the_sweep_asks(tmp_path: Path) -> None:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("RAY_")}
    environment |= {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "GOAL_SWEEP_CACHE": str(tmp_path / "c")}
    command = [sys.executable, "-c", _LAUNCH, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs: list[dict[str, Any]] = [json.loads(path.read_text()) for path in tmp_path.glob("*-*.json")]
    assert len(runs) == 6
    beside = [
        sum(other["gpu"] == one["gpu"] and other["began"] <= one["began"] < other["ended"] for other in runs)
        for one in runs
    ]
    assert max(beside) == 2
