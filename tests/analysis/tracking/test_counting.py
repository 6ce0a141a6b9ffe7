"""What counts is what the sweep asks for now: neither a mended failure nor an older version of it is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import aggregate, fetch_runs
from tests.helpers.analysis_cases import FINGERPRINT, SweepWriter
from tests.helpers.blank_figures import write_texts

pytestmark = pytest.mark.integration
OLD = "00" * 8


def asking(new_sweep: Callable[[str], SweepWriter], name: str, **tags: str) -> SweepWriter:
    writer = new_sweep(name)
    writer.write_parent(seeds=[1], objectives=["con/con"], **tags)
    return writer


@pytest.mark.parametrize(
    ("older", "why"),
    [
        ({"settings_key": "old"}, "trained with other settings than the sweep's (goal.settings_key old)"),
        (
            {"settings_key": "old", "data_fingerprint": OLD},
            "trained with other settings than the sweep's (goal.settings_key old)",
        ),
        ({"data_fingerprint": OLD}, f"failed on other data than newer runs (goal.data_fingerprint {OLD})"),
        (
            {"settings_key": "old", "backbone": "resnet18"},
            "trained with other settings than the sweep's (goal.settings_key old)",
        ),
        ({"stage": "pretrain"}, "stage pretrain is not in the sweep"),
        (
            {"variant": "released", "objective_key": "m1"},
            "trained with other objective parameters than the sweep's (goal.objective_key m1)",
        ),
    ],
)
def test_a_failure_mended_by_an_edit_is_no_gap(
    new_sweep: Callable[[str], SweepWriter], tmp_path: Path, older: dict[str, str], why: str
) -> None:
    """Seen in real launches: data or settings at which training fails are edited, and the sweep is launched again."""
    name = f"mended {sorted(older.items())}"
    writer = asking(new_sweep, name, **{"goal.settings_keys": '["new"]', "goal.objective_keys": '["m2"]'})
    tags = {"settings_key": "new", "objective_key": "m2"} | older
    writer.write(status="failed", reason="collapsed", stage_key="failed", **tags)
    writer.write(stage_key="done", settings_key="new", objective_key="m2")
    result = write_texts(writer.uri, name, tmp_path)
    assert (result.num_expected, result.num_counted, result.num_failed) == (1, 1, 0)
    assert [block.key.data_fingerprint for block in result.blocks] == [FINGERPRINT]
    assert list(fetch_runs(writer.uri, name).runs["excluded"]) == [why, ""]
    assert f"| {why} |" in (tmp_path / "report.md").read_text()


def test_a_failure_done_since_by_another_run_names_that_run(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = asking(new_sweep, "done since")
    writer.write(status="failed", reason="out of memory", stage_key="one")
    done = writer.write(stage_key="two")
    sweep = fetch_runs(writer.uri, writer.name)
    assert list(sweep.runs["excluded"]) == [f"failed; run {done} has done it since", ""]
    assert aggregate(sweep)[0].gaps == []


def test_a_failure_of_what_is_asked_for_stays_a_gap(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = asking(new_sweep, "still failed", **{"goal.settings_keys": '["new"]'})
    writer.write(settings_key="old", stage_key="old")
    writer.write(status="failed", reason="collapsed", settings_key="new", stage_key="new")
    (block,) = aggregate(fetch_runs(writer.uri, writer.name))
    assert [(gap.status, gap.reason) for _, gap in block.gaps] == [("failed", "collapsed")]


def test_the_parent_run_can_say_which_data_are_asked_for(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = asking(new_sweep, "back to the old data", **{"goal.data_fingerprint": OLD})
    writer.write(stage_key="one", data_fingerprint=OLD)
    writer.write(stage_key="two")
    sweep = fetch_runs(writer.uri, writer.name)
    why = f"trained on other data than the sweep's (goal.data_fingerprint {FINGERPRINT})"
    assert list(sweep.runs["excluded"]) == ["", why]
    assert [block.key.data_fingerprint for block in aggregate(sweep)] == [OLD]


def test_results_on_two_sets_of_data_are_said_where_nobody_says_which_are_asked_for(
    new_sweep: Callable[[str], SweepWriter],
) -> None:
    writer = asking(new_sweep, "two sets of data")
    writer.write(stage_key="one", data_fingerprint=OLD)
    writer.write(stage_key="two")
    sweep = fetch_runs(writer.uri, writer.name)
    assert len(aggregate(sweep)) == 2
    (note,) = sweep.notes
    assert note.startswith(f"Trainings on 2 sets of data count, each in separate blocks (fingerprints {OLD}, ")


def test_an_edited_sweep_of_which_nothing_has_begun_is_all_gaps(
    new_sweep: Callable[[str], SweepWriter], tmp_path: Path
) -> None:
    writer = asking(new_sweep, "just edited", **{"goal.settings_keys": '["new"]'})
    writer.write(settings_key="old")
    result = write_texts(writer.uri, writer.name, tmp_path)
    assert (result.num_expected, result.num_counted, result.num_failed) == (1, 0, 0)
    assert "Nothing of this block is finished" in (tmp_path / "report.md").read_text()
