"""A half finished sweep to show."""

import io
from typing import Any

from rich.console import Console

from goal_sweep.runners.launch.view import SweepProgress
from goal_sweep.runners.store import State, TrainingStatus
from goal_sweep.sweeps import Training
from tests.helpers.sweep_cases import resolved


def printed(what: object, width: int = 80, height: int = 24) -> str:
    """What a console of this size, which is no terminal, prints."""
    Console(file=(file := io.StringIO()), width=width, height=height, highlight=False).print(what)
    return file.getvalue()


def status(state: State, **fields: Any) -> TrainingStatus:
    """A status; `metrics` are those of its result."""
    metrics = fields.pop("metrics", None)
    return TrainingStatus(state=state, result={"metrics": metrics} if metrics else {}, **fields)


def half_done() -> SweepProgress:
    """Fifteen objectives and three seeds: wide numbers, a failure, runs in progress, and the rest waiting."""
    sweep = resolved(seeds=(1, 2, 3))
    # Seeds side by side, so that the first objectives have all of theirs.
    trainings = sorted(sweep.trainings, key=lambda one: sweep.config.objectives.names.index(_objective(one)))
    progress = SweepProgress(trainings)
    for number, training in enumerate(trainings[:20]):
        if number == 4:
            reason = "NaN in the gradient at epoch 2, step 17: " + "long reason " * 12
            progress.set(training, status("failed", reason=reason))
        elif number in (8, 12, 13, 14):
            progress.running(training, 1, 200.0 + number)
        else:
            numbers = {"test/i2t_r1": 100.0 - number * 7 % 30, "test/t2i_r1": 3.0 + number, "test/rsum": 300.0}
            progress.set(training, status("done", metrics={**numbers, "val/rsum": 310.0 - number}))
    return progress


def _objective(training: Training) -> tuple[str, str]:
    objective = training.cell.objective
    return objective.pair, objective.triplet
