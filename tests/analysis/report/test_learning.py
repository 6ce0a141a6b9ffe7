"""The sections on learning and its costs, and what they say when something is not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow.entities import Metric

from analysis.figures import FigureWriter
from analysis.report.document import ReportFolder, Section
from analysis.report.learning import learning_sections
from analysis.statistics import aggregate
from analysis.tracking import fetch_runs
from tests.helpers.analysis_cases import SweepWriter, record_bytes


def sections_of(writer: SweepWriter, folder: Path) -> dict[str, Section]:
    sweep = fetch_runs(writer.uri, writer.name)
    with FigureWriter(1) as writing:
        sections = learning_sections(sweep, aggregate(sweep), ReportFolder(folder), writing)
    return {section.anchor: section for section in sections if section is not None}


def log_epochs(writer: SweepWriter, run_id: str, seconds: float) -> None:
    rows = [
        Metric(key, value, 1000 * epoch, epoch)
        for epoch in (1, 2)
        for key, value in (("train/pos_sim", 0.1 * epoch), ("time/train_s", seconds), ("time/step_ms", 7.0))
    ]
    writer.client.log_batch(run_id, metrics=rows)


def attach(writer: SweepWriter, run_id: str, content: bytes) -> None:
    folder = Path(writer.client.get_run(run_id).info.artifact_uri.removeprefix("file://")) / "training"
    folder.mkdir(parents=True)
    folder.joinpath("triplets.npz").write_bytes(content)
    writer.client.set_tag(run_id, "goal.triplets", "digest")


@pytest.mark.integration
def test_the_sections_name_what_they_cannot_show(new_sweep: Callable[[str], SweepWriter], tmp_path: Path) -> None:
    writer = new_sweep("learning")
    writer.write_parent(seeds=[1, 2], objectives=["con/con", "sig/cir"])
    ids = [writer.write(objective, seed) for objective in ("con/con", "sig/cir") for seed in (1, 2)]
    for run_id in ids[:3]:
        log_epochs(writer, run_id, 3.0)
    writer.client.log_metric(ids[2], "time/data_wait_share", 0.25, step=1)
    attach(writer, ids[0], record_bytes([[1, 5, 2]]))
    attach(writer, ids[1], b"damaged")
    found = sections_of(writer, tmp_path)
    assert list(found) == ["curves", "triplets", "costs"]
    assert all(
        (tmp_path / figure.path).stat().st_size > 10_000 for section in found.values() for figure in section.figures
    )
    said = " ".join(found["triplets"].paragraphs)
    assert "Without a triplet record: sig/cir resnet152 seed 1 (frozen), sig/cir resnet152 seed 2 (frozen)." in said
    assert f"the triplet record of run {ids[1]} cannot be read" in said
    (table,) = found["costs"].tables
    assert table.rows == (
        ("con/con", "2", "2", "6.0 ± 0.0", "--", "7.0", "1.00", "--"),
        ("sig/cir", "1", "2", "6.0", "--", "7.0", "1.00", "25 %"),
    )


@pytest.mark.integration
def test_a_chapter_that_cannot_be_drawn_says_why(new_sweep: Callable[[str], SweepWriter], tmp_path: Path) -> None:
    writer = new_sweep("undrawn")
    writer.write_parent(seeds=[1, 2, 3, 4, 5], objectives=["con/con"])
    for seed in range(1, 6):
        writer.client.set_tag(writer.write("con/con", seed), "goal.triplets", "digest")  # but no artifact is there
    sweep = fetch_runs(writer.uri, "undrawn")
    with FigureWriter(1) as writing:
        sections = learning_sections(sweep, aggregate(sweep), ReportFolder(tmp_path), writing)
        nothing = learning_sections(sweep, [], ReportFolder(tmp_path), writing)
    _, triplets, costs = (section for section in sections if section is not None)
    assert [*triplets.figures, *costs.tables] == []
    assert [line[:22] for line in triplets.paragraphs[1:4]] == ["the triplet record of "] * 3
    assert triplets.paragraphs[4] == "2 more cannot be used."
    assert costs.paragraphs[1] == "No run recorded the time of an epoch."
    assert nothing == [None, None, None]


def test_a_stage_of_one_epoch_has_no_curves(new_sweep: Callable[[str], SweepWriter], tmp_path: Path) -> None:
    writer = new_sweep("one epoch")
    stages = {"goal.stages": '["frozen", "finetune"]'}
    writer.write_parent(seeds=[1, 2], objectives=["con/con", "sig/cir", "sig/con"], **stages)
    for objective in ("con/con", "sig/cir", "sig/con"):
        for seed in (1, 2):
            writer.write(objective, seed)
            writer.write(objective, seed, "finetune", epochs=[1])
    curves = sections_of(writer, tmp_path)["curves"]
    assert [figure.title for figure in curves.figures] == ["Learning curves: MS-COCO, VSE++ (resnet152), stage frozen"]
    assert "No curves, because there is one epoch: MS-COCO, VSE++ (resnet152), stage finetune." in curves.paragraphs
