"""The states of trainings, and the grid that shows them."""

from goal_sweep.runners.launch.view import SweepProgress, overview
from goal_sweep.runners.store import TrainingStatus
from tests.helpers.progress_cases import printed, status
from tests.helpers.sweep_cases import scenes


def shown(progress: SweepProgress) -> list[str]:
    return [" ".join(line.split()) for line in printed(overview(progress, "sweep")).splitlines()]


def done(r1: float) -> TrainingStatus:
    return status("done", metrics={"test/i2t_r1": r1, "test/t2i_r1": r1})


def test_columns_and_rows_stand_in_the_tables_order_whatever_the_objectives() -> None:
    lines = shown(
        SweepProgress(scenes("objectives.only=[con/cir, con/con, sig-ms/cir, lin-ms/nca]", "seeds=[1]").trainings)
    )
    head = next(line for line in lines if "con" in line and "nca" in line)
    assert head.split() == ["con", "nca", "cir"]
    assert [line.split()[0] for line in lines[4:7]] == ["con", "lin-ms", "sig-ms"]


def test_a_cell_of_the_grid_shows_mean_and_std_and_says_which_seeds_are_missing() -> None:
    sweep = scenes("objectives.only=[con/con]", "seeds=[1, 2, 3]")
    chosen = sweep.by_stage[0]
    progress = SweepProgress(sweep.trainings)
    progress.set(chosen[0], done(50.0))
    progress.set(chosen[1], done(52.0))
    progress.running(chosen[2], 3)
    progress.waiting(chosen[2])
    assert any("51.0 ± 1.4 ██▂" in line for line in shown(progress))
    progress.set(chosen[2], status("failed", reason="diverged"))
    lines = shown(progress)
    assert any("51.0 ± 1.4 ██x" in line for line in lines)
    assert any(chosen[2].cell.id in line and "diverged" in line for line in lines)
    # Its finetune stage cannot start any more.
    assert progress.counts() == {"done": 2, "running": 0, "waiting": 2, "failed": 2}


def test_the_work_that_is_done_follows_the_epochs() -> None:
    frozen, finetune = scenes("objectives.only=[con/con]", "seeds=[1]").trainings
    progress = SweepProgress([frozen, finetune])
    assert progress.work() == (0, frozen.stage.epochs + finetune.stage.epochs)
    progress.running(frozen, 1, 12.0)
    assert progress.work()[0] == 1
    progress.set(finetune, done(50.0))
    progress.waiting(frozen)
    assert progress.begun(frozen)
    assert progress.counts() == {"done": 1, "running": 0, "waiting": 1, "failed": 0}
    progress.set(frozen, status("failed", reason="it broke"))
    assert progress.work()[0] == progress.work()[1]  # nothing is left to do


def test_the_digest_changes_with_a_result() -> None:
    sweep = scenes("objectives.only=[con/con]", "seeds=[1]")

    def digest(r1: float | None) -> str:
        progress = SweepProgress(sweep.trainings)
        if r1 is not None:
            progress.set(sweep.trainings[0], done(r1))
        return progress.digest()

    assert digest(50.0) == digest(50.0)
    assert len({digest(None), digest(50.0), digest(50.1)}) == 3
