"""The best cells as models of MLflow: listed once, replaced when others are best, loadable by reference."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import mlflow
import numpy as np
import pytest
import torch
from mlflow import MlflowClient

from analysis import publish_models
from goal_core.basics.errors import WeightsError
from goal_core.checkpoints import BEST
from goal_core.evaluation import embed_split, open_checkpoint
from runners.tracking.moved import correct_addresses
from tests.helpers.analysis_cases import SweepWriter
from tests.helpers.mlflow_cases import database
from tests.helpers.training_cases import trained_cell

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _tracking_uri() -> Iterator[None]:
    before, threads = mlflow.get_tracking_uri(), torch.get_num_threads()
    yield
    mlflow.set_tracking_uri(before)
    torch.set_num_threads(threads)


def listed(writer: SweepWriter) -> dict[str, str]:
    found = writer.client.search_logged_models([writer.experiment_id])
    return {str(model.source_run_id): model.model_id for model in found}


def write(writer: SweepWriter, seed: int, checkpoint: str) -> str:
    run_id = writer.write("con/con", seed)
    writer.client.set_tag(run_id, "goal.checkpoint", checkpoint)
    return run_id


@pytest.fixture
def writer(empty_database: Path, tmp_path: Path) -> SweepWriter:
    uri = database(empty_database, tmp_path / "store")
    client = MlflowClient(uri)
    place = (tmp_path / "store" / "artifacts" / "s").as_uri()
    experiment = client.create_experiment("s", artifact_location=place, tags={"goal.sweep": "s"})
    writer = SweepWriter(uri=uri, client=client, experiment_id=experiment, name="s")
    writer.write_parent()
    return writer


def test_exactly_the_best_runs_have_a_model(writer: SweepWriter, tmp_path: Path) -> None:
    runs = [write(writer, seed, f"cells/{seed}/best.safetensors") for seed in (1, 2)]
    bare = writer.write("con/con", 3)  # imported without weights
    parent, store = str(writer.parent), str(tmp_path / "store")
    history = writer.client.get_metric_history(runs[0], "test/rsum")
    first = publish_models(writer.uri, parent, store, [*runs, bare])
    assert listed(writer) == dict(zip(runs, first, strict=True))
    assert publish_models(writer.uri, parent, store, [*runs, bare]) == first
    assert writer.client.get_metric_history(runs[0], "test/rsum") == history
    model = writer.client.get_logged_model(first[0])
    assert {metric.key for metric in model.metrics} >= {"test/rsum", "test/i2t_r1"}
    assert [one.model_id for one in writer.client.get_run(runs[0]).outputs.model_outputs] == first[:1]
    publish_models(writer.uri, parent, store, runs[1:])
    assert listed(writer) == {runs[1]: first[1]}
    writer.client.set_tag(runs[1], "goal.checkpoint", "cells/new/best.safetensors")
    (again,) = publish_models(writer.uri, parent, store, runs[1:])
    assert again != first[1]
    assert listed(writer) == {runs[1]: again}


@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType:UserWarning")
def test_three_lines_load_a_model_from_where_the_folder_is_now(writer: SweepWriter, tmp_path: Path) -> None:
    cell = trained_cell(tmp_path, 1)
    store = tmp_path / "store"
    shutil.copytree(cell, store / "cells" / "c")
    (weights,) = (path for path in (store / "cells" / "c").glob("best*.safetensors"))
    assert BEST.startswith("best")
    run_id = write(writer, 1, str(weights.relative_to(store)))
    (model_id,) = publish_models(writer.uri, str(writer.parent), str(store), [run_id])
    kept = [path for path in store.rglob("models/**/*") if path.is_file()]
    assert {path.name for path in kept} == {"MLmodel", "checkpoint.json"}  # no weights
    moved = store.rename(tmp_path / "moved")
    correct_addresses(moved / "mlflow.db")

    mlflow.set_tracking_uri(f"sqlite:///{moved / 'mlflow.db'}")
    model = mlflow.pyfunc.load_model(f"models:/{model_id}")
    opened = open_checkpoint(cell)
    captions = opened.dataset.splits["test"].captions
    embedded = model.predict(captions)

    expected = embed_split(opened.encoder, opened.prepared("test"))[1].numpy()
    np.testing.assert_allclose(embedded, expected, atol=1e-6)
    assert model.get_raw_model().description.seed == 1
    (moved / "cells").rename(tmp_path / "gone")
    with pytest.raises(WeightsError, match=r"no checkpoint cells/c/best.* in the results folder"):
        mlflow.pyfunc.load_model(f"models:/{model_id}")
