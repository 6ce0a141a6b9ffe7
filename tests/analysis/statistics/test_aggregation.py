from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from goal_sweep.analysis.blocks import Gap
from goal_sweep.analysis.report.writing import runs_frame
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import aggregate, cells_frame
from goal_sweep.goal_core.evaluation.metrics import METRICS
from tests.helpers.blank_figures import write_texts
from tests.helpers.results_cases import FINGERPRINT, NAMES, RECALLS, SweepWriter, recalls


def test_mean_std_and_n_of_every_cell(complete: SweepResults) -> None:
    frozen, finetune = aggregate(complete)
    assert (frozen.key.stage, finetune.key.stage) == ("frozen", "finetune")
    assert frozen.key.slug == "coco-vsepp-resnet152-frozen"
    for objective in NAMES:
        pair, triplet = objective.split("/")
        cell = finetune.grids["t2i_r5"].cells[pair, triplet]
        assert cell.mean == pytest.approx(40 + 5 + NAMES.index(objective) / 10 + 20 - 10)
        assert cell.std == pytest.approx(np.std([-0.3, 0.0, 0.3], ddof=1))
        assert (cell.n, cell.gaps, cell.requested) == (3, (), True)
    assert frozen.gaps == finetune.gaps == []
    assert "over 3 seeds (1, 2, 3)" in frozen.protocol
    assert "selection split: val" in frozen.protocol
    assert FINGERPRINT in frozen.protocol


def test_every_hole_is_named_and_counted(broken: SweepResults) -> None:
    frozen, finetune = aggregate(broken)
    cells = frozen.grids["i2t_r1"].cells
    assert cells["con", "nca"].gaps == (Gap(seed=2, status="waiting", reason=""),)
    assert cells["con", "nca"].n == 2
    assert cells["con", "nca"].mean == pytest.approx(40.1 - 0.15 + 0.0)
    assert cells["lin", "con"].mean is None
    assert [(g.seed, g.status, g.reason) for g in cells["lin", "con"].gaps] == [
        (seed, "failed", "NaN at epoch 2 | step 17") for seed in (1, 2, 3)
    ]
    assert [g.status for g in cells["sig", "con"].gaps] == ["unusable"]
    assert [g.status for g in cells["sig", "nca"].gaps] == ["running"]
    assert frozen.grids["t2i_r1"].cells["sig", "con"].n == 2  # one NaN metric spoils the whole training
    assert finetune.is_empty
    assert len(finetune.gaps) == 45


def test_row_order_does_not_matter(broken: SweepResults) -> None:
    shuffled = replace(broken, runs=broken.runs.sample(frac=1, random_state=0))
    pd.testing.assert_frame_equal(cells_frame(aggregate(shuffled)), cells_frame(aggregate(broken)))


def test_variants_and_backbones_are_never_mixed() -> None:
    writer = SweepWriter(seeds=[1], objectives=["con/con"])
    writer.write()
    writer.write(variant="code")
    writer.write(backbone="vit_base_patch16_224")
    blocks = aggregate(writer.results())
    assert [b.key.slug for b in blocks] == [
        "coco-vsepp-resnet152-frozen-code",
        "coco-vsepp-resnet152-frozen",
        "coco-vsepp-vit_base_patch16_224-frozen",
    ]
    assert [b.grids["i2t_r1"].cells["con", "con"].n for b in blocks] == [1] * 3
    assert all(b.grids["i2t_r1"].cells["con", "con"].std is None for b in blocks)


def test_objectives_left_out_and_added_by_a_user() -> None:
    writer = SweepWriter(seeds=[1], objectives=["con/con", "sig/new_one", "sig/con"])
    writer.write("con/con")
    writer.write("sig/new_one", metrics={metric.test: 50.0 for metric in METRICS.values()})
    (block,) = aggregate(writer.results())
    grid = block.grids["i2t_r1"]
    assert [name for _, name, _ in grid.rows] == ["con", "sig"]
    assert grid.triplets == ("con", "new_one")
    assert not grid.cells["con", "new_one"].requested
    assert grid.cells["con", "new_one"].gaps == ()
    assert grid.cells["sig", "new_one"].mean == 50.0
    assert [objective for objective, _ in block.gaps] == ["sig/con"]
    assert len(cells_frame([block])) == 3 * 7


def test_every_training_has_its_settings_and_what_selected_it(tmp_path: Path) -> None:
    writer = SweepWriter(seeds=[1], objectives=["con/con", "sig/cir"], stages=["frozen", "finetune"])
    selected = {f"val/{name}": 30.0 + place for place, name in enumerate(RECALLS)} | {"val/rsum": 195.0}
    own = {"stages.frozen.lr": "0.001", "objective.margin": "0.2"}
    writer.write("sig/cir", metrics=recalls("sig/cir", 1) | selected, settings=own | {"objective.strict": "True"})
    writer.write("sig/cir", stage="finetune", settings=own | {"stages.finetune.lr": "2e-05"})
    writer.write("con/con")
    write_texts(writer.results(), tmp_path)
    for runs in (runs_frame(writer.results()), pd.read_csv(tmp_path / "runs.csv")):
        rows = {(row["pair"], row["stage"], row["status"]): row for _, row in runs.iterrows()}
        frozen, finetune = rows["sig", "frozen", "done"], rows["sig", "finetune", "done"]
        assert (frozen["setting/stages.frozen.lr"], finetune["setting/stages.finetune.lr"]) == (0.001, 2e-05)
        assert (frozen["setting/objective.margin"], str(frozen["setting/objective.strict"])) == (0.2, "True")
        assert (frozen["val/i2t_r1"], frozen["val/rsum"]) == (30.0, 195.0)
        assert finetune[list(selected)].isna().all()
        assert frozen["test/i2t_r1"] == pytest.approx(40.8)
    assert len(runs_frame(writer.results())) == 4
