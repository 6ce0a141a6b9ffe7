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


def test_a_failure_is_named_and_what_cannot_start_any_more_counts_as_failed() -> None:
    sweep = scenes("objectives.only=[con/con]", "seeds=[1, 2, 3]")
    progress, failed = SweepProgress(sweep.trainings), sweep.by_stage[0][2]
    progress.set(failed, status("failed", reason="diverged"))
    assert any(failed.cell.id in line and "diverged" in line for line in shown(progress))
    assert progress.counts() == {"done": 0, "running": 0, "waiting": 4, "failed": 2}


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
