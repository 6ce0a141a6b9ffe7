"""The counted peak memory of a unit: against sizes that a person can check, and against a process that trains it."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from goal_core.data import published_counts
from runners.launch import measuring
from runners.launch.devices import Devices
from runners.launch.estimate import published_prices, sweep_prices, unopened
from runners.launch.memory import BASE_MB
from runners.launch.opened_sweep import open_sweep
from sweeps import Unit, load_sweep, pack


def counted(cells: int, stage: int, *overrides: str, sweep: str = "coco_vsepp") -> float:
    config = load_sweep(sweep, overrides, environ={})
    prices = published_prices(config, published_counts(config.data))
    trainings = pack(unopened(config).by_stage[stage], config.execution)[0].trainings[:cells]
    found = prices.memory(Unit(trainings=trainings))
    assert found is not None
    assert found.basis == "calibration"
    return found.mb


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


def test_chunks_and_several_gpus_take_the_memory_of_the_pairs_that_are_encoded_at_a_time() -> None:
    eighth = counted(1, 1, "stages.finetune.batch_size=16") - BASE_MB["cuda"]
    for setting in ("stages.finetune.micro_batch=16", "resources.gpus=8"):
        assert counted(1, 1, setting) - BASE_MB["cuda"] == pytest.approx(eighth, rel=0.05)
    assert counted(1, 1, "stages.finetune.micro_batch=16", "resources.gpus=8") == counted(1, 1, "resources.gpus=8")
    assert counted(1, 1, "stages.finetune.batch_size=8192", "stages.finetune.micro_batch=16") > 8192**2 * 4 / 1e6


def test_stacked_cells_hold_their_activations_at_the_same_time() -> None:
    def more(*overrides: str) -> float:
        return counted(15, 0, *overrides) - counted(15, 0, "stages.frozen.sharing=trunk", *overrides)

    one = 128 * 14 * 1024 * 10 * 4 / 1e6  # pairs, words, width, numbers for each of these, bytes
    assert more() == pytest.approx(14 * one, rel=0.02)
    assert more("stages.frozen.micro_batch=64") == more("resources.gpus=2") == 0  # which do not stack


def test_stacked_cells_of_vse_infinity_hold_the_regions_that_they_sort_too() -> None:
    sharing = (counted(15, 0, f"execution.sharing={name}", sweep="coco_vse_infty_butd") for name in ("heads", "trunk"))
    words, regions = 128 * 14 * 12 * 768 * 10 * 4, 128 * 36 * 1024 * 24  # of twelve layers of BERT; bytes a value
    assert next(sharing) - next(sharing) == pytest.approx(14 * (words + regions) / 1e6, rel=0.02)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", [0, 1])
def test_the_count_is_near_what_a_process_takes(tmp_path: Path, stage: int) -> None:
    settings = [
        *(f"store={tmp_path}", "model.backbones=[{name: resnet18, weights: random}]"),
        "data.image={size: 112, resize: 112, augment: none}",
    ]
    sweep = open_sweep("scenes", settings)
    prices = sweep_prices(sweep)
    trainings = pack(sweep.by_stage[stage], sweep.config.execution)[0].trainings[:2]
    unit = Unit(trainings=trainings)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        measured = process.submit(measuring._measure, sweep.plan_unit(unit)).result().memory_mb
    found = prices.memory(unit)
    assert found is not None
    assert measured is not None
    assert found.mb == pytest.approx(measured, rel=0.3)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_measured_prices_tell_common_work_from_each_cells_own(tmp_path: Path) -> None:
    sweep = open_sweep("scenes", [f"store={tmp_path}", "seeds=[1]"])
    found = measuring.measure(sweep, sweep.trainings, Devices(count=1, kind="core"))
    (model,) = sweep.config.model.models
    assert set(found) == {(model, "frozen"), (model, "finetune")}
    for one in found.values():
        assert one.own_s > 0
        assert one.common_s >= 0
        assert one.memory_mb is not None
        assert sum(one.memory_mb) > 200
    assert found[model, "frozen"].once_s > 0
    assert found[model, "finetune"].once_s == 0


@pytest.mark.parametrize(
    ("values", "line"), [({1: 4.0}, (0.0, 4.0)), ({1: 11.0, 15: 25.0}, (10.0, 1.0)), ({1: 1.0, 2: 3.0}, (0.0, 1.5))]
)
def test_one_or_two_sizes_give_the_common_part_and_each_cells_own(
    values: dict[int, float], line: tuple[float, float]
) -> None:
    assert measuring._line(values) == pytest.approx(line)
