from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.helpers.analysis_cases import SweepWriter, recalls
from tests.helpers.mlflow_cases import database


@pytest.fixture(scope="session")
def new_sweep(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], SweepWriter]:
    """Makes empty experiments in one tracking database, which the whole session shares."""
    folder: Path = tmp_path_factory.mktemp("tracking")
    uri = database(empty_database, folder)
    client = MlflowClient(tracking_uri=uri)

    def make(name: str) -> SweepWriter:
        experiment_id = client.create_experiment(name, artifact_location=(folder / "artifacts" / name).as_uri())
        return SweepWriter(uri=uri, client=client, experiment_id=experiment_id, name=name)

    return make


@pytest.fixture(scope="session")
def complete_sweep(new_sweep: Callable[[str], SweepWriter]) -> SweepWriter:
    """15 objectives x 3 seeds x 2 stages, all done."""
    sweep = new_sweep("complete")
    sweep.write_parent(**{"goal.stages": '["frozen", "finetune"]'})
    sweep.write_all()
    sweep.write_all(stage="finetune")
    return sweep


@pytest.fixture(scope="session")
def broken_sweep(new_sweep: Callable[[str], SweepWriter]) -> SweepWriter:
    """One of everything that can be wrong; what is right is the complete sweep's frozen stage."""
    sweep = new_sweep("broken")
    sweep.write_parent(**{"goal.stages": '["frozen", "finetune"]'})
    holes = [
        ("con/nca", 2),
        ("lin/con", 1),
        ("lin/con", 2),
        ("lin/con", 3),
        ("sig/con", 3),
        ("sig/nca", 1),
        ("sig/cir", 2),
    ]
    sweep.write_all(skip=holes)
    for seed in (1, 2, 3):
        sweep.write("lin/con", seed, status="failed", reason="NaN at epoch 2 | step 17")
    sweep.write("sig/con", 3, metrics=recalls("sig/con", 3) | {"test/i2t_r1": float("nan")})
    sweep.write("sig/nca", 1, status="running", metrics=recalls("sig/nca", 1))
    sweep.write("sig/cir", 2, status="waiting")
    sweep.write("sig-ms/cir", 1, metrics=recalls("sig-ms/cir", 1, shift=9))
    sweep.write("sig-ms/nca", 1, metrics=recalls("sig-ms/nca", 1, shift=9), stage_key="key-of-other-settings")
    sweep.write("con/con", 7)
    sweep.write("con/cir", 1, without=["stage_key"])
    sweep.write("con/cir", 1, stage_key="key-bad-seed", **{"seed_text": "one"})
    return sweep
