"""How many cells a unit gets: together where they have much in common, spread where they have not, as memory allows."""

from __future__ import annotations

from typing import Any

import pytest

from goal_sweep.runners.planning.estimate import Packing, fit
from goal_sweep.runners.planning.packing import FROZEN, TRAINED, choose, common_part
from goal_sweep.sweeps import load_sweep, pack
from goal_sweep.sweeps.overview import unopened
from tests.helpers.paths import SCENES
from tests.helpers.planning_cases import devices_of, published_prices

PARTS = {
    ("coco_vsepp", "frozen"): FROZEN,
    ("coco_vsepp", "finetune"): TRAINED,
    ("coco_vsepp_quirk", "frozen"): TRAINED,  # no cell can use the statistics of another one's batches
    ("coco_vse_infty_butd", "frozen"): 0.0,  # the data are features
    (SCENES, "frozen"): 0.0,  # features are computed once
}


def fitted(*overrides: str, count: int = 8, sweep: str = "coco_vsepp", **more: Any) -> Packing:
    prices = published_prices(sweep, *overrides)
    return fit(unopened(prices.config).trainings, prices, devices_of(prices.config, count, **more))


@pytest.mark.parametrize(("sweep", "stage"), PARTS)
def test_the_part_that_cells_have_in_common_follows_from_what_they_share(sweep: str, stage: str) -> None:
    config = load_sweep(sweep, environ={})
    (unit, *_) = [unit for unit in pack(unopened(config).trainings, config.execution) if unit.stage.name == stage]
    assert common_part(unit) == PARTS[sweep, stage]


@pytest.mark.parametrize(
    ("count", "frozen", "finetune"),
    [(1, 15, 15), (2, 15, 8), (8, 8, 2), (45, 1, 1), (64, 1, 1)],
)
def test_frozen_cells_stay_together_and_fine_tuned_ones_are_spread_over_all_devices(
    count: int, frozen: int, finetune: int
) -> None:
    packing = fitted(count=count)
    assert packing.limits == {"frozen": frozen, "finetune": finetune}
    assert fitted(count=count).limits == packing.limits
    assert packing.lanes == min(count, len(packing.units))


def test_no_number_of_cells_ends_earlier_by_more_than_a_tie_by_the_formula() -> None:
    config = load_sweep("coco_vsepp", ["stages=[{name: frozen, epochs: 2, lr: 1e-3}]"], environ={})
    trainings = unopened(config).trainings
    for count in range(1, 50):
        (limit,) = choose(trainings, config, count, {}).values()
        ends = {}
        for cells in range(1, 16):
            parts = -(-15 // cells)
            sizes = [15 // parts + (part < 15 % parts) for part in range(parts)] * 3
            ends[cells] = sum(0.9 + 0.1 * size for size in sorted(sizes, reverse=True)[::count])
        assert ends[limit] <= 1.05 * min(ends.values())


def test_equal_ends_give_the_fewest_units() -> None:
    # 45 cells of one time each on 8 devices: units of 1, 2 and 3 all take 6.
    assert fitted(sweep="coco_vse_infty_butd").limits == {"frozen": 3}


def test_what_is_left_of_uneven_groups_is_not_cut_up_for_the_largest() -> None:
    config = load_sweep("coco_vse_infty_butd", environ={})
    frozen = unopened(config).by_stage[0]
    left = [one for one in frozen if one.cell.seed > 1] + frozen[:1]
    # Units of 15, 15 and 1 on two devices take 15 and 1, which is within 5 % of the 16 of any others.
    assert choose(left, config, 2, {}) == {"frozen": 15}


def test_memory_limits_the_cells_of_a_unit() -> None:
    packing = fitted(count=1, memory_mb=35_000.0)
    assert packing.limits == {"frozen": 15, "finetune": 5}
    assert packing.lines[1].endswith("no more than 5 fit into memory")
    largest = max((unit for unit in packing.units if unit.stage.name == "finetune"), key=lambda one: len(one.trainings))
    memory = packing.prices.memory_mb(largest)
    assert memory is not None
    assert memory <= 0.85 * 35_000
    both = fitted("model.backbones=[resnet152, convnext_base]", count=1, memory_mb=35_000.0)
    assert both.limits == packing.limits  # nothing is known of convnext_base


def test_the_second_stage_is_packed_within_the_units_of_the_first() -> None:
    packing = fitted(count=3, sweep="coco_vsepp_quirk")
    sizes: dict[str, list[int]] = {stage: [] for stage in ("frozen", "finetune")}
    for unit in packing.units:
        sizes[unit.stage.name].append(len(unit.trainings))
    assert sizes == {"frozen": [5, 5, 5], "finetune": [5, 5, 5]}


def test_the_end_is_that_of_the_stages_in_turns() -> None:
    packing = fitted("execution.cells_per_unit=1", count=10)
    frozen, finetune = (
        next(packing.prices.seconds(unit) for unit in packing.units if unit.stage.name == name)
        for name in ("frozen", "finetune")
    )
    assert frozen is not None
    assert finetune is not None
    assert packing.end_s == pytest.approx(5 * (frozen + finetune))
    assert fitted("model.backbones=[convnext_base]").end_s is None
