"""The best cell as a model of MLflow: registered once, replaced when another is best, loadable by reference."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import mlflow
import numpy as np
import pytest
import torch
from goal_sweep.runners.tracking.models import publish_best

from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.checkpoints import BEST
from goal_sweep.goal_core.evaluation.embedding import embed_split
from goal_sweep.goal_core.evaluation.evaluate import open_checkpoint
from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking.page import SweepPage
from goal_sweep.sweeps import Training
from tests.helpers.mlflow_cases import database, synced
from tests.helpers.store_cases import record, result, write_weights
from tests.helpers.sweep_cases import resolved
from tests.helpers.training_cases import trained_cell

pytestmark = pytest.mark.integration
SWEEP = resolved("con/con", seeds=(1, 2, 3))


@pytest.fixture(autouse=True)
def _tracking_uri() -> Iterator[None]:
    before, threads = mlflow.get_tracking_uri(), torch.get_num_threads()
    yield
    mlflow.set_tracking_uri(before)
    torch.set_num_threads(threads)


def run_of(page: SweepPage, training: Training) -> str:
    query = f"tags.`goal.stage_key` = '{training.key}'"
    (run,) = page.client.search_runs([page.experiment_id], query)
    return str(run.info.run_id)


@pytest.fixture
def page(empty_database: Path, tmp_path: Path) -> SweepPage:
    """A sweep of three trainings; the last has no weights."""
    store = Store(tmp_path / "store")
    store.prepare()
    for training in SWEEP.trainings:
        folder = store.folder(training)
        folder.claim("L")
        folder.write_metrics([record(1), record(2)])
        folder.save_with("best-2.safetensors", write_weights)
        folder.finish(result(2))
    uri = database(empty_database, tmp_path / "store")
    synced(uri, store, SWEEP, live=False)
    page = SweepPage(uri, "s")
    page.client.delete_tag(run_of(page, SWEEP.trainings[-1]), "goal.checkpoint")  # as if imported without weights
    return page


def registered(page: SweepPage) -> tuple[str, str]:
    """The version that is registered, the only one, and its run."""
    (version,) = page.client.search_model_versions("name = 's'")
    assert page.client.get_model_version_by_alias("s", "best").version == version.version
    return version.version, version.run_id


def test_the_best_run_with_weights_is_the_model(page: SweepPage, tmp_path: Path) -> None:
    keys, store = [training.key for training in SWEEP.trainings], str(tmp_path / "store")
    runs = [run_of(page, training) for training in SWEEP.trainings]
    publish_best(page, store, keys[2:])
    assert page.client.search_registered_models() == []  # the third has no weights
    publish_best(page, store, keys)
    first, run = registered(page)
    assert run == runs[0]
    publish_best(page, store, keys)
    assert registered(page) == (first, runs[0])
    publish_best(page, store, keys[1:])
    second, run = registered(page)
    assert run == runs[1]
    page.client.set_tag(runs[1], "goal.checkpoint", "cells/new/best.safetensors")
    publish_best(page, store, keys[1:])
    assert registered(page)[0] not in (first, second)


@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType:UserWarning")
def test_three_lines_load_a_model(page: SweepPage, tmp_path: Path) -> None:
    cell = trained_cell(tmp_path, 1)
    store = tmp_path / "store"
    shutil.copytree(cell, store / "cells" / "c")
    (weights,) = (path for path in (store / "cells" / "c").glob("best*.safetensors"))
    assert BEST.startswith("best")
    page.client.set_tag(run_of(page, SWEEP.trainings[0]), "goal.checkpoint", str(weights.relative_to(store)))
    publish_best(page, str(store), [SWEEP.trainings[0].key])
    kept = [path for path in store.rglob("artifacts/model/*") if path.is_file()]
    assert {path.name for path in kept} == {"MLmodel", "checkpoint.json"}  # no weights
    mlflow.set_tracking_uri(f"sqlite:///{store / 'mlflow.db'}")
    model = mlflow.pyfunc.load_model("models:/s@best")
    opened = open_checkpoint(cell)
    captions = opened.dataset.splits["test"].captions
    embedded = model.predict(captions)

    expected = embed_split(opened.encoder, opened.prepared("test"))[1].numpy()
    np.testing.assert_allclose(embedded, expected, atol=1e-6)
    assert model.get_raw_model().description.seed == 1
    (store / "cells").rename(tmp_path / "gone")
    with pytest.raises(WeightsError, match=r"no checkpoint cells/c/best.* in the results folder"):
        mlflow.pyfunc.load_model("models:/s@best")
