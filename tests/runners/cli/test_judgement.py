"""The grids at the end of a launch carry the report's mark."""

from rich.console import Console

from goal_sweep.runners.cli.launch import judge
from goal_sweep.runners.launch.view import SweepProgress, overview
from goal_sweep.runners.store import TrainingStatus
from tests.helpers.sweep_cases import resolved

POINTS = {
    ("con", "con"): {1: 50.0, 2: 50.4, 3: 50.2},
    ("con", "nca"): {1: 50.6, 2: 50.1, 3: 50.6},
    ("con", "cir"): {1: 41.0, 2: 41.3, 3: 41.1},
}


def test_one_seed_each_is_not_judged() -> None:
    assert judge({name: {1: points[1]} for name, points in POINTS.items()}) is None
    assert judge({}) is None


def test_the_grids_carry_the_mark_and_its_legend() -> None:
    sweep = resolved("con/con", "con/nca", "con/cir", seeds=(1, 2, 3))
    progress = SweepProgress(sweep.trainings)
    for one in sweep.trainings:
        objective = one.cell.objective
        value = POINTS[objective.pair, objective.triplet][one.cell.seed]
        metrics = {"test/i2t_r1": value, "test/t2i_r1": 3.0}
        progress.set(one, TrainingStatus(state="done", result={"metrics": metrics}))
    console = Console(width=80)
    with console.capture() as capture:
        console.print(overview(progress, "sweep", judge=judge))
    lines = [" ".join(line.split()) for line in capture.get().splitlines()]
    assert "con 50.2 ± 0.2 ≈ *50.4 ± 0.3 41.1 ± 0.2" in lines
    assert "con *3.0 ± 0.0 *3.0 ± 0.0 *3.0 ± 0.0" in lines
    assert lines[-1].startswith("≈ not significantly below the highest")
    with console.capture() as capture:
        console.print(overview(progress, "sweep"))
    assert "≈" not in capture.get()
