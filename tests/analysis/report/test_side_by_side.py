"""Stages and sweeps stand side by side with their changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import aggregate, fetch_runs
from analysis.report.document import ReportFolder
from analysis.report.side_by_side import columns_of, side_by_side_frame, side_by_side_section
from analysis.tracking import SweepRuns
from tests.helpers.analysis_cases import SweepWriter

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def complete(complete_sweep: SweepWriter) -> SweepRuns:
    return fetch_runs(complete_sweep.uri, "complete")


def test_stages_of_a_sweep_stand_side_by_side(complete: SweepRuns, tmp_path: Path) -> None:
    groups = columns_of({"complete": aggregate(complete)})
    ((key, columns),) = groups.items()
    assert key == ("coco", "vsepp", "resnet152", "paper")
    assert [column.block.key.stage for column in columns] == ["frozen", "finetune"]
    frame = side_by_side_frame(groups)
    changes = frame[(frame["stage"] == "finetune") & (frame["metric"] == "R@1")]["change"]
    assert changes.to_numpy() == pytest.approx(5.0)
    assert (frame[frame["stage"] == "frozen"]["change"] == 0).all()
    section = side_by_side_section(groups, ReportFolder(tmp_path))
    assert section is not None
    assert section.tables[0].head == ("objective", "frozen", "finetune", "change")
    assert section.tables[0].rows[0] == ("con/con", "40.0 ± 0.3", "45.0 ± 0.3", "+5.0")
    assert (tmp_path / section.figures[0].path).stat().st_size > 10_000


def test_sweeps_with_gaps_and_other_data_say_so(
    complete: SweepRuns, new_sweep: Callable[[str], SweepWriter], tmp_path: Path
) -> None:
    writer = new_sweep("another")
    writer.write_parent(seeds=[1, 2], objectives=["con/con", "sig/cir"])
    writer.write("con/con", 1, data_fingerprint="other")
    other = aggregate(fetch_runs(writer.uri, "another"))
    groups = columns_of({"complete": aggregate(complete)[:1], "another": other})
    section = side_by_side_section(groups, ReportFolder(tmp_path))
    assert section is not None
    assert any("different data" in paragraph for paragraph in section.paragraphs)
    rows = {row[0]: row for row in section.tables[0].rows}
    assert section.tables[0].head == ("objective", "complete", "another", "change")
    assert rows["con/con"] == ("con/con", "40.0 ± 0.3", "40.0 ± -- (n=1)", "+0.0")
    assert rows["sig/cir"][2:] == ("--", "--")
    assert rows["lin/con"][2:] == ("--", "--")


def test_one_block_has_nothing_beside_it(complete: SweepRuns, tmp_path: Path) -> None:
    groups = columns_of({"complete": aggregate(complete)[:1]})
    assert groups == {}
    assert side_by_side_section(groups, ReportFolder(tmp_path)) is None
