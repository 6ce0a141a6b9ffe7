"""Launches on real Ray clusters of several nodes: room that comes and goes, memory, and machines that are unfit."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.helpers.launches import (
    attempts,
    check_mlflow,
    command,
    records_of,
    results,
    sweep_in,
    tampered_trainer,
)
from tests.helpers.ray_nodes import RayCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
SLOWLY = "time.sleep(0.5)"


class Launch:
    """A launch in a process of its own, and what it has said."""

    def __init__(self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self._log = folder / f"launch-{time.monotonic_ns()}.log"
        own = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command("launch", "tiny.yaml", *arguments), cwd=folder, env={**own, **(environment or {})},
                stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._log.read_text()

    def says(self, text: str, within: float = 180) -> None:
        """Wait until it has said something."""
        deadline = time.monotonic() + within
        while text not in self.said:
            assert self.process.poll() is None, (
                f"it ended with {self.process.returncode} without {text!r}:\n{self.said}"
            )
            assert time.monotonic() < deadline, f"no {text!r} within {within} s:\n{self.said}"
            time.sleep(0.1)

    def ends(self, status: int = 0, within: float = 600) -> None:
        """Wait for its end."""
        assert self.process.wait(timeout=within) == status, self.said


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RayCluster]:
    """A head without a CPU and without a worker."""
    with RayCluster(tmp_path / "cluster") as cluster:
        yield cluster


def charged(folder: Path) -> int:
    return sum(
        one["charged"] for stage in ("frozen", "finetune") for all_ in attempts(folder, stage).values() for one in all_
    )


def check_equal(folder: Path, unbroken: Path) -> None:
    assert results(folder) == results(unbroken)
    assert records_of(folder) == records_of(unbroken)
    check_mlflow(folder)


def test_a_cluster_without_workers_is_waited_for_and_so_is_one_that_loses_its_only_worker(
    cluster: RayCluster, unbroken: Path, tmp_path: Path
) -> None:
    folder = sweep_in(tmp_path / "run")
    slow = tampered_trainer(tmp_path / "site", SLOWLY)["PYTHONPATH"]
    launch = Launch(folder, "--address", cluster.address)
    launch.says("waiting for capacity: a unit needs 1 CPU and 0 GPU, and the cluster has 0 CPU and 0 GPU now")
    first = cluster.add("first", PYTHONPATH=slow)
    launch.says("epoch 1/")
    launch.says("there is room for a unit again")
    first.kill()
    launch.says("its worker died")
    time.sleep(5)
    assert launch.said.count("waiting for capacity") == 2
    cluster.add("second")
    launch.ends()
    assert launch.said.count("waiting for capacity") == 2
    check_equal(folder, unbroken)
    assert charged(folder) == 0


def test_a_wait_has_an_end_where_the_user_wants_one_and_none_begins_where_nothing_can_come(
    cluster: RayCluster, tmp_path: Path
) -> None:
    folder = sweep_in(tmp_path / "run")
    launch = Launch(folder, "--address", cluster.address, "--wait", "0.2")
    launch.ends(75)
    assert "no room for a unit for 0.2 min (--wait)" in launch.said.splitlines()[-1]
    cluster.add("small")
    launch = Launch(folder, "--address", cluster.address, "--set", "resources.cpus=64")
    launch.ends(2)
    assert launch.said.splitlines()[-1].startswith("error: a unit needs 64 CPU and 0 GPU (resources.*), but no machine")
