"""Stages and sweeps stand side by side with their changes."""

from __future__ import annotations

from goal_sweep.analysis.report.sections.side_by_side import columns_of, side_by_side_section, uncompared
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import aggregate
from tests.helpers.results_cases import SweepWriter, inputs_of


def test_stages_of_a_sweep_stand_side_by_side(complete: SweepResults) -> None:
    inputs = inputs_of(complete)
    ((key, columns),) = columns_of(inputs.sweeps).items()
    assert key == ("coco", "vsepp", "resnet152", "paper")
    assert [block.key.stage for _, block in columns] == ["frozen", "finetune"]
    section = side_by_side_section(inputs)
    assert section is not None
    assert section.tables[0].head == ("objective", "frozen", "finetune", "change")
    assert section.tables[0].rows[0] == ("con/con", "40.0 ± 0.3", "45.0 ± 0.3", "+5.0")


def test_sweeps_with_gaps_and_other_data_say_so(complete: SweepResults) -> None:
    writer = SweepWriter("another", seeds=[1, 2], objectives=["con/con", "sig/cir"])
    writer.write("con/con", 1, data_fingerprint="other")
    sweeps = {"complete": aggregate(complete)[:1], "another": aggregate(writer.results())}
    section = side_by_side_section(inputs_of(complete, sweeps=sweeps))
    assert section is not None
    assert any("different data" in paragraph for paragraph in section.paragraphs)
    rows = {row[0]: row for row in section.tables[0].rows}
    assert section.tables[0].head == ("objective", "complete", "another", "change")
    assert rows["con/con"] == ("con/con", "40.0 ± 0.3", "40.0 ± -- (n=1)", "0.0")
    assert rows["sig/cir"][2:] == ("--", "--")
    assert rows["lin/con"][2:] == ("--", "--")


def test_one_block_has_nothing_beside_it(complete: SweepResults) -> None:
    alone = inputs_of(complete, {"b": complete}, sweeps={"complete": aggregate(complete)[:1]})
    assert side_by_side_section(alone) is None
    assert [note.split()[1] for note in uncompared(alone)] == ["'b'"]
