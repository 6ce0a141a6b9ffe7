"""What speaks against numbers is said at the top, and a selection on test under every table."""

from pathlib import Path

import pytest

from goal_sweep.analysis.report.sections.blocks import settings_section
from goal_sweep.analysis.report.sentences import notes, summary
from goal_sweep.analysis.statistics.aggregation import aggregate
from tests.helpers.blank_figures import write_texts
from tests.helpers.results_cases import SweepWriter, inputs_of

LR = {"stages.frozen.lr": "0.1"}


def said(writer: SweepWriter, word: str) -> list[str]:
    return [note for note in notes(inputs_of(writer.results())) if word in note]


def test_a_complete_sweep_needs_no_note() -> None:
    writer = SweepWriter()
    writer.write_all()
    results = writer.results()
    assert notes(inputs_of(results)) == []
    assert summary(results, aggregate(results)).startswith("45 of 45 trainings")


@pytest.mark.parametrize(
    ("column", "word"), [("below_warmup", "BELOW THE WARM-UP"), ("weak_objective", "WEAK OBJECTIVE")]
)
def test_trainings_whose_epochs_speak_against_them_are_named(column: str, word: str, tmp_path: Path) -> None:
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con", "sig/cir"])
    for objective, seed in (("con/con", 1), ("sig/cir", 1), ("sig/cir", 2)):
        writer.write(objective, seed)[column] = "why" if objective == "sig/cir" else ""
    writer.write("con/con", 2, status="failed")[column] = "does not count"
    (note,) = said(writer, word)
    assert "2 of 3 trainings of MS-COCO, VSE++ (resnet152), stage frozen" in note
    assert note.endswith(": sig/cir (seeds 1, 2).")
    assert note in (write_texts(writer.results(), tmp_path).folder / "report.md").read_text()


def test_trainings_from_a_modified_source_tree_are_counted_by_their_changes() -> None:
    writer = SweepWriter(seeds=[1, 2, 3], objectives=["con/con"])
    for seed, diff in ((1, "1a2b3c4d5e6f"), (2, "")):
        writer.write("con/con", seed, git_diff=diff)
    writer.write("con/con", 3, git_diff="0a2b3c4d5e6f")
    (note,) = said(writer, "uncommitted")
    assert note.startswith("2 of 3 trainings")
    assert "0a2b3c4d5e6f, 1a2b3c4d5e6f" in note


def test_the_settings_of_all_trainings_are_listed_with_their_values() -> None:
    writer = SweepWriter(seeds=[1], objectives=["con/con"], stages=["frozen", "finetune"])
    writer.write(settings=LR | {"model.embed_dim": "64", "seed": "1", "objective.margin": "0.2"})
    writer.write(stage="finetune", settings=LR | {"stages.finetune.lr": "0.2", "model.embed_dim": "32"})
    section = settings_section(inputs_of(writer.results()))
    assert section is not None
    assert section.tables[0].rows == (
        ("model.embed_dim", "32, 64"),
        ("objective.margin", "0.2"),
        ("stages.finetune.lr", "0.2"),
        ("stages.frozen.lr", "0.1"),
    )


@pytest.mark.parametrize("split", ["val", "test"])
def test_selection_on_test_stands_under_every_table(split: str) -> None:
    writer = SweepWriter(seeds=[1], objectives=["con/con"])
    writer.write(settings={"stages.frozen.select_on": split})
    (block,) = aggregate(writer.results())
    assert f"(selection split: {split})" in block.protocol
    assert ("SELECTED ON TEST" in block.protocol) == (split == "test")


def test_a_stage_that_starts_from_a_selection_on_test_says_so() -> None:
    writer = SweepWriter(seeds=[1], objectives=["con/con"], stages=["frozen", "finetune"])
    for stage in writer.stages:
        writer.write(stage=stage, settings={"stages.frozen.select_on": "test"})
    first, second = aggregate(writer.results())
    assert first.protocol.count("SELECTED ON TEST") == 1
    assert "STARTED FROM A SELECTION ON TEST: each model started from the epoch of stage frozen" in second.protocol
    (note,) = said(writer, "SELECTED ON TEST")
    assert first.key.title in note
    assert second.key.title in note
