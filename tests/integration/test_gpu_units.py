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
from dataclasses import replace
from pathlib import Path

os.environ["RAY_OVERRIDE_RESOURCES"] = '{"CPU": 8, "GPU": 2}'

from goal_sweep.goal_core.training import TrainingFailed
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
    first, full = job.unit.trainings[0], []
    (folder / f"{job.unit.stage.name}-{first.cell.seed}").touch()
    while len(list(folder.glob("frozen-*"))) < 3:  # all of them have room at the same time
        time.sleep(0.1)
    time.sleep(1)
    if job.unit.stage.name == "frozen" and first.cell.seed == 1 and job.units_per_gpu > 1:
        full = [TrainingFailed(key=first.key, kind="memory", reason="CUDA out of memory", trace="")]
    tune.report({"node": node, "events": full})
    (gpu,) = ray.get_gpu_ids()
    line = {"stage": job.unit.stage.name, "seed": first.cell.seed, "units": job.units_per_gpu, "gpu": gpu}
    line |= {"whole": job.plan.units_per_gpu == 1, "began": began, "ended": time.time()}
    (folder / f"{os.getpid()}.json").write_text(json.dumps(line))


ray_tune.train_trial = train_trial


class Observer:
    stopping = False

    def __init__(self):
        self.full = []

    def events(self, events):
        self.full += [event.key for event in events if isinstance(event, TrainingFailed)]

    def finished(self, job):
        keys = [one.key for one in job.unit.trainings if one.key in self.full]
        self.full = [key for key in self.full if key not in keys]
        return [job] if keys else []

    def note(self, line):
        print(line, file=sys.stderr)

    def started(self, *arguments):
        pass

    ended = step = restarts = given_up = started


sweep = opened_in(folder / "store", "seeds=[1, 2, 3]", "objectives={only: [con/con]}", "resources.gpus=1")
jobs = [
    sweep.job(unit, "L", {}, rank=(number, 0.0), units_per_gpu=2 - number)
    for number, stage in enumerate(sweep.by_stage)
    for unit in pack(stage, sweep.config.execution)
]
with ray_tune.RayUnits(None, Resources(cpus=1, gpus=1)) as units:
    units.run(jobs, Observer())
"""


def test_units_share_a_gpu_as_the_launch_chose_and_one_that_it_was_too_small_for_gets_its_own(tmp_path: Path) -> None:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("RAY_")}
    environment |= {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "GOAL_SWEEP_CACHE": str(tmp_path / "c")}
    command = [sys.executable, "-c", _LAUNCH, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs: list[dict[str, Any]] = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    frozen = [one for one in runs if one["stage"] == "frozen"]
    assert sorted((one["seed"], one["units"], one["whole"]) for one in frozen) == [
        (1, 1, True), (1, 2, False), (2, 2, False), (3, 2, False)
    ]  # fmt: skip
    assert [(one["units"], one["whole"]) for one in runs if one["stage"] == "finetune"] == [(1, True)] * 3
    together = 0
    for one in runs:
        beside = [
            other for other in runs if other["gpu"] == one["gpu"] and other["began"] <= one["began"] < other["ended"]
        ]
        assert sum(1 / other["units"] for other in beside) <= 1
        together = max(together, len(beside))
    assert together == 2
    assert {one["gpu"] for one in runs} == {0, 1}
