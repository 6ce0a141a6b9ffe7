"""An objective's run in MLflow shows the mean and the spread over its finished seeds, and how many they are."""

from __future__ import annotations

from typing import Any

import pytest

from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking import schema as names
from goal_sweep.sweeps import ResourceConfig, Training
from tests.helpers.mlflow_cases import Content, synced
from tests.helpers.store_cases import record, result, write_weights
from tests.helpers.sweep_cases import resolved

pytestmark = pytest.mark.integration
SEEDS = resolved("con/con", "sig/nca", seeds=(1, 2, 3), resources=ResourceConfig(max_attempts=1))


def finish(store: Store, training: Training, rsum: float) -> None:
    folder = store.folder(training)
    folder.claim("L")
    folder.save_with("best-1.safetensors", write_weights)
    folder.write_metrics([record(1)])
    folder.finish(result(1, test_rsum=rsum))


def means(content: Content) -> list[Any]:
    return [run for run in content.runs if run.data.tags.get(names.ROLE) == names.ROLE_MEAN]


def test_an_objective_has_one_run_with_its_mean_and_spread(uri: str, store: Store) -> None:
    first, second, third = (one for one in SEEDS.trainings if one.cell.objective.name == "con/con")
    finish(store, first, 40.0)
    assert means(synced(uri, store, SEEDS, live=False)) == []  # one seed has no spread
    finish(store, second, 44.0)
    (run,) = means(synced(uri, store, SEEDS, live=False))
    assert run.info.run_name == "con/con test_byobnet (frozen), mean of 2 of 3 seeds"
    assert run.data.tags[names.SEEDS] == "2 of 3"
    assert run.data.params[names.OBJECTIVE] == "con/con"
    assert run.data.metrics["mean/test/rsum"] == 42.0
    assert run.data.metrics["std/test/rsum"] == pytest.approx(8**0.5)
    assert run.data.metrics["mean/selected/val_rsum"] == 10.0
    assert run.info.status == "FINISHED"
    (again,) = means(synced(uri, store, SEEDS, live=False))
    assert again.info.run_id == run.info.run_id
    finish(store, third, 45.0)
    (later,) = means(synced(uri, store, SEEDS, live=False))
    assert later.data.tags[names.SEEDS] == "3 of 3"
    assert later.data.metrics["mean/test/rsum"] == 43.0
