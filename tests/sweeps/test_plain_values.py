"""Sweeps and cells survive JSON, and what was damaged there is refused."""

import json
from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.sweeps import SweepConfig, list_shipped, load_sweep
from goal_sweep.sweeps.cells import Cell, unopened
from goal_sweep.sweeps.identity import from_mapping, to_mapping


@pytest.mark.parametrize("name", list_shipped())
def test_every_shipped_sweep_and_its_cells_survive_json(name: str) -> None:
    config = load_sweep(name, environ={"GOAL_DATA": "/data", "GOAL_WEIGHTS": "/w"})
    assert from_mapping(SweepConfig, json.loads(json.dumps(to_mapping(config)))) == config
    assert config.name == name
    cell = unopened(config).cells[-1]
    assert from_mapping(Cell, json.loads(json.dumps(to_mapping(cell)))) == cell


@pytest.mark.parametrize(
    ("change", "message"),
    [({"seeds": "3"}, "not a valid stored SweepConfig: seeds: "), ({"seeds": [1, 1]}, r"seeds: .*must be distinct")],
)
def test_damaged_mapping(small: SweepConfig, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_mapping(SweepConfig, {**to_mapping(small), **change})
