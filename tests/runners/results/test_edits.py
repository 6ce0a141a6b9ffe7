"""What a launch reports about edits since an earlier launch."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.runners.results import ResultsTable, asked_row, edits_since
from goal_sweep.sweeps import ResolvedSweep
from goal_sweep.sweeps.results import Header
from tests.helpers.sweep_cases import resolved

SWEEP = resolved("con/con", "sig-ms/cir", seeds=(1, 2))


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The digest of the uncommitted changes of the source tree."""
    changes = {"git_diff_sha256": ""}
    monkeypatch.setattr("goal_sweep.runners.results.gather", lambda: SimpleNamespace(**changes))
    return changes


def launched(sweep: ResolvedSweep, **columns: Any) -> ResultsTable:
    """The table of an earlier launch that has trained everything."""
    rows = [asked_row(one) | {"status": "done", "git_diff": ""} | columns for one in sweep.trainings]
    header = Header(sweep="s", seeds=(), objectives=(), stages=(), configurations={}, requested=sweep.requested)
    return ResultsTable.of(header, pa.Table.from_pylist(rows))


def with_stages(*stages: StageConfig) -> ResolvedSweep:
    return replace(SWEEP, config=replace(SWEEP.config, stages=stages))


FROZEN = StageConfig(name="frozen", epochs=3, lr=0.2)
EDITED = {
    "a setting": (with_stages(FROZEN), "stages.frozen.lr 0.2 -> 0.1"),
    "one that the file leaves out": (with_stages(replace(FROZEN, lr=0.1, select_on="test")), "select_on test -> "),
    "a stage": (with_stages(*SWEEP.config.stages, replace(FROZEN, name="finetune")), "stages.finetune."),
    "data": (replace(SWEEP, data_fingerprint="before"), "data_fingerprint before -> f"),
    "objectives": (resolved("lin/con", seeds=(1,)), "objectives.only"),
}


@pytest.mark.parametrize("what", EDITED)
def test_an_edit_is_named_with_both_values_and_what_it_leaves_out(what: str) -> None:
    before, said = EDITED[what]
    (line,) = edits_since(launched(before), SWEEP)
    lost = {one.key for one in before.trainings} - {one.key for one in SWEEP.trainings}
    assert said in line
    assert f"; {len(lost)} finished trainings" in line


def test_nothing_is_said_of_what_leaves_no_result_out() -> None:
    more = resolved("con/con", "sig-ms/cir", "lin/nca", seeds=(1, 2, 3))
    assert [*edits_since(launched(SWEEP), more)] == []
    assert [*edits_since(launched(with_stages(FROZEN), status="failed"), SWEEP)] == []
    assert [*edits_since(None, SWEEP)] == []


def test_uncommitted_changes_that_results_lack_are_told(source: dict[str, str]) -> None:
    table = launched(SWEEP, git_diff="aaaa")
    for same in ("aaaa", ""):
        source["git_diff_sha256"] = same
        assert [*edits_since(table, SWEEP)] == []
    source["git_diff_sha256"] = "bbbb"
    (line,) = edits_since(table, SWEEP)
    assert "uncommitted changes that 4 finished trainings" in line
