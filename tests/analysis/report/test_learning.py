"""Curves, triplet records and costs: the numbers, and what is said when some are not there."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow.entities import Metric

from analysis.figures.curves import draw_curves
from analysis.figures.triplets import draw_triplets
from analysis.figures.worker import Drawing
from analysis.report.chapter import Chapter
from analysis.report.learning import learning_chapters
from analysis.report.manifest import ReportFolder
from analysis.statistics.aggregate import aggregate
from analysis.statistics.epoch_curves import costs, curves, lacking
from analysis.tracking.drawn_runs import MAX_SEEDS, drawn_runs, seeds_note
from analysis.tracking.fetch import fetch_runs
from analysis.tracking.history import fetch_history
from analysis.tracking.triplet_record import parse_record, pooled
from tests.helpers.analysis_cases import SweepWriter

BINS = 4


def record_bytes(entries: list[list[int]], epochs: list[int] | None = None, weight: float = 0.5) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(
        file,
        low=np.float64(-1),
        high=np.float64(1),
        num_bins=np.int64(BINS),
        epochs=np.array(epochs or sorted({row[0] for row in entries}), np.int32),
        entries=np.array(entries, np.int32).reshape(-1, 3),
        weight=np.full((BINS, BINS), weight),
    )
    return file.getvalue()


def runs_frame(*rows: tuple[str, str, str, int]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=["run_id", "pair", "triplet", "seed"])
    return frame.assign(run_name=frame["run_id"] + " name")


def history_frame(*rows: tuple[str, str, int, float]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["run_id", "metric", "step", "value"])


RUNS = runs_frame(("a", "con", "con", 1), ("b", "con", "con", 2), ("c", "sig", "cir", 1), ("d", "lin", "nca", 1))


def test_a_curve_is_the_mean_and_the_range_over_the_seeds_that_have_the_epoch() -> None:
    history = history_frame(
        ("a", "val/rsum", 1, 10.0),
        ("b", "val/rsum", 1, 20.0),
        ("a", "val/rsum", 2, 30.0),
        ("c", "val/rsum", 1, 5.0),
        ("a", "train/active", 1, 0.5),
    )
    found = curves(RUNS, history, "val/rsum")
    assert set(found) == {("con", "con"), ("sig", "cir")}
    curve = found["con", "con"]
    assert (curve.epochs, curve.mean, curve.n) == ((1, 2), (15.0, 30.0), (2, 1))
    assert (curve.low, curve.high) == ((10.0, 30.0), (20.0, 30.0))
    assert lacking(RUNS, history, ["val/rsum"]) == ["d name"]
    figure = draw_curves("block", {"val rsum": found}, mark=1)
    assert figure.axes[0].lines[0].get_label() == "P con"
    assert len(figure.axes[0].lines) == 2  # the curve, and where the warm-up ends


def test_costs_are_sums_over_epochs_and_means_over_seeds() -> None:
    history = history_frame(
        *((run, "time/train_s", epoch, seconds) for run, seconds in (("a", 2.0), ("b", 4.0)) for epoch in (1, 2)),
        *((run, "time/val_s", 1, 1.0) for run in "ab"),
        *((run, "time/step_ms", epoch, 5.0) for run in "ab" for epoch in (1, 2)),
    )
    (row,) = costs(RUNS, history).to_dict("records")
    assert (row["pair"], row["n"], row["epochs"], row["train_s"], row["val_s"], row["step_ms"]) == (
        ("con", 2, 2.0, 6.0, 1.0, 5.0)
    )
    assert row["train_s_std"] == pytest.approx(8**0.5)
    assert costs(RUNS, history_frame()).empty


def test_a_record_gives_back_its_counts_and_its_path() -> None:
    first = parse_record(record_bytes([[1, 0, 3], [1, 15, 1], [3, 6, 2]], epochs=[1, 2, 3]))
    assert first.total()[0, 0] == 3
    assert first.total(after=1).tolist() == [[0, 0, 0, 0], [0, 0, 2, 0], [0] * 4, [0] * 4]
    pos, neg = first.path()
    assert pos[0] == neg[0] == pytest.approx((3 * -0.75 + 0.75) / 4)
    assert np.isnan(pos[1])  # an epoch without a triplet
    assert (pos[2], neg[2]) == (-0.25, 0.25)
    both = pooled([first, parse_record(record_bytes([[3, 6, 5], [4, 0, 1]]))])
    assert both.epochs == (1, 2, 3, 4)
    assert both.total()[1, 2] == 7
    with pytest.raises(ValueError, match="weights differ"):
        pooled([first, parse_record(record_bytes([[1, 0, 1]], weight=0.7))])
    figure = draw_triplets("block", {("con", "con"): both, ("sig", "cir"): first}, {("con", "con"): "n=2"}, warmup=1)
    assert {axes.get_title() for axes in figure.axes} >= {"con/con  n=2", "sig/cir  "}


@pytest.mark.parametrize(
    "content",
    [b"", b"not a zip", record_bytes([[1, BINS * BINS, 1]]), record_bytes([[9, 0, 1]], epochs=[1]), "pickle"],
)
def test_what_is_no_record_is_refused_and_nothing_is_executed(content: bytes | str) -> None:
    if content == "pickle":
        file = io.BytesIO()
        np.savez(file, num_bins=np.array([object()], dtype=object))
        content = file.getvalue()
    assert isinstance(content, bytes)
    with pytest.raises(ValueError, match=r"record|pickle"):
        parse_record(content)


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
def test_the_chapters_name_what_they_cannot_show(new_sweep: Callable[[str], SweepWriter], tmp_path: Path) -> None:
    writer = new_sweep("learning")
    writer.write_parent(seeds=[1, 2], objectives=["con/con", "sig/cir"])
    ids = [writer.write(objective, seed) for objective in ("con/con", "sig/cir") for seed in (1, 2)]
    for run_id in ids[:3]:
        log_epochs(writer, run_id, 3.0)
    attach(writer, ids[0], record_bytes([[1, 5, 2]]))
    attach(writer, ids[1], b"damaged")
    sweep = fetch_runs(writer.uri, "learning")
    with Drawing(1) as drawing:
        chapters = learning_chapters(sweep, aggregate(sweep), ReportFolder(tmp_path), drawing)
    found: dict[str, Chapter] = {chapter.anchor: chapter for chapter in chapters}
    assert list(found) == ["curves", "triplets", "costs"]
    assert all((tmp_path / figure.path).stat().st_size > 10_000 for c in chapters for figure in c.figures)
    said = " ".join(found["triplets"].paragraphs)
    assert "Without a triplet record: sig/cir resnet152 seed 1 (frozen), sig/cir resnet152 seed 2 (frozen)." in said
    assert f"the triplet record of run {ids[1]} cannot be read" in said
    (table,) = found["costs"].tables
    assert table.rows == (
        ("con/con", "2", "2", "6.0 ± 0.0", "--", "7.0", "1.00"),
        ("sig/cir", "1", "2", "6.0", "--", "7.0", "1.00"),
    )


@pytest.mark.integration
def test_repeated_epochs_count_once_with_the_newest_value(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("repeated")
    writer.write_parent(seeds=[1], objectives=["con/con"])
    run_id = writer.write()
    writer.client.log_batch(run_id, metrics=[Metric("x", 2.0, 2000, 1), Metric("x", 1.0, 1000, 1)])
    frame = fetch_history(writer.uri, [run_id], ["x", "absent"])
    assert frame.to_dict("records") == [{"run_id": run_id, "metric": "x", "step": 1, "value": 2.0}]
    assert fetch_history(writer.uri, [], ["x"]).empty


def test_many_seeds_are_drawn_as_the_first_ten(complete_sweep: SweepWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = fetch_runs(complete_sweep.uri, "complete")
    assert len(drawn_runs(sweep)) == 90
    assert seeds_note(sweep) == ""
    assert MAX_SEEDS == 10
    monkeypatch.setattr("analysis.tracking.drawn_runs.MAX_SEEDS", 2)
    assert set(drawn_runs(sweep)["seed"]) == {1, 2}
    assert seeds_note(sweep) == "Courses are of the first 2 of each objective's 3 seeds."
