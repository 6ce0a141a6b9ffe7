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
from goal_sweep.runners.execution.session.session import RaySession

from goal_sweep.goal_core.basics.errors import DeviceError
from goal_sweep.runners.execution.capacity import Resources, check_here
from goal_sweep.runners.execution.session import session as ray_session
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
    monkeypatch.setattr(ray_session, "start_again", lambda error: done.append("restart"))
    monkeypatch.setattr(ray_session, "end_process", lambda said, status: done.append(status))
    session = RaySession(address, Resources(cpus=1, gpus=0), lambda: done.append("withdrawn"))
    session.watch = SimpleNamespace(lost="Ray's processes have ended")  # type: ignore[assignment]
    session._node = None if address else SimpleNamespace(end=lambda: done.append("node"))  # type: ignore[assignment]
    session._leave_stuck()
    assert done == (["node", "withdrawn", "restart", 75] if address is None else ["withdrawn", 75])


def local_session(monkeypatch: pytest.MonkeyPatch, join: Callable[..., None]) -> tuple[list[object], RaySession]:
    """A session whose Ray is up at once. Returns what happens, and the session."""
    happened: list[object] = []
    node = SimpleNamespace(is_running=lambda: True, end=lambda: happened.append("ended"))
    watch = SimpleNamespace(start=lambda: None, stop=lambda: None, lost="")
    monkeypatch.setattr(os, "environ", {key: text for key, text in os.environ.items() if not key.startswith("RAY_")})

    def start(self: RaySession) -> tuple[str, object]:
        self._node = node  # type: ignore[assignment]
        return "127.0.0.1:1", node

    def watching(running: object, head: str | None, stuck: object) -> SimpleNamespace:
        happened.append(head)
        return watch

    monkeypatch.setattr(RaySession, "_start", start)
    monkeypatch.setattr(RaySession, "_join", join)
    monkeypatch.setattr(RaySession, "_check_fit", lambda self, machines: None)
    monkeypatch.setattr(RaySession, "machines", lambda self: [])
    monkeypatch.setattr(ray_session, "RayWatch", watching)
    return happened, RaySession(None, Resources(cpus=1, gpus=0))


def test_of_a_local_ray_only_the_end_of_a_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    happened, session = local_session(monkeypatch, lambda self, address: None)
    with session:
        assert set(happened) == {None}  # nobody is asked whether it answers
    for name in ("health_check_initial_delay", "health_check_timeout", "grpc_keepalive_timeout"):
        assert int(os.environ[f"RAY_{name}_ms"]) >= 3_600_000
    assert int(os.environ["RAY_gcs_rpc_server_reconnect_timeout_s"]) >= 3600


def test_a_ray_that_cannot_be_joined_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: RaySession, address: str) -> None:
        raise ray_session.RayLostError("cannot be joined")

    happened, session = local_session(monkeypatch, refuse)
    with pytest.raises(ray_session.RayLostError), session:
        pass
    assert happened[-1] == "ended"


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


_SUSPENDED = """
import contextlib, psutil, threading, time
from goal_sweep.runners.execution.capacity import Resources
from goal_sweep.runners.execution.session.session import RaySession

def suspend(seconds):
    while not (found := [one for one in psutil.Process().children(recursive=True) if one.name() == "raylet"]):
        time.sleep(0.05)
    for act in ("suspend", "resume"):
        for one in found:
            getattr(one, act)()
        time.sleep(seconds if act == "suspend" else 0)

starting = threading.Thread(target=suspend, args=(40,), daemon=True)
starting.start()
with RaySession(None, Resources(cpus=1, gpus=0)) as session:
    starting.join()
    import ray

    suspend(80)
    print(ray.get(ray.remote(lambda: "works").remote()), repr(session.watch.lost))
"""


@pytest.mark.integration
@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_a_ray_that_is_suspended_while_it_starts_and_afterwards_is_waited_for() -> None:
    """Ray gives a node 30 s to start, and takes one for dead that is silent for a minute."""
    environment = {key: text for key, text in os.environ.items() if not key.startswith("RAY_")}
    command = [sys.executable, "-c", _SUSPENDED]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "works ''\n", done.stderr
