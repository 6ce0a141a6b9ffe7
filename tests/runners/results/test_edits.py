"""What a launch reports about edits since an earlier launch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.runners.results import ResultsTable
from goal_sweep.runners.results.edits import changes
from goal_sweep.runners.results.rows import asked_row
from goal_sweep.sweeps import Axis, ResolvedSweep, Training
from goal_sweep.sweeps.results import Header, Requested
from tests.helpers.sweep_cases import resolved
from tests.helpers.tuning_cases import searched, tuned

SWEEP = resolved("con/con", "sig-ms/cir", seeds=(1, 2))


def launched(*trainings: Training, **columns: Any) -> ResultsTable:
    """The table of an earlier launch that has trained everything."""
    rows = [asked_row(one) | {"status": "done", "git_diff": ""} | columns for one in trainings]
    names = dict.fromkeys(name for row in rows for name in row)
    requested = Requested(config={}, data_fingerprint="", weights={})
    header = Header(sweep="s", seeds=(), objectives=(), stages=(), points={}, requested=requested)
    return ResultsTable.of(header, pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]))


def with_lr(lr: float) -> ResolvedSweep:
    stage = StageConfig(name="frozen", epochs=3, lr=lr)
    return replace(SWEEP, config=replace(SWEEP.config, stages=(stage,)))


def edits(before: ResolvedSweep, now: ResolvedSweep) -> list[str]:
    return [*changes(launched(*before.trainings), now.trainings, now.trainings)]


def test_an_edited_setting_is_named_with_both_values() -> None:
    (line,) = edits(with_lr(0.2), SWEEP)
    assert "stages.frozen.lr 0.2 -> 0.1; 4 trainings" in line


def test_with_axes_a_training_is_compared_with_that_of_its_own_point() -> None:
    axis = Axis(key="objectives.params.tau", values=(10.0, 1.0))
    points = replace(SWEEP, config=replace(SWEEP.config, axes=(axis,)))
    edited = replace(points, config=replace(with_lr(0.2).config, axes=(axis,)))
    (line,) = edits(edited, points)
    assert "stages.frozen.lr 0.2 -> 0.1; 6 trainings" in line
    more = replace(points, config=replace(SWEEP.config, axes=(replace(axis, values=(10.0, 1.0, 5.0)),)))
    assert edits(points, more) == []


def test_a_setting_that_the_sweep_file_leaves_out_is_named_too() -> None:
    stage = StageConfig(name="frozen", epochs=3, lr=0.1, select_on="test")
    on_test = replace(SWEEP, config=replace(SWEEP.config, stages=(stage,)))
    (there,), (back,) = edits(SWEEP, on_test), edits(on_test, SWEEP)
    assert "stages.frozen.select_on val -> test" in there
    assert "stages.frozen.select_on test -> val" in back


def test_a_removed_stage_is_named() -> None:
    later = StageConfig(name="finetune", epochs=1, lr=0.1)
    both = replace(SWEEP, config=replace(SWEEP.config, stages=(*SWEEP.config.stages, later)))
    alone = replace(SWEEP, config=replace(SWEEP.config, stages=(later,)))
    line, left_out = edits(both, alone)
    assert "stages finetune, frozen -> finetune" in line
    assert left_out.startswith("4 results ")


def test_only_what_will_be_trained_starts_over() -> None:
    before = launched(*with_lr(0.2).trainings)
    (line,) = changes(before, SWEEP.trainings, SWEEP.trainings[:1])
    assert "; 1 training " in line
    assert [*changes(before, SWEEP.trainings, [])] == []


def test_nothing_is_said_of_what_was_there_or_is_asked_for_beside_it() -> None:
    both = launched(*SWEEP.trainings, *with_lr(0.2).trainings)
    assert [*changes(both, SWEEP.trainings, SWEEP.trainings)] == []
    assert edits(SWEEP, resolved("con/con", "sig-ms/cir", "lin/nca", seeds=(1, 2, 3))) == []


def test_edited_code_and_data_are_edits_and_a_setting_of_another_version_is_none() -> None:
    earlier = replace(SWEEP, data_fingerprint="before").trainings
    before = launched(
        *earlier, **{"setting/stages.frozen.since_then": "1", "setting/objective.triplet_code": "1a2b3c4d5e6f"}
    )
    (line,) = changes(before, SWEEP.trainings, SWEEP.trainings)
    assert "objective.triplet_code 1a2b3c4d5e6f -> as shipped, the data (before -> f); 4 trainings" in line


def test_what_a_search_tries_is_not_called_an_edit() -> None:
    sweep = tuned("objectives={only: [sig/cir]}", "seeds=[1]", budget=3)
    sweep = searched(sweep, lambda one: float(one.number == 2))
    default, *_ = sweep.reporting
    others = [one for one in sweep.trainings if one is not default]
    assert [*changes(launched(default, others[-1]), sweep.trainings, others)] == []


def test_uncommitted_changes_that_results_lack_are_told() -> None:
    table = launched(*SWEEP.trainings, git_diff="aaaa")
    for same in ("aaaa", ""):
        assert [*changes(table, SWEEP.trainings, [], same)] == []
    (line,) = changes(table, SWEEP.trainings, [], "bbbb")
    assert "uncommitted changes that 4 finished trainings" in line


def test_results_that_another_sweep_of_the_same_name_left_are_counted() -> None:
    before, other = launched(*SWEEP.trainings), resolved("lin/con", seeds=(1,))
    (line,) = changes(before, other.trainings, [])
    assert line.startswith("4 results ")
    assert "named s " in line
    fewer = [training for training in SWEEP.trainings if training.cell.seed == 1]
    assert next(changes(before, fewer, [])).startswith("2 results ")
    for all_there in (SWEEP.trainings, with_lr(0.2).trainings):
        assert [*changes(before, all_there, [])] == []
    assert [*changes(launched(*SWEEP.trainings, status="failed"), other.trainings, [])] == []
