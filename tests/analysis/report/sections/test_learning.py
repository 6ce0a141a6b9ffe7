"""The sections on learning and its costs, and what they say when something is not there."""

from __future__ import annotations

from pathlib import Path

from goal_sweep.analysis.report.parts import Section
from goal_sweep.analysis.report.sections.learning import learning_sections
from tests.helpers.results_cases import SweepWriter, inputs_of, of_epochs, record_bytes


def sections_of(writer: SweepWriter, folder: Path | None = None) -> dict[str, Section]:
    fetch = None if folder is None else folder.joinpath
    sections = learning_sections(inputs_of(writer.results(folder, fetch)))
    return {section.anchor: section for section in sections if section is not None}


def test_the_sections_name_what_they_cannot_show(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(record_bytes([[1, 5, 2]]))
    (tmp_path / "bad").write_bytes(b"damaged")
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con", "sig/cir"])
    measured = of_epochs(2, train__pos_sim=0.1)
    writer.write("con/con", 1, epochs=measured, triplets="good", step_ms=6.0)
    writer.write("con/con", 2, epochs=measured, triplets="bad", step_ms=8.0)
    writer.write("sig/cir", 1, epochs=measured, step_ms=14.0, val_s=3.0)
    writer.write("sig/cir", 2, epochs={})
    found = sections_of(writer, tmp_path)
    assert list(found) == ["curves", "triplets", "costs"]
    assert [len(found[name].figures) for name in ("curves", "triplets")] == [1, 1]
    curves, triplets = (" ".join(found[name].paragraphs) for name in ("curves", "triplets"))
    assert "sig/cir resnet152 seed 2 (frozen)" in curves
    assert "sig/cir resnet152 seed 1 (frozen), sig/cir resnet152 seed 2 (frozen)." in triplets
    assert "bad cannot be read" in triplets
    (table,) = found["costs"].tables
    assert table.rows == (
        ("con/con", "7.0", "1.00", "--", "9.0"),
        ("sig/cir", "14.0", "2.00", "3.0", "9.0"),
    )


def test_a_section_that_cannot_be_drawn_says_why(tmp_path: Path) -> None:
    writer = SweepWriter(seeds=[1, 2, 3, 4, 5], objectives=["con/con"])
    for seed in range(1, 6):
        writer.write("con/con", seed, triplets=f"gone-{seed}")
    found = sections_of(writer, tmp_path)
    assert [*found["triplets"].figures, *found["costs"].tables] == []
    assert sum("cannot be read" in line for line in found["triplets"].paragraphs) == 3
    assert found["triplets"].paragraphs[-1].startswith("2 more")
    assert len(found["costs"].paragraphs) == 2
    assert sections_of(SweepWriter(seeds=[1], objectives=["con/con"])) == {}


def test_a_table_without_its_store_has_no_triplet_diagrams_and_says_so() -> None:
    writer = SweepWriter(seeds=[1], objectives=["con/con"])
    writer.write(triplets="there")
    triplets = sections_of(writer)["triplets"]
    assert not triplets.figures
    assert "not in MLflow" in triplets.paragraphs[0]


def test_a_stage_of_one_epoch_has_no_curves() -> None:
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con", "sig/cir", "sig/con"], stages=["frozen", "finetune"])
    for objective in ("con/con", "sig/cir", "sig/con"):
        for seed in (1, 2):
            writer.write(objective, seed)
            writer.write(objective, seed, "finetune", epochs=of_epochs(1))
    curves = sections_of(writer)["curves"]
    assert [figure.title for figure in curves.figures] == ["Learning curves: MS-COCO, VSE++ (resnet152), stage frozen"]
    assert any("one epoch: MS-COCO, VSE++ (resnet152), stage finetune" in line for line in curves.paragraphs)
