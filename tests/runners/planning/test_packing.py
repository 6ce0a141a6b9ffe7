"""How many cells a unit gets: together where they have much in common, spread where they have not, as memory allows."""

from typing import Any

import pytest

from goal_sweep.runners.planning.estimates import memory_mb
from goal_sweep.runners.planning.packing import FROZEN, TRAINED, Packing, choose, common_part, end_s, pack_for
from goal_sweep.sweeps import load_sweep, pack
from goal_sweep.sweeps.cells import unopened
from tests.helpers.planning_cases import devices_of, published_speeds

PARTS = {
    ("coco_vsepp", "frozen"): FROZEN,
    ("coco_vsepp", "finetune"): TRAINED,
    ("coco_vsepp_quirk", "frozen"): TRAINED,  # no cell can use the statistics of another one's batches
    ("coco_vse_infty_butd", "frozen"): 0.0,  # the data are features
    ("coco_vsepp+smoke", "finetune"): TRAINED,
}


def packed(*overrides: str, count: int = 8, sweep: str = "coco_vsepp", **more: Any) -> Packing:
    speeds = published_speeds(sweep, *overrides)
    return pack_for(unopened(speeds.config).trainings, devices_of(speeds.config, count, **more), speeds)


@pytest.mark.parametrize(("sweep", "stage"), PARTS)
def test_the_part_that_cells_have_in_common_follows_from_what_they_share(sweep: str, stage: str) -> None:
    config = load_sweep(sweep, environ={})
    (unit, *_) = [unit for unit in pack(unopened(config).trainings, config.execution) if unit.stage.name == stage]
    assert common_part(unit) == PARTS[sweep, stage]


@pytest.mark.parametrize(("count", "frozen", "finetune"), [(1, 15, 15), (2, 15, 8), (8, 8, 2), (45, 1, 1), (64, 1, 1)])
def test_frozen_cells_stay_together_and_fine_tuned_ones_are_spread_over_all_devices(
    count: int, frozen: int, finetune: int
) -> None:
    assert packed(count=count).limits == {"frozen": frozen, "finetune": finetune}


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
    assert packed(sweep="coco_vse_infty_butd").limits == {"frozen": 3}


def test_what_is_left_of_uneven_groups_is_not_cut_up_for_the_largest() -> None:
    config = load_sweep("coco_vse_infty_butd", environ={})
    frozen = unopened(config).by_stage[0]
    left = [one for one in frozen if one.cell.seed > 1] + frozen[:1]
    # Units of 15, 15 and 1 on two devices take 15 and 1, which is within 5 % of the 16 of any others.
    assert choose(left, config, 2, {}) == {"frozen": 15}


def test_memory_limits_the_cells_of_a_unit() -> None:
    packing, speeds = packed(count=1, memory_mb=35_000.0), published_speeds("coco_vsepp")
    assert packing.limits == {"frozen": 15, "finetune": 5}
    assert any("no more than 5 fit into memory" in line for line in packing.lines)
    memory = [memory_mb(unit, speeds.config, speeds.size) or 0.0 for unit in packing.units]
    assert max(memory) <= 0.85 * 35_000
    both = packed("model.backbones=[resnet152, convnext_base]", count=1, memory_mb=35_000.0)
    assert both.limits == packing.limits  # nothing is known of convnext_base


@pytest.mark.parametrize(
    ("cells", "memory_mb"), [("auto", 25_000.0), ("15", 35_000.0)], ids=["not one fits", "set by hand"]
)
def test_what_does_not_fit_is_said_with_what_would_do(cells: str, memory_mb: float) -> None:
    packing = packed(f"execution.cells_per_unit={cells}", count=1, memory_mb=memory_mb)
    (said,) = [line for line in packing.lines if "85 % of a device's memory" in line]
    assert "micro_batch" in said
    assert "precision=bf16" in said


def test_the_second_stage_is_packed_within_the_units_of_the_first() -> None:
    packing = packed(count=3, sweep="coco_vsepp_quirk")
    sizes: dict[str, list[int]] = {stage: [] for stage in ("frozen", "finetune")}
    for unit in packing.units:
        sizes[unit.stage.name].append(len(unit.trainings))
    assert sizes == {"frozen": [5, 5, 5], "finetune": [5, 5, 5]}


def test_the_end_is_that_of_the_stages_in_turns() -> None:
    packing = packed("execution.cells_per_unit=1", count=10)
    seconds = {unit.stage.name: packing.seconds(unit) or 0.0 for unit in packing.units}
    assert end_s(packing.units, packing.seconds, 10) == pytest.approx(5 * sum(seconds.values()))
    unknown = packed("model.backbones=[convnext_base]")
    assert end_s(unknown.units, unknown.seconds, 10) is None
