"""The counted memory of a unit: against sizes that a person can check, and against a process that trains it."""

import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from goal_sweep.goal_core.models.sizes import DataSize
from goal_sweep.goal_core.training.speed import measure_speed
from goal_sweep.runners.execution.worker import unit_plan
from goal_sweep.runners.launch.opened import open_sweep
from goal_sweep.runners.planning.estimates import disk_mb, memory_mb
from goal_sweep.sweeps import Unit, load_sweep, pack
from tests.helpers.paths import SCENES
from tests.helpers.planning_cases import published_speeds, unit_of

CONTEXT_MB = 600


def counted(cells: int, stage: str, *overrides: str) -> float:
    speeds = published_speeds("coco_vsepp", *overrides)
    memory = memory_mb(unit_of(speeds, stage, cells), speeds.config, speeds.size)
    assert memory is not None
    return memory


def test_a_fine_tuned_cell_costs_its_backbone_and_adam_and_a_frozen_one_only_its_heads() -> None:
    trunk = "execution.sharing=trunk"
    frozen, finetune = (counted(2, stage, trunk) - counted(1, stage, trunk) for stage in ("frozen", "finetune"))
    assert finetune - frozen == pytest.approx(58.14 * 4 * 4)  # millions of weights, four copies of four bytes
    # Its linear layer, word vectors and GRU, in millions of weights, and again four copies.
    assert frozen == pytest.approx((2048 * 1024 + 12_000 * 300 + 3 * 1024 * (300 + 1024 + 2)) / 1e6 * 16, rel=0.02)


def test_activations_grow_with_the_batch_and_the_image_and_shrink_with_chunks_and_the_precision() -> None:
    assert counted(1, "finetune") - CONTEXT_MB > 128 * 177  # megabytes that autograd keeps of one image
    for setting in ("stages.finetune.micro_batch=16", "stages.finetune.batch_size=16"):
        assert counted(1, "finetune", setting) < 0.25 * counted(1, "finetune")
    assert counted(1, "finetune", "data.image.size=112") < 0.4 * counted(1, "finetune")
    assert counted(1, "finetune", "precision=bf16") < 0.6 * counted(1, "finetune")


def test_stacked_cells_hold_their_activations_at_the_same_time() -> None:
    more = counted(15, "frozen") - counted(15, "frozen", "execution.sharing=trunk")
    one = 128 * 14 * 1024 * 10 * 4 / 1e6  # pairs, words, width, numbers for each of these, bytes
    assert more == pytest.approx(14 * one, rel=0.02)


def test_features_that_are_computed_once_lie_in_memory_whole() -> None:
    whole = published_speeds("coco_vsepp").size.images * 2048 * 4 / 1e6
    assert counted(1, "frozen", "data.image.augment=none") - counted(1, "frozen") == pytest.approx(whole, rel=0.01)


def test_the_disk_holds_the_weights_that_no_file_has() -> None:
    def disk(stage: str, *overrides: str) -> float:
        speeds = published_speeds("coco_vsepp", *overrides)
        return disk_mb(unit_of(speeds, stage), speeds.size) or 0.0

    backbone = 58.14 * 4
    assert disk("finetune") - disk("frozen") == pytest.approx(backbone)
    random = "model.backbones=[{name: resnet152, weights: random}]"
    assert disk("frozen", random) == pytest.approx(disk("finetune"))


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", [0, 1])
def test_the_count_is_near_what_a_process_takes(tmp_path: Path, stage: int) -> None:
    settings = [
        *(f"store={tmp_path}", "model.backbones=[{name: resnet18, weights: random}]"),
        "data.image={size: 112, resize: 112, augment: none}",
    ]
    sweep = open_sweep(load_sweep(SCENES, settings))
    unit = Unit(trainings=pack(sweep.by_stage[stage], sweep.config.execution)[0].trainings[:2])
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        plan = unit_plan(unit, sweep.store, sweep.config.resources, sweep.config.execution)
        process.submit(measure_speed, plan, sweep.dataset).result()
        taken_mb = process.submit(resource.getrusage, resource.RUSAGE_SELF).result().ru_maxrss * 1024 / 1e6
    assert memory_mb(unit, sweep.config, DataSize.of_dataset(sweep.dataset)) == pytest.approx(taken_mb, rel=0.3)
