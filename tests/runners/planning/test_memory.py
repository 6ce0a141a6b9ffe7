"""The counted peak memory of a unit: against sizes that a person can check, and against a process that trains it."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.goal_core.models.sizes import DataSize
from goal_sweep.runners.launch.opened_sweep import open_sweep
from goal_sweep.runners.planning import measuring
from goal_sweep.runners.planning.estimate import fit
from goal_sweep.runners.planning.prices import BASE_MB, Known, Prices
from goal_sweep.sweeps import Unit, pack
from goal_sweep.sweeps.overview import unopened
from tests.helpers.paths import SCENES
from tests.helpers.planning_cases import devices_of, published_prices

CARD_MB = 24_576 * 1.048576
"""Memory of a card of 24 GB."""


def unit_of(prices: Prices, cells: int, stage: int) -> Unit:
    return Unit(trainings=pack(unopened(prices.config).by_stage[stage], prices.config.execution)[0].trainings[:cells])


def counted(cells: int, stage: int, *overrides: str, sweep: str = "coco_vsepp") -> float:
    prices = published_prices(sweep, *overrides)
    unit = unit_of(prices, cells, stage)
    assert prices.memory_basis(unit) == "calibration"
    memory = prices.memory_mb(unit)
    assert memory is not None
    return memory


def test_a_fine_tuned_cell_costs_its_backbone_and_adam_and_a_frozen_one_only_its_heads() -> None:
    trunk = "execution.sharing=trunk"
    frozen, finetune = (counted(2, stage, trunk) - counted(1, stage, trunk) for stage in (0, 1))
    assert finetune - frozen == pytest.approx(58.14 * 4 * 4)  # millions of weights, four copies of four bytes
    # Its linear layer, word vectors and GRU, in millions of weights, and again four copies.
    assert frozen == pytest.approx((2048 * 1024 + 12_000 * 300 + 3 * 1024 * (300 + 1024 + 2)) / 1e6 * 16, rel=0.02)


def test_activations_grow_with_the_batch_and_the_image_and_shrink_with_the_precision() -> None:
    batch = counted(1, 1) - BASE_MB["cuda"]
    assert batch > 128 * 177  # megabytes that autograd keeps of one image
    assert counted(1, 1, "stages.finetune.batch_size=64") < 0.6 * counted(1, 1)
    assert counted(1, 1, "data.image.size=112") < 0.4 * counted(1, 1)
    assert counted(1, 1, "precision=bf16") < 0.6 * counted(1, 1)


def test_chunks_take_the_memory_of_the_pairs_that_are_encoded_at_a_time() -> None:
    eighth = counted(1, 1, "stages.finetune.batch_size=16") - BASE_MB["cuda"]
    assert counted(1, 1, "stages.finetune.micro_batch=16") - BASE_MB["cuda"] == pytest.approx(eighth, rel=0.05)
    assert counted(1, 1, "stages.finetune.batch_size=8192", "stages.finetune.micro_batch=16") > 8192**2 * 4 / 1e6


def test_stacked_cells_hold_their_activations_at_the_same_time() -> None:
    def more(*overrides: str) -> float:
        return counted(15, 0, *overrides) - counted(15, 0, "execution.sharing=trunk", *overrides)

    one = 128 * 14 * 1024 * 10 * 4 / 1e6  # pairs, words, width, numbers for each of these, bytes
    assert more() == pytest.approx(14 * one, rel=0.02)
    assert more("stages.frozen.micro_batch=64") == 0  # which do not stack


def test_only_features_that_are_computed_once_lie_in_memory_whole() -> None:
    whole = published_prices("coco_vsepp").size.images * 2048 * 4 / 1e6
    assert counted(1, 0, "data.image.augment=none") - counted(1, 0) == pytest.approx(whole, rel=0.01)
    views = counted(1, 0, "stages.frozen.feature_views=3") - counted(1, 0)
    assert views == pytest.approx(3 * whole, rel=0.01)
    assert counted(1, 0, sweep="coco_vse_infty_butd") < 36 * whole / 4  # regions come batch by batch


def test_what_does_not_fit_is_said_with_what_would_do_and_priced_as_it_will_run() -> None:
    prices = published_prices("coco_vsepp")
    trainings = unopened(prices.config).trainings
    roomy, small = (fit(trainings, prices, devices_of(prices.config, 1, memory_mb=mb)) for mb in (80_000, CARD_MB))
    finetune = unit_of(prices, 1, 1)
    assert prices.most_cells(finetune.trainings[0], 0.85 * CARD_MB) == 0
    assert not any("not even one" in line for line in roomy.lines)
    (why, chunks, less) = small.lines[2:]
    assert "finetune: not even one cell fits as set: 24.6 GB of 21.9 GB" in why
    assert "stages.finetune.micro_batch=64" in chunks
    assert "precision=bf16" in less
    assert small.limits["finetune"] == 1
    assert list(small.prices.chunks.values()) == [64]
    whole, chunked = prices.seconds(finetune), small.prices.seconds(finetune)
    assert whole and chunked  # noqa: PT018
    assert chunked / whole == pytest.approx(1.28, abs=0.01)
    memory = small.prices.memory_mb(finetune)
    assert memory is not None
    assert memory < 0.85 * CARD_MB


@pytest.mark.parametrize(
    ("sweep", "override", "line"),
    [
        # Its batch normalisation needs a batch whole.
        ("coco_vsepp_quirk", "seeds=[1]", "expect these cells to fail"),
        ("coco_vsepp", "execution.cells_per_unit=15", "units of 15 cells do not fit as set"),
    ],
)
def test_what_cannot_be_helped_or_was_set_by_hand_is_said(sweep: str, override: str, line: str) -> None:
    prices = published_prices(sweep, override)
    packing = fit(unopened(prices.config).trainings, prices, devices_of(prices.config, 1, memory_mb=CARD_MB))
    assert any(line in said for said in packing.lines)


def test_what_is_known_of_a_unit_scales_its_count() -> None:
    prices = published_prices("coco_vsepp")
    unit, larger = unit_of(prices, 1, 0), unit_of(prices, 3, 0)
    known = replace(prices, known={unit.kind: Known("finished", 1.0, memory=2.0)})
    for one in (unit, larger):
        before = prices.memory_mb(one)
        assert before is not None
        assert known.memory_mb(one) == 2 * before
        assert known.memory_basis(one) == "finished"
    unsized = published_prices("coco_vsepp", "model.backbones=[convnext_base]")
    assert unsized.memory_mb(unit_of(unsized, 1, 0)) is None
    kind = unit_of(unsized, 1, 0).kind
    measured = replace(unsized, known={kind: Known("measured", 1.0, memory=1000.0)})
    assert measured.memory_mb(unit_of(unsized, 3, 0)) == 3000.0
    assert measured.memory_basis(unit_of(unsized, 3, 0)) == "measured"


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", [0, 1])
def test_the_count_is_near_what_a_process_takes(tmp_path: Path, stage: int) -> None:
    settings = [
        *(f"store={tmp_path}", "model.backbones=[{name: resnet18, weights: random}]"),
        "data.image={size: 112, resize: 112, augment: none}",
    ]
    sweep = open_sweep(SCENES, settings)
    size = DataSize.of_dataset(sweep.dataset)
    unit = Unit(trainings=pack(sweep.by_stage[stage], sweep.config.execution)[0].trainings[:2])
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        measured = process.submit(measuring._measure, sweep.plan_unit(unit)).result().memory_mb
    memory = Prices(config=sweep.config, size=size).memory_mb(unit)
    assert memory is not None
    assert measured is not None
    assert memory == pytest.approx(measured, rel=0.3)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_measured_units_have_prices_and_memory_of_their_own(tmp_path: Path) -> None:
    sweep = open_sweep(SCENES, [f"store={tmp_path}", "seeds=[1]"])
    size = DataSize.of_dataset(sweep.dataset)
    prices = Prices(config=sweep.config, size=size)
    units = pack(sweep.trainings, sweep.config.execution)
    known = measuring.measure(units, prices, 1, sweep.dataset, sweep.plan_unit)
    (model,) = sweep.config.model.models
    assert set(known) == {(model, "frozen"), (model, "finetune")}
    for one in known.values():
        assert one.time > 0
        assert one.memory is not None
        assert one.memory * 400 > 200
    assert known[model, "frozen"].once_s > 0
    assert known[model, "finetune"].once_s == 0
