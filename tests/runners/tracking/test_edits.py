"""What a launch reports about edits since an earlier launch."""

from __future__ import annotations

from dataclasses import replace

from goal_core.training.config import StageConfig
from runners.tracking import schema as names
from runners.tracking.edits import describe_code, describe_edits
from runners.tracking.runs import TrackedRun
from runners.tracking.values import training_params, training_tags
from sweeps import Axis, ResolvedSweep, Training
from tests.helpers.sweep_cases import resolved

SWEEP = resolved("con/con", "sig-ms/cir", seeds=(1, 2))


def tracked(sweep: ResolvedSweep, started: int = 0, **tags: str) -> dict[str, TrackedRun]:
    """The runs of an earlier launch of a sweep, finished unless the tags say otherwise."""

    def run(training: Training) -> TrackedRun:
        own = training_tags(training) | {names.STATUS: names.DONE} | tags
        return TrackedRun(id="x", status="FINISHED", started=started, tags=own, params=training_params(training))

    return {training.key: run(training) for training in sweep.trainings}


def with_lr(lr: float) -> ResolvedSweep:
    stage = StageConfig(name="frozen", epochs=3, lr=lr)
    return replace(SWEEP, config=replace(SWEEP.config, stages=(stage,)))


def test_an_edited_setting_is_named_with_both_values() -> None:
    assert describe_edits(SWEEP.trainings, SWEEP.trainings, tracked(with_lr(0.2))) == [
        "edited since an earlier launch: stages.frozen.lr 0.2 -> 0.1; 4 trainings start over, and the earlier results "
        "are kept"
    ]


def test_with_axes_a_training_is_compared_with_that_of_its_own_point() -> None:
    axis = Axis(key="objectives.params.tau", values=(10.0, 1.0))
    points = replace(SWEEP, config=replace(SWEEP.config, axes=(axis,)))
    edited = replace(points, config=replace(with_lr(0.2).config, axes=(axis,)))
    (line,) = describe_edits(points.trainings, points.trainings, tracked(edited))
    assert line.startswith("edited since an earlier launch: stages.frozen.lr 0.2 -> 0.1; 6 trainings start over")
    more = replace(points, config=replace(SWEEP.config, axes=(replace(axis, values=(10.0, 1.0, 5.0)),)))
    assert describe_edits(more.trainings, more.trainings, tracked(points)) == []


def test_the_newest_of_several_earlier_launches_is_compared_with() -> None:
    runs = tracked(with_lr(0.3), started=1) | tracked(with_lr(0.2), started=2)
    (line,) = describe_edits(SWEEP.trainings, SWEEP.trainings, runs)
    assert "stages.frozen.lr 0.2 -> 0.1" in line


def test_a_setting_that_runs_show_only_when_set_is_named_too() -> None:
    stage = StageConfig(name="frozen", epochs=3, lr=0.1, select_on="test")
    on_test = replace(SWEEP, config=replace(SWEEP.config, stages=(stage,)))
    (there,) = describe_edits(on_test.trainings, on_test.trainings, tracked(SWEEP))
    assert "stages.frozen.select_on val -> test" in there
    (back,) = describe_edits(SWEEP.trainings, SWEEP.trainings, tracked(on_test))
    assert "stages.frozen.select_on test -> val" in back


def test_a_removed_stage_is_named() -> None:
    later = StageConfig(name="finetune", epochs=1, lr=0.1)
    both = replace(SWEEP, config=replace(SWEEP.config, stages=(*SWEEP.config.stages, later)))
    alone = replace(SWEEP, config=replace(SWEEP.config, stages=(later,)))
    (line,) = describe_edits(alone.trainings, alone.trainings, tracked(both))
    assert "stages finetune, frozen -> finetune" in line


def test_only_what_will_be_trained_starts_over() -> None:
    earlier = tracked(with_lr(0.2))
    (line,) = describe_edits(SWEEP.trainings, SWEEP.trainings[:1], earlier)
    assert line.endswith("; 1 training starts over, and the earlier results are kept")
    assert describe_edits(SWEEP.trainings, [], earlier) == []


def test_nothing_is_said_of_what_was_there_or_is_asked_for_beside_it() -> None:
    assert describe_edits(SWEEP.trainings, SWEEP.trainings, {}) == []
    assert describe_edits(SWEEP.trainings, SWEEP.trainings, tracked(SWEEP) | tracked(with_lr(0.2))) == []
    more = resolved("con/con", "sig-ms/cir", "lin/nca", seeds=(1, 2, 3))
    assert describe_edits(more.trainings, more.trainings, tracked(SWEEP)) == []


def test_a_parameter_of_another_version_is_no_edit_but_edited_code_and_data_are() -> None:
    earlier = tracked(replace(SWEEP, data_fingerprint="before"))
    for run in earlier.values():
        run.params["stages.frozen.since_then"] = "1"
        run.params["objective.triplet_code"] = "1a2b3c4d5e6f"
    (line,) = describe_edits(SWEEP.trainings, SWEEP.trainings, earlier)
    assert "objective.triplet_code 1a2b3c4d5e6f -> as shipped, the data (before -> f); 4 trainings" in line


def test_uncommitted_changes_that_results_lack_are_told() -> None:
    runs = tracked(SWEEP, **{names.GIT_DIFF: "aaaa"})
    assert describe_code(SWEEP.trainings, runs, "aaaa") == ""
    assert describe_code(SWEEP.trainings, runs, "") == ""
    assert describe_code(SWEEP.trainings, {}, "bbbb") == ""
    assert describe_code(SWEEP.trainings, runs, "bbbb").startswith(
        "the source tree has uncommitted changes that 4 finished trainings ran without"
    )
