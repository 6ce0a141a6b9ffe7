from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import aggregate, fetch_runs
from analysis.blocks import Gap
from analysis.run_schema import TEST_METRICS
from analysis.statistics import cells_frame
from tests.helpers.analysis_cases import FINGERPRINT, OBJECTIVES, RECALLS, SweepWriter, recalls, with_params
from tests.helpers.blank_figures import write_texts

pytestmark = pytest.mark.integration


def test_mean_std_and_n_of_every_cell(complete_sweep: SweepWriter) -> None:
    frozen, finetune = aggregate(fetch_runs(complete_sweep.uri, "complete"))
    assert (frozen.key.stage, finetune.key.stage) == ("frozen", "finetune")
    assert frozen.slug == "coco-vsepp-resnet152-frozen"
    for objective in OBJECTIVES:
        pair, triplet = objective.split("/")
        cell = finetune.grids["t2i_r5"].cells[pair, triplet]
        assert cell.mean == pytest.approx(40 + 5 + OBJECTIVES.index(objective) / 10 + 20 - 10)
        assert cell.std == pytest.approx(np.std([-0.3, 0.0, 0.3], ddof=1))
        assert (cell.n, cell.gaps, cell.requested) == (3, (), True)
    assert frozen.gaps == finetune.gaps == []
    assert "over 3 seeds (1, 2, 3)" in frozen.protocol
    assert "selection split: val" in frozen.protocol
    assert FINGERPRINT in frozen.protocol


def test_every_hole_is_named_and_counted(broken_sweep: SweepWriter) -> None:
    frozen, finetune = aggregate(fetch_runs(broken_sweep.uri, "broken"))
    cells = frozen.grids["i2t_r1"].cells
    assert cells["con", "nca"].gaps == (Gap(seed=2, status="absent", reason="no run in tracking"),)
    assert (cells["con", "nca"].n, cells["con", "nca"].mean) == (2, pytest.approx(40.1 - 0.15 + 0.0))
    assert cells["lin", "con"].mean is None
    assert [(g.seed, g.status, g.reason) for g in cells["lin", "con"].gaps] == [
        (seed, "failed", "NaN at epoch 2 | step 17") for seed in (1, 2, 3)
    ]
    assert [g.status for g in cells["sig", "con"].gaps] == ["unusable"]
    assert [g.status for g in cells["sig", "nca"].gaps] == ["running"]
    assert [g.status for g in cells["sig", "cir"].gaps] == ["waiting"]
    assert frozen.grids["t2i_r1"].cells["sig", "con"].n == 2  # one NaN metric spoils the whole run
    assert cells["sig-ms", "cir"].mean == pytest.approx(41.4)  # the first of two; the other is 9 points higher
    assert cells["con", "con"].n == 3  # seed 7 is not in the sweep
    assert finetune.is_empty
    assert len(finetune.gaps) == 45


def test_row_order_does_not_matter(broken_sweep: SweepWriter) -> None:
    sweep = fetch_runs(broken_sweep.uri, "broken")
    shuffled = replace(sweep, runs=sweep.runs.sample(frac=1, random_state=0))
    assert aggregate(shuffled) == aggregate(sweep)


def test_data_variants_and_backbones_are_never_mixed(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("several blocks")
    writer.write_parent(seeds=[1], objectives=["con/con"])
    for place in ({}, {"data_fingerprint": "ff" * 8}, {"variant": "code"}, {"backbone": "vit_base_patch16_224"}):
        writer.write(stage_key=f"key-{place}", **place)
    blocks = aggregate(fetch_runs(writer.uri, writer.name))
    assert [b.slug for b in blocks] == [
        "coco-vsepp-resnet152-frozen-code",
        f"coco-vsepp-resnet152-frozen-{FINGERPRINT[:12]}",
        "coco-vsepp-resnet152-frozen-ffffffffffff",
        "coco-vsepp-vit_base_patch16_224-frozen",
    ]
    assert [b.grids["i2t_r1"].cells["con", "con"].n for b in blocks] == [1] * 4
    assert all(b.grids["i2t_r1"].cells["con", "con"].std is None for b in blocks)


def test_objectives_left_out_and_added_by_a_user(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("own objectives")
    writer.write_parent(seeds=[1], objectives=["con/con", "sig/new_one", "sig/con"])
    writer.write("con/con")
    writer.write("sig/new_one", metrics=dict.fromkeys(TEST_METRICS, 50.0))
    (block,) = aggregate(fetch_runs(writer.uri, writer.name))
    grid = block.grids["i2t_r1"]
    assert grid.pairs == ("con", "sig")
    assert grid.triplets == ("con", "new_one")
    assert not grid.cells["con", "new_one"].requested
    assert grid.cells["con", "new_one"].gaps == ()
    assert grid.cells["sig", "new_one"].mean == 50.0
    assert [objective for objective, _ in block.gaps] == ["sig/con"]
    assert len(cells_frame([block])) == 3 * 7


def test_tidy_frame_has_a_row_per_cell_and_metric(broken_sweep: SweepWriter) -> None:
    frame = cells_frame(aggregate(fetch_runs(broken_sweep.uri, "broken")))
    assert len(frame) == 2 * 15 * 7
    assert set(zip(frame["direction"], frame["metric"], strict=True)) == {
        *((d, m) for d in ("i2t", "t2i") for m in ("R@1", "R@5", "R@10")),
        ("both", "rsum"),
    }
    hole = frame[(frame["pair"] == "lin") & (frame["triplet"] == "con") & (frame["stage"] == "frozen")]
    assert hole["mean"].isna().all()
    assert set(hole["n"]) == {0}
    assert hole["missing"].str.count("failed").eq(3).all()


def test_every_run_has_its_learning_rate_its_objective_and_what_selected_it(
    new_sweep: Callable[[str], SweepWriter], tmp_path: Path
) -> None:
    writer = new_sweep("runs with settings")
    writer.write_parent(seeds=[1], objectives=["con/con", "sig/cir"], **{"goal.stages": '["frozen", "finetune"]'})
    selected = {f"selected/val_{name}": 30.0 + place for place, name in enumerate(RECALLS)} | {"selected/val_rsum": 195}
    run = writer.write("sig/cir", metrics=recalls("sig/cir", 1) | selected)
    with_params(writer, run, stages__frozen__lr="0.001", objective__pair="sig", objective__margin="0.2")
    with_params(writer, run, objective__strict="True")
    run = writer.write("sig/cir", stage="finetune")
    with_params(writer, run, stages__frozen__lr="0.001", stages__finetune__lr="2e-05", objective__margin="0.2")
    writer.write("con/con")  # from before there were any of these
    write_texts(writer.uri, writer.name, tmp_path)
    for runs in (pd.read_parquet(tmp_path / "runs.parquet"), pd.read_csv(tmp_path / "runs.csv")):
        rows = {(row["pair"], row["stage"]): row for _, row in runs.iterrows()}
        frozen, finetune, older = rows["sig", "frozen"], rows["sig", "finetune"], rows["con", "frozen"]
        assert (frozen["lr"], finetune["lr"]) == (0.001, 2e-05)
        assert (frozen["objective.margin"], str(frozen["objective.strict"])) == (0.2, "True")
        assert (frozen["selected/val_i2t_r1"], frozen["selected/val_rsum"]) == (30.0, 195.0)
        assert finetune[list(selected)].isna().all()
        assert older[["lr", "objective.margin", *selected]].isna().all()
        assert "objective.pair" not in runs
        assert frozen["test/i2t_r1"] == pytest.approx(40.8)
