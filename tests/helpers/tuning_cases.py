"""Sweeps that search their constants, and scores that somebody knows without training."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from goal_sweep.runners.launch.tuning import replay
from goal_sweep.sweeps import Candidate, ResolvedSweep, Study, Training, load_sweep
from goal_sweep.sweeps.tuning import Space

SPACE = "objectives.params.tau: {loguniform: [1, 20]}, objectives.params.cir_shift: {choice: [0, 0.25, 0.5]}"
LRS = "stages.frozen.lr: {choice: [4e-3, 8e-3]}"
Score = Callable[[Training], float | str]
"""The score of a training, or why it fails."""


def tuned(*overrides: str, space: str = f"{SPACE}, {LRS}", budget: int = 16) -> ResolvedSweep:
    """The quickstart with a search."""
    config = load_sweep("quickstart", [f"tune={{space: {{{space}}}, budget: {budget}}}", *overrides])
    return ResolvedSweep(config=config, data_fingerprint="f", weights={"tf_efficientnet_lite0": "p"})


def searched(
    sweep: ResolvedSweep, score: Score, *, done: Callable[[Training], bool] = lambda one: True
) -> ResolvedSweep:
    """A sweep whose candidates have these scores, as far as they are done."""

    def read(trainings: Sequence[Training]) -> Mapping[Training, Any]:
        return {one: _ended(one, score) if done(one) else None for one in trainings}

    return replay(sweep, read)


def _ended(training: Training, score: Score) -> Any:
    found = score(training)
    return found if isinstance(found, str) else {"metrics": {"val/rsum": found}}


def tau_of(training: Training) -> float:
    return float(training.cell.objective.resolved().get("tau", 10.0))


def of(sweep: ResolvedSweep, objective: str = "sig/nca") -> tuple[Candidate, ...]:
    """The candidates of an objective."""
    return study_of(sweep, objective).candidates


def study_of(sweep: ResolvedSweep, objective: str = "sig/nca") -> Study:
    (study,) = [study for study in sweep.studies if "/".join(study.objective) == objective]
    return study


def space_of(sweep: ResolvedSweep, objective: str) -> Space:
    pair, _, triplet = objective.partition("/")
    return sweep.spaces[pair, triplet]
