"""The Ray that a local launch starts is open to nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from goal_sweep.goal_core.basics.errors import DeviceError
from goal_sweep.runners.execution.capacity import Resources, check_here
from goal_sweep.runners.execution.session import session as ray_session
from goal_sweep.runners.execution.session.session import RaySession
from tests.helpers.paths import ROOT

_LAUNCH = """
import gc, json, os, psutil, threading, time
from pathlib import Path
from goal_sweep.runners.execution.capacity import Resources
from goal_sweep.runners.execution.ray_tune import RayUnits

class Knot:
    def __init__(self):
        self.me, self.ref = self, ray.put(1)

def collect():
    while knots:
        time.sleep(0.0005)
        knots.pop()
        if gc.isenabled():
            gc.collect()

with RayUnits(None, Resources(cpus=1, gpus=0)):
    import ray

    ray.get(ray.remote(lambda: os.getpid()).remote())  # so that there is a worker
    me = psutil.Process()
    sockets = [
        (process.name(), one.laddr.ip)
        for process in [me, *me.children(recursive=True)]
        for one in process.net_connections(kind="inet")
        if one.status == psutil.CONN_LISTEN
    ]
    (node,) = ray.nodes()
    path = Path(node["RayletSocketName"]).parent
    modes = [folder.stat().st_mode & 0o077 for folder in [path, *path.parents]]
    print(json.dumps({"sockets": sockets, "dashboard": ray.worker.get_dashboard_url(), "closed": 0 in modes[:4]}))
    # References to Ray's objects that another thread collects while Ray shuts down would end the process.
    knots = [Knot() for _ in range(3_000)]
    gc.set_threshold(10**9)  # garbage is collected by the thread alone
    threading.Thread(target=collect, daemon=True).start()
    time.sleep(0.05)
print("left")
"""


@pytest.mark.integration
def test_a_local_ray_listens_on_loopback_only_leaves_no_token_and_is_left_while_a_thread_collects_garbage(
    tmp_path: Path,
) -> None:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("RAY_")}
    environment["HOME"] = str(tmp_path)
    command = [sys.executable, "-c", _LAUNCH]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *_, line, left = done.stdout.splitlines()
    assert left == "left"
    said = json.loads(line)
    assert {name for name, _ in said["sockets"]} >= {"gcs_server", "raylet"}
    assert {address.removeprefix("::ffff:") for _, address in said["sockets"]} == {"127.0.0.1"}
    assert not said["dashboard"]
    assert said["closed"], "other users of the machine reach Ray's sockets"
    assert not (tmp_path / ".ray" / "auth_token").exists()


@pytest.mark.parametrize("address", [None, "10.0.0.1:6379"])
def test_a_launch_that_ends_while_it_hangs_withdraws_first(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else the same command, started on another machine, would be refused for a minute."""
    done: list[object] = []
    monkeypatch.setattr(ray_session, "restart_command", lambda error: done.append("restart"))
    monkeypatch.setattr(ray_session, "end_process", lambda said, status: done.append(status))
    session = RaySession(address, Resources(cpus=1, gpus=0), lambda: done.append("withdrawn"))
    session.watch = SimpleNamespace(lost="Ray's processes have ended")  # type: ignore[assignment]
    session._node = None if address else SimpleNamespace(end=lambda: done.append("node"))  # type: ignore[assignment]
    session._leave_stuck()
    assert done == (["node", "withdrawn", "restart", 75] if address is None else ["withdrawn", 75])


@pytest.mark.parametrize("is_done", [False, True])
def test_a_restart_asks_for_the_same_but_what_is_done(is_done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "goal_sweep.runners.cli", "launch", "s.yaml", "--force"])
    monkeypatch.setattr(os, "execv", lambda program, words: called.append(words[1:]))
    monkeypatch.delenv("GOAL_SWEEP_RELAUNCHES", raising=False)
    if is_done:
        ray_session.not_on_restart("--force")
    restart: Callable[[Exception], object] = ray_session.restart_command  # returns where `execv` does
    restart(RuntimeError("Ray has ended"))
    assert called == [["-m", "goal_sweep.runners.cli", "launch", "s.yaml", *([] if is_done else ["--force"])]]
    monkeypatch.setenv("GOAL_SWEEP_RELAUNCHES", str(ray_session.MAX_RESTARTS))
    with pytest.raises(RuntimeError, match="Ray has ended"):
        ray_session.restart_command(RuntimeError("Ray has ended"))


def test_what_does_not_fit_this_machine_is_said_with_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2, "GPU": 0}')
    check_here(Resources(cpus=2, gpus=0))
    with pytest.raises(DeviceError) as refused:
        check_here(Resources(cpus=8, gpus=1))
    assert "a unit needs 8 CPU and 1 GPU (resources.*), but this machine has 2 CPU and 0 GPU" in str(refused.value)
    assert "--set resources.gpus=0 --set resources.cpus=2 fits it" in str(refused.value)
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 8, "GPU": 1}')
    check_here(Resources(cpus=8, gpus=1, accelerator="A100"))  # only Ray finds out the kind of a GPU


def test_what_does_not_fit_this_machine_is_said_before_ray_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session.RaySession, "_start", lambda self: pytest.fail("Ray was started"))
    with (
        pytest.raises(DeviceError, match=r"resources\.cpus=") as refused,
        RaySession(None, Resources(cpus=9999, gpus=0)),
    ):
        pass
    assert "9999 CPU" in str(refused.value)


_FAIL = """
import psutil, sys
from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.runners.execution.capacity import Resources
from goal_sweep.runners.execution.session.session import RaySession

try:
    with RaySession(None, Resources(cpus=1, gpus=0)):
        sys.exit("it started")
except UnfinishedError as error:
    print(error.status, "does not start" in str(error), len(psutil.Process().children(recursive=True)))
"""


@pytest.mark.integration
def test_a_ray_that_does_not_start_leaves_no_process() -> None:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("RAY_")}
    environment |= {"RAY_OVERRIDE_RESOURCES": "no json"}
    done = subprocess.run(
        [sys.executable, "-c", _FAIL], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "75 True 0\n", done.stderr
