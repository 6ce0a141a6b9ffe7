"""Launches on real Ray clusters of several nodes: room that comes and goes, memory, and machines that are unfit."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import launches
from tests.helpers.ray_nodes import Cable, RayCluster
from tests.helpers.until import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
SLOWLY = "time.sleep(0.5)"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RayCluster]:
    """A head without a CPU and without a worker."""
    with RayCluster(tmp_path / "cluster") as cluster:
        yield cluster


def test_a_cluster_without_workers_is_waited_for_and_so_is_one_that_loses_its_only_worker(
    cluster: RayCluster, unbroken: Path, tmp_path: Path
) -> None:
    folder = launches.sweep_in(tmp_path / "run")
    slow = launches.tampered_trainer(tmp_path / "site", SLOWLY)["PYTHONPATH"]
    launch = launches.Launch(folder, "--address", cluster.address)
    launch.says("no machine has what a unit needs, 1 CPU and 0 GPU (resources): it waits for one that joins")
    first = cluster.add("first", PYTHONPATH=slow)
    launch.says("epoch 1/")
    first.kill()
    launch.says("its worker process died")
    cluster.add("second")
    launch.ends()
    launches.check_equal(folder, unbroken)


def test_a_worker_that_ray_ends_for_want_of_memory_is_started_again_later_and_costs_nothing(
    cluster: RayCluster, unbroken: Path, tmp_path: Path
) -> None:
    folder = launches.sweep_in(tmp_path / "run")
    starved = cluster.add("starved", RAY_memory_usage_threshold="0.01", RAY_memory_monitor_refresh_ms="100")
    launch = launches.Launch(folder, "--address", cluster.address)
    launch.says("Ray ended its worker, because the memory of the machine was nearly full", times=2)
    starved.kill()
    cluster.add("second")
    launch.ends()
    assert "internal error" not in launch.said
    launches.check_equal(folder, unbroken)


def test_machines_that_lack_the_store_the_code_or_the_versions_are_left_alone(
    cluster: RayCluster, unbroken: Path, tmp_path: Path
) -> None:
    """They see another disk: what the driver finds at a path is not there, or is something else."""
    folder = launches.sweep_in(tmp_path / "run")
    other = launches.run_by_every_process(tmp_path / "site", OTHER_TORCH)["PYTHONPATH"]
    blind = launches.run_by_every_process(tmp_path / "blind", BLIND.replace("STORE", str(folder / "goal-sweep-store")))[
        "PYTHONPATH"
    ]
    cluster.add("other", PYTHONPATH=other)
    cluster.add("blind", PYTHONPATH=blind)
    launch = launches.Launch(folder, "--address", cluster.address)
    launch.ends(75)
    last = launch.said.splitlines()[-1]
    assert last.startswith("error: no machine of the cluster can train this sweep: "), launch.said
    assert "has other versions than the machine that launched the sweep: torch 0.1, not " in last
    assert f"does not see the store of the launch at {folder / 'goal-sweep-store'}" in last
    cluster.add("fit")
    launch = launches.Launch(folder, "--address", cluster.address)
    launch.ends()
    launches.check_equal(folder, unbroken)


OTHER_TORCH = """
import importlib.metadata
version = importlib.metadata.version
importlib.metadata.version = lambda name: "0.1" if name == "torch" else version(name)
"""
BLIND = """
import os
listdir = os.listdir
def blind(path="."):
    if str(path).startswith("STORE"):
        raise FileNotFoundError(2, "No such file or directory", str(path))
    return listdir(path)
os.listdir = blind
"""


def test_a_head_that_dies_ends_the_launch_and_the_next_one_continues(cluster: RayCluster, unbroken: Path, tmp_path):
    folder = launches.sweep_in(tmp_path / "run")
    cluster.add("first", PYTHONPATH=launches.tampered_trainer(tmp_path / "site", SLOWLY)["PYTHONPATH"])
    launch = launches.Launch(folder, "--address", cluster.address)
    launch.says("epoch 2/")
    cluster.head.kill()
    launch.ends(75, within=120)
    assert "the same command continues" in launch.said.splitlines()[-1]
    with RayCluster(tmp_path / "again", cpus=1) as again:
        launch = launches.Launch(folder, "--address", again.address)
        launch.ends()
    launches.check_equal(folder, unbroken)


def test_a_driver_that_is_killed_leaves_nothing_behind_on_the_cluster(cluster: RayCluster, unbroken: Path, tmp_path):
    folder = launches.sweep_in(tmp_path / "run")
    slow = launches.tampered_trainer(tmp_path / "site", SLOWLY)["PYTHONPATH"]
    node = cluster.add("first", PYTHONPATH=slow)
    launch = launches.Launch(folder, "--address", cluster.address)
    launch.says("epoch 2/")
    launch.process.kill()
    launch.process.wait()
    until(lambda: not node.processes("ray::Implicit"), "end of the workers")
    node.kill()
    cluster.add("second")
    launch = launches.Launch(folder, "--address", cluster.address)
    launch.ends()
    launches.check_equal(folder, unbroken)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and the package iproute2")
def test_a_machine_that_is_cut_off_and_comes_back_writes_nothing_late(unbroken: Path, tmp_path: Path) -> None:
    folder = launches.sweep_in(tmp_path / "run")
    slow = launches.tampered_trainer(tmp_path / "site", SLOWLY)["PYTHONPATH"]
    noticed_soon = {
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_timeout_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
    }
    with Cable("goalcut") as cable, RayCluster(tmp_path / "cluster", 0, noticed_soon, cable.here) as cluster:
        cluster.add("far", 1, cable, PYTHONPATH=slow)
        launch = launches.Launch(folder, "--address", cluster.address)
        launch.says("epoch 2/")
        cluster.add("near", PYTHONPATH=slow)
        cable.cut()
        launch.says("its worker process died")
        launch.says("epoch 4/")
        cable.mend()
        launch.ends()
    launches.check_equal(folder, unbroken)
    frozen = launches.attempts(folder)
    assert [[one["outcome"] for one in all_] for all_ in frozen.values()] == [["lost", "done"]] * 2


SQUARE = """
from goal_sweep.objectives import PairWeights, pair_weights

@pair_weights.register("square")
def square(triplets):
    return PairWeights((1 - triplets.pos) ** 2, triplets.neg.clamp(min=0) ** 2)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_two_nodes_that_have_neither_the_file_nor_the_folder_train_the_cells_of_a_plugin(cluster: RayCluster, tmp_path):
    folder = launches.sweep_in(tmp_path / "run", 2)
    (folder / "square.py").write_text(SQUARE)
    nodes = [cluster.add(name, hidden=folder) for name in ("one", "two")]
    own = [
        "plugins=[square.py]",
        "objectives={pair: [con, square], triplet: [con, cir]}",
        "execution={sharing: none}",
        "seeds=[1,2]",
    ]
    arguments = [word for text in own for word in ("--set", text)]
    store = tmp_path / "seen" / "goal-sweep-store"
    launch = launches.Launch(folder, "--address", cluster.address, "--store", str(store), *arguments)
    launch.says("epoch 1/")
    seen = [Path("/proc", str(node.process.pid), "root", folder.relative_to("/")) for node in nodes]
    assert [list(own.iterdir()) for own in seen] == [[], []]
    until(lambda: all(node.processes("ray::Implicit") for node in nodes), "worker on each")
    launch.ends()
    made = launches.attempts(store.parent)
    assert [[one["outcome"] for one in all_] for all_ in made.values()] == [["done"]] * 8
