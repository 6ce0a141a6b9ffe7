"""What a price rests on: each backbone has its own, and what is not known is not taken from another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from goal_core.data import SplitCounts, published_counts
from runners.launch.estimate import plan_published, plan_stages, published_prices, sweep_prices, unopened
from runners.launch.opened_sweep import open_sweep
from runners.launch.prices import START_S, Prices
from sweeps import ResolvedSweep, Training, Unit, load_sweep, pack
from tests.helpers.store_cases import train

NONE = "convnext_base"
"""A backbone that the calibration lacks."""
SMALL = [
    "data={format: scenes, num_train: 24, num_val: 10, num_test: 10, image: {size: 32, resize: 32, augment: none}}",
    *("seeds=[1]", "objectives={only: [con/con, sig/cir]}", "stages.frozen.batch_size=16"),
    "stages.finetune.batch_size=16",
]


def two(*overrides: str) -> tuple[ResolvedSweep, Prices]:
    """COCO with a backbone that has a price and one that has none."""
    config = load_sweep("coco_vsepp", [f"model.backbones=[resnet152, {NONE}]", *overrides], environ={})
    return unopened(config), published_prices(config, published_counts(config.data))


def first_of(sweep: ResolvedSweep, stage: int, backbone: str) -> Training:
    return next(one for one in sweep.by_stage[stage] if one.cell.model.backbone.name == backbone)


@pytest.mark.parametrize(("other", "basis"), [("test_efficientnet", None), ("test_vit", "calibration")])
def test_finished_cells_price_their_own_backbone_and_no_other(tmp_path: Path, other: str, basis: str | None) -> None:
    backbones = f"model.backbones=[{{name: test_resnet, weights: random}}, {{name: {other}, weights: random}}]"
    sweep = open_sweep("scenes", [f"store={tmp_path}", *SMALL, backbones])
    done = first_of(sweep, 0, "test_resnet")
    folder = sweep.store.folder(done)
    folder.claim("L")
    train(folder)
    statuses = sweep.statuses()
    prices = sweep_prices(sweep, statuses)
    assert list(prices.scale) == [(done.cell.model, "frozen")]
    frozen, finetune = plan_stages(sweep, prices, {}, statuses)
    resnet, unfinished = frozen.backbones
    assert (resnet.hours_from, resnet.disk_from) == ("finished", "finished")
    assert resnet.disk_mb == pytest.approx(folder.path("best.safetensors").stat().st_size / 1e6)
    assert (unfinished.hours_from, unfinished.disk_from) == (basis, basis)
    assert (frozen.hours_from, frozen.disk_from) == (basis, basis)  # what is worth least
    for whole, part in ((frozen.hours, unfinished.hours), (frozen.disk_mb, unfinished.disk_mb)):
        assert (whole is None) is (part is None) is (basis is None)
    assert (finetune.backbones[0].hours_from, finetune.backbones[1].hours_from) == ("calibration", basis)


def test_an_assumed_cell_takes_as_long_as_the_known_ones_of_its_stage_and_has_no_time() -> None:
    sweep, prices = two()
    known, unknown = (Unit(trainings=(first_of(sweep, 0, name),)) for name in ("resnet152", NONE))
    assert prices.start_s(unknown) == 0  # beside a price that is not in seconds
    assert prices.seconds(unknown) == unknown.stage.epochs
    compared = prices.with_assumed(sweep.trainings)
    assert compared.seconds(known) == prices.seconds(known)
    assert compared.start_s(unknown) == START_S["cuda"]
    assert compared.seconds(unknown) == pytest.approx(compared.seconds(known))
    assert compared.basis(unknown) == "assumed"
    frozen, _ = plan_published(sweep.config, published_counts(sweep.config.data))
    assert (frozen.hours, frozen.backbones[1].hours) == (None, None)
    assert frozen.backbones[0].hours
    # Where nothing is known of its stage, other stages count.
    later = [*sweep.by_stage[0], first_of(sweep, 1, NONE)]
    assert len(set(prices.with_assumed(later).epoch_s.values())) == 1
    # Without any price in seconds, ratios are enough.
    only = [one for one in sweep.trainings if one.cell.model.backbone.name == NONE]
    assert prices.with_assumed(only) == prices


def test_memory_that_is_known_limits_a_unit_although_another_backbone_has_none() -> None:
    sweep, prices = two()
    alone = [one for one in sweep.trainings if one.cell.model.backbone.name == "resnet152"]
    limit = prices.most_cells("finetune", alone, 60_000.0)
    assert limit is not None
    assert prices.most_cells("finetune", sweep.trainings, 60_000.0) == limit
    assert prices.most_cells("finetune", [first_of(sweep, 1, NONE)], 60_000.0) is None
    assert prices.most_cells("finetune", sweep.trainings, None) is None


@pytest.mark.parametrize(("weights", "times"), [("timm", 1), ("random", 3)])
def test_features_of_pretrained_weights_are_computed_once_for_all_seeds(weights: str, times: int) -> None:
    overrides = [f"model.backbones=[{{name: resnet152, weights: {weights}}}]", "data.image.augment=none"]
    config = load_sweep("coco_vsepp", overrides, environ={})
    size = SplitCounts(images=1000, captions=5000)
    prices = published_prices(config, {"train": size, "val": size})
    units = pack(unopened(config).by_stage[0], config.execution)
    assert len(units) == 3  # one for each seed
    once_s = prices.once_s(units[0])
    assert once_s > 0
    own = sum(prices.seconds(unit) for unit in units)
    assert prices.total_s(units) == pytest.approx(own + times * once_s)
