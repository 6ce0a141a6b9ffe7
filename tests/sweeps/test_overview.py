"""The numbers of cells and trainings are the products that are printed."""

import re
from math import prod

import pytest

from goal_sweep.sweeps import list_shipped, load_sweep
from goal_sweep.sweeps.cells import describe_size, factors, unopened

PLACES = {"GOAL_DATA": "/data", "GOAL_WEIGHTS": "/weights.safetensors"}
AXES = ("objectives.params.tau=[5, 10]", "stages.frozen.lr=[1e-3, 4e-3]", "seeds=[1, 2]")


@pytest.mark.parametrize("name", list_shipped())
def test_the_cells_of_every_shipped_sweep_are_the_product(name: str) -> None:
    sweep = unopened(load_sweep(name, environ=PLACES))
    found = factors(sweep)
    assert found["cells"] == prod(found[key] for key in ("backbones", "seeds", "objectives"))
    cells, *numbers = [int(number) for number in re.findall(r"(?:^|[=x] )(\d+)", describe_size(sweep))]
    assert cells == prod(numbers)


def test_axes_of_objectives_multiply_cells_and_axes_of_stages_trainings() -> None:
    sweep = unopened(load_sweep("coco_vsepp", AXES, environ={}))
    assert factors(sweep) == {"cells": 50, "backbones": 1, "seeds": 2, "objectives": 25}  # 10 of 15 have a tau
    product = "50 cells = 1 backbone x 2 seeds x 25 settings of 15 objectives"
    assert describe_size(sweep) == f"{product}, axes tau, lr, so 100 trainings of finetune"
    assert [len(trainings) for trainings in sweep.by_stage] == [100, 100]
