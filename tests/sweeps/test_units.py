from __future__ import annotations

import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goal_core.objectives import pair_weights, triplet_weights
from sweeps import Cell, SweepConfig, expand, pack
from sweeps.schema import ExecutionConfig

NONE = ExecutionConfig()
TRUNK = ExecutionConfig(sharing="trunk")
NUM_OBJECTIVES = len(pair_weights) * len(triplet_weights)


@pytest.fixture
def cells(small: SweepConfig) -> list[Cell]:
    return expand(small, "f", {"resnet10t": "random", "resnet18": "timm"})


def test_without_sharing_a_unit_is_a_cell(cells: list[Cell]) -> None:
    units = pack(cells, 0, NONE)
    assert [unit.cells for unit in units] == [(cell,) for cell in cells]
    assert units[0].label == "con/con resnet10t seed 1 (frozen)"


def test_trunk_brings_together_what_differs_in_objective_only(cells: list[Cell]) -> None:
    units = pack(cells, 0, TRUNK)
    assert [len(unit.cells) for unit in units] == [NUM_OBJECTIVES] * 4
    assert [(unit.cells[0].model.backbone.name, unit.cells[0].seed) for unit in units] == [
        ("resnet10t", 1),
        ("resnet10t", 2),
        ("resnet18", 1),
        ("resnet18", 2),
    ]
    for unit in units:
        assert len({(cell.data, cell.model, cell.seed) for cell in unit.cells}) == 1
    assert units[3].label == f"resnet18 seed 2 (frozen), {NUM_OBJECTIVES} objectives"
    assert units[0].stage.name == "frozen"


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [(0, [15]), (20, [15]), (15, [15]), (8, [8, 7]), (7, [5, 5, 5]), (4, [4, 4, 4, 3]), (1, [1] * 15)],
)
def test_sizes_are_balanced(cells: list[Cell], limit: int, sizes: list[int]) -> None:
    units = pack(cells[:15], 0, ExecutionConfig(sharing="trunk", cells_per_unit=limit))
    assert [len(unit.cells) for unit in units] == sizes
    assert [cell for unit in units for cell in unit.cells] == cells[:15]


def test_a_stage_that_trains_the_backbone_shares_its_batches(cells: list[Cell]) -> None:
    units = pack(cells, 1, TRUNK)
    assert [len(unit.cells) for unit in units] == [len(unit.cells) for unit in pack(cells, 0, TRUNK)]
    assert units[0].stage.name == "finetune"


def test_cells_without_the_stage_are_left_out(cells: list[Cell]) -> None:
    assert pack(cells, 2, TRUNK) == []
    assert pack([], 0, TRUNK) == []


def test_ids_and_pickling(cells: list[Cell]) -> None:
    units = pack(cells, 0, ExecutionConfig(sharing="trunk", cells_per_unit=8))
    assert len({unit.id for unit in units}) == len(units) == 4 * -(-NUM_OBJECTIVES // 8)
    assert pickle.loads(pickle.dumps(units)) == units
    assert {unit.id for unit in units}.isdisjoint(unit.id for unit in pack(cells, 1, NONE))


@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_cell_is_in_exactly_one_unit(cells: list[Cell], data: st.DataObject) -> None:
    todo = data.draw(st.lists(st.sampled_from(cells), unique_by=lambda cell: cell.id))
    limit = data.draw(st.integers(0, 16))
    units = pack(todo, 0, ExecutionConfig(sharing="trunk", cells_per_unit=limit))
    assert sorted(cell.id for unit in units for cell in unit.cells) == sorted(cell.id for cell in todo)
    for unit in units:
        assert 1 <= len(unit.cells) <= (limit or NUM_OBJECTIVES)
        assert len({(cell.model, cell.seed) for cell in unit.cells}) == 1
