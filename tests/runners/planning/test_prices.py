"""What a price rests on: each backbone has its own, and what is not known is not taken from another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.data import SplitCounts
from goal_sweep.runners.launch.launch import sweep_prices
from goal_sweep.runners.launch.opened_sweep import OpenedSweep, open_sweep
from goal_sweep.runners.planning.estimate import plan_rows
from goal_sweep.runners.planning.prices import Known, Prices
from goal_sweep.runners.store import Attempt
from goal_sweep.sweeps import Training, Unit, pack
from goal_sweep.sweeps.overview import unopened
from tests.helpers.in_process import launch, sweep_in
from tests.helpers.paths import SCENES
from tests.helpers.planning_cases import devices_of, published_prices, rows_of
from tests.helpers.store_cases import train

NONE = "convnext_base"
"""A backbone that nobody has measured."""
SMALL = [
    "data={format: scenes, num_train: 24, num_val: 10, num_test: 10, image: {size: 32, resize: 32, augment: none}}",
    *("seeds=[1]", "objectives={only: [con/con, sig/cir]}", "stages.frozen.batch_size=16"),
    "stages.finetune.batch_size=16",
]


def hours(name: str, *overrides: str) -> list[float]:
    return [row["hours"] for row in rows_of(published_prices(name, *overrides))]


def prices_in(sweep: OpenedSweep) -> Prices:
    return sweep_prices(sweep)


def first_of(sweep: OpenedSweep, stage: int, backbone: str) -> Training:
    return next(one for one in sweep.by_stage[stage] if one.cell.model.backbone.name == backbone)


def test_hours_grow_with_the_work_and_shrink_where_cells_share_it() -> None:
    frozen, finetune = hours("coco_vsepp")
    assert finetune > 3 * frozen  # every cell trains a backbone of its own
    assert hours("coco_vsepp", "data.image.size=112")[0] < frozen
    assert hours("coco_vsepp", "execution.sharing=none")[0] > frozen
    assert hours("coco_vsepp", "resources.loader_workers=0")[0] > frozen
    assert hours("coco_vsepp", "seeds=[1]")[0] == pytest.approx(frozen / 3)
    assert hours("coco_vsepp", "stages.frozen.bn_mode=legacy_quirk")[0] > frozen


def test_chunks_cost_a_second_pass_and_a_part_of_a_gpu_its_part() -> None:
    whole, chunked = (hours("coco_vsepp", *more)[1] for more in ((), ("stages.finetune.micro_batch=32",)))
    assert 1.2 < chunked / whole < 1.35
    row = rows_of(published_prices("coco_vsepp", "resources.gpus=0.25"))[1]
    assert row["gpu_hours"] == 0.25 * row["hours"]


def test_stacked_cells_start_their_kernels_once() -> None:
    heads, trunk = (rows_of(published_prices("coco_vsepp", f"execution.sharing={way}"))[0] for way in ("auto", "trunk"))
    saved = heads["steps"] / heads["trainings"] * (heads["trainings"] - heads["units"]) * 0.01 / 3600  # 10 ms a step
    assert trunk["hours"] - heads["hours"] == pytest.approx(saved)


def test_the_scenes_cost_what_they_took_on_one_core_of_the_calibrated_machine() -> None:
    splits = {name: SplitCounts(images=count, captions=5 * count) for name, count in (("train", 400), ("val", 200))}
    prices = published_prices(SCENES, splits=splits)
    frozen, finetune = rows_of(replace(prices, size=prices.size._replace(words=103)))
    assert 0.05 / 3 < frozen["hours"] < 0.05 * 3
    assert 0.022 / 3 < finetune["hours"] < 0.022 * 3
    assert frozen["disk_mb"] == pytest.approx(45.7, rel=0.2)


def test_a_backbone_that_nobody_has_measured_has_no_price_and_takes_none_from_another() -> None:
    prices = published_prices("coco_vsepp", f"model.backbones=[resnet152, {NONE}]")
    frozen = {row["backbone"]: row for row in rows_of(prices) if row["stage"] == "frozen"}
    for key in ("hours", "gpu_hours", "disk_mb", "memory_mb", "hours_from", "memory_from"):
        assert frozen[NONE][key] is None
        assert frozen["resnet152"][key] is not None
    assert frozen["resnet152"]["hours"] == pytest.approx(hours("coco_vsepp")[0])


@pytest.mark.parametrize(("weights", "times"), [("timm", 1), ("random", 3)])
def test_features_of_pretrained_weights_are_computed_once_for_all_seeds(weights: str, times: int) -> None:
    size = SplitCounts(images=1000, captions=5000)
    overrides = [f"model.backbones=[{{name: resnet152, weights: {weights}}}]", "data.image.augment=none"]
    prices = published_prices("coco_vsepp", *overrides, splits={"train": size, "val": size})
    units = pack(unopened(prices.config).by_stage[0], prices.config.execution)
    assert len(units) == 3  # one for each seed
    once_s, total_s = prices.once_s(units[0]), prices.total_s(units)
    assert once_s == pytest.approx(2000 * 2 * 0.623e-3)
    assert total_s == pytest.approx(sum(prices.seconds(unit) or 0.0 for unit in units) + times * once_s)


def test_each_training_by_itself_costs_what_sharing_saves() -> None:
    row = rows_of(published_prices("coco_vsepp"))[0]
    alone = rows_of(published_prices("coco_vsepp", "execution.cells_per_unit=1"))[0]
    assert row["alone_hours"] == pytest.approx(alone["hours"])
    assert row["alone_hours"] > 1.4 * row["hours"]
    assert alone["alone_hours"] == pytest.approx(alone["hours"])


@pytest.mark.parametrize(("other", "basis"), [("test_efficientnet", None), ("test_vit", "calibration")])
def test_finished_cells_price_their_own_backbone_and_no_other(tmp_path: Path, other: str, basis: str | None) -> None:
    backbones = f"model.backbones=[{{name: test_resnet, weights: random}}, {{name: {other}, weights: random}}]"
    sweep = open_sweep(SCENES, [f"store={tmp_path}", *SMALL, backbones])
    done = first_of(sweep, 0, "test_resnet")
    folder = sweep.store.folder(done)
    folder.claim("L")
    train(folder)
    prices = prices_in(sweep)
    assert list(prices.known) == [(done.cell.model, "frozen")]
    left = set(sweep.trainings) - {done}
    rows, _ = plan_rows([("", sweep.trainings)], prices, devices_of(sweep.config), left)
    bases = {(row["stage"], row["backbone"]): row["hours_from"] for row in rows}
    assert bases == {
        ("frozen", "test_resnet"): "finished",
        ("frozen", other): basis,
        ("finetune", "test_resnet"): "calibration",
        ("finetune", other): basis,
    }
    assert [row["done"] for row in rows] == [1, 0, 0, 0]


def test_what_finished_with_other_neighbours_prices_any_number_of_cells() -> None:
    calibrated = published_prices("coco_vsepp")
    unit, *_ = pack(unopened(calibrated.config).trainings, calibrated.config.execution)
    one = Unit(trainings=unit.trainings[:1])
    finished = replace(calibrated, known={unit.kind: Known("finished", 2.0)})
    assert [finished.basis(unit), calibrated.basis(unit)] == ["finished", "calibration"]
    start = 20.0
    for either in (unit, one):
        priced, counted = finished.seconds(either), calibrated.seconds(either)
        assert priced is not None
        assert counted is not None
        assert priced - start == pytest.approx(2 * (counted - start))


def attempt_with(memory_mb: float, **more: Any) -> Attempt:
    how = {"outcome": "done", "ended": 9.0, "progressed": True, "shared_by": 2, **more}
    return Attempt(n=1, launch_id="L", host="h", pid=1, started=1.0, memory_mb=memory_mb, **how)


def test_memory_comes_from_attempts_that_trained_as_the_sweep_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goal_sweep.runners.execution.worker.peak_memory_mb", lambda: 1234.5)
    sweep = sweep_in(tmp_path)
    assert launch(sweep, monkeypatch).status == 0
    unit = Unit(trainings=tuple(sweep.by_stage[0]))
    memory = prices_in(sweep).memory_mb(unit)
    assert memory == pytest.approx(1234.5 + 600)
    assert prices_in(sweep).memory_basis(unit) == "finished"
    attempts = sweep.store.folder(sweep.trainings[0]).attempts
    for useless in (attempt_with(9999.0, micro_batch=4), attempt_with(0.0)):
        attempts.update(useless)
        assert prices_in(sweep).memory_mb(unit) == memory
