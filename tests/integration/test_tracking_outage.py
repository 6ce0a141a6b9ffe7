"""45 trainings on 8 real Ray nodes, while the MLflow server is dead for a minute. `make cluster-test` runs it."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from tests.helpers.launches import Launch, attempts, records_of, results, tampered_trainer
from tests.helpers.ray_nodes import RayCluster, free_port

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
SWEEP = """
name: tiny
data: {format: scenes, num_train: 24, num_val: 10, num_test: 10, image: {size: 32, resize: 32, augment: none}}
model: {backbones: [{name: test_resnet, weights: random}], text: {word_dim: 8}, embed_dim: 16}
seeds: [1, 2, 3]
stages: [{name: frozen, epochs: 4, lr: 1e-3, batch_size: 16, warmup_epochs: 1}]
execution: {sharing: none}
"""
TRAININGS, NODES, OUTAGE_S, STEP_S = 45, 8, 60.0, 1.2
"""The steps wait more than they compute, so that eight nodes fit one small machine: about 40 seconds a training."""


class Server:
    """An MLflow server that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        folder.mkdir()
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        words += ["--backend-store-uri", "sqlite:///mlflow.db", "--artifacts-destination", "artifacts", "--workers=1"]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["nice", "-n", "19", *words],  # its start takes none of the cores, as if it had a machine of its own
                cwd=self.folder,
                env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 120
        while not self.answers():
            assert time.monotonic() < deadline, (self.folder / "server.log").read_text()
            time.sleep(0.5)

    def answers(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)):
                return False
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=10) as answer:
            return bool(answer.status == 200)

    def kill(self) -> None:
        for child in psutil.Process(self.process.pid).children(recursive=True):
            child.kill()
        self.process.kill()
        self.process.wait(timeout=30)


def launched(folder: Path, cluster: RayCluster, server: Server, *, outage: bool) -> float:
    """Train the sweep in a folder. Returns the seconds from the first epoch to the end."""
    folder.mkdir()
    (folder / "tiny.yaml").write_text(SWEEP)
    tracked = ["--set", f"tracking=http://127.0.0.1:{server.port}", "--set", f"name={folder.name}"]
    launch = Launch(folder, "--address", cluster.address, *tracked)
    launch.says("epoch 1/4")
    began = time.monotonic()
    if outage:
        time.sleep(15)
        server.kill()
        time.sleep(OUTAGE_S)
        server.start()
    launch.ends(within=1800)
    return time.monotonic() - began


def test_a_minute_without_tracking_loses_and_doubles_nothing_and_costs_no_time(tmp_path: Path) -> None:
    slow = tampered_trainer(tmp_path / "site", f"time.sleep({STEP_S})")["PYTHONPATH"]
    server = Server(tmp_path / "server")
    try:
        with RayCluster(tmp_path / "cluster") as cluster:
            for number in range(NODES):
                cluster.add(f"node-{number}", PYTHONPATH=slow)
            calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
            seconds = {folder.name: launched(folder, cluster, server, outage=folder == disturbed)
                       for folder in (calm, disturbed)}  # fmt: skip
        print(f"seconds: {seconds}, ratio {seconds['disturbed'] / seconds['calm']:.3f}")
        assert len(results(disturbed)) == TRAININGS
        assert results(disturbed) == results(calm)
        assert records_of(disturbed) == records_of(calm)
        for folder in (calm, disturbed):
            outcomes = [[one["outcome"] for one in all_] for all_ in attempts(folder).values()]
            assert outcomes == [["done"]] * TRAININGS
            check_runs(server, folder.name)
    finally:
        server.kill()


def check_runs(server: Server, name: str) -> None:
    """One finished run for each training, and every epoch in it once."""
    client = MlflowClient(f"http://127.0.0.1:{server.port}")
    experiment = client.get_experiment_by_name(name)
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    counts = Counter(run.data.tags["goal.role"] for run in runs)
    assert (counts["sweep"], counts["report"]) == (1, TRAININGS)
    cells = [run for run in runs if run.data.tags["goal.role"] == "report"]
    assert len({run.data.tags["goal.stage_key"] for run in cells}) == TRAININGS
    assert {run.data.tags["goal.status"] for run in cells} == {"done"}
    for run in cells:
        steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "val/rsum")]
        assert sorted(steps) == [1, 2, 3, 4]
