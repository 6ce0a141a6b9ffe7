"""Every shipped sweep resolves to its golden file: settings, ids, units and steps.

After an intended change, run `pytest tests/sweeps/test_golden_plans.py --update-golden` and review the difference.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.data import published_counts
from goal_sweep.goal_core.models.frameworks import frameworks
from goal_sweep.sweeps import ResolvedSweep, list_shipped, load_sweep, pack
from goal_sweep.sweeps.identity import content_id, to_mapping
from tests.helpers.planning_cases import rows_of

GOLDEN = Path(__file__).parent / "golden"
PLACES = {"GOAL_DATA": "/data", "GOAL_COCO": "/coco", "GOAL_F30K": "/f30k", "GOAL_WEIGHTS": "/weights.safetensors"}


def plan_of(name: str, *overrides: str) -> dict[str, Any]:
    config = load_sweep(name, ["store=/store", *overrides], environ=PLACES)
    weights = {backbone.name: f"weights of {backbone.name}" for backbone in config.model.backbones}
    resolved = ResolvedSweep(config=config, data_fingerprint="fingerprint", weights=weights)
    cells, stages = resolved.cells, resolved.by_stage
    keys = [[training.key for training in of_cell] for of_cell in zip(*stages, strict=True)]
    splits = published_counts(config.data)
    sweep = to_mapping(config)
    parts = frameworks[config.model.framework].function.uses | {"backbones", "init_from"}  # others do not matter
    sweep["model"] = {key: value for key, value in sweep["model"].items() if key in parts}
    planned = rows_of(name, "store=/store", *overrides, environ=PLACES) if "train" in splits else []
    return {
        "sweep": sweep,
        "cells": len(cells),
        "first_cell": {"id": cells[0].id, "label": cells[0].label, "keys": keys[0]},
        "all_cells": content_id([[cell.id, of_cell] for cell, of_cell in zip(cells, keys, strict=True)]),
        "units": {
            stage.name: [len(unit.trainings) for unit in pack(trainings, config.execution)]
            for stage, trainings in zip(config.stages, stages, strict=True)
        },
        "steps": {row["stage"]: [row["steps_per_epoch"], row["steps"]] for row in planned},
    }


@pytest.mark.parametrize("name", list_shipped())
def test_plan_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    path = GOLDEN / f"{name}.json"
    text = json.dumps(plan_of(name), indent=1) + "\n"
    if pytestconfig.getoption("--update-golden"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no golden plan of {name}; write it with --update-golden"
    assert text == path.read_text(), f"{name} resolves to another plan; if that is meant, run with --update-golden"


def test_no_golden_file_is_left_of_a_sweep_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(list_shipped())
