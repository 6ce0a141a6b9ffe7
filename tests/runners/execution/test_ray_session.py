"""The Ray that a local launch starts is open to nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runners.execution import ray_session
from runners.execution.capacity import Resources
from runners.execution.ray_session import RaySession
from tests.helpers.paths import ROOT

_LAUNCH = """
import json, os, psutil
from pathlib import Path
from runners.execution.capacity import Resources
from runners.execution.ray_tune import RayUnits

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
    path = Path(ray._private.worker._global_node.get_sockets_dir_path())
    modes = [folder.stat().st_mode & 0o077 for folder in [path, *path.parents]]
    print(json.dumps({"sockets": sockets, "dashboard": ray.worker.get_dashboard_url(), "closed": 0 in modes[:4]}))
"""

_LEAVE = """
import gc, threading, time
from runners.execution.capacity import Resources
from runners.execution.ray_session import RaySession

class Knot:
    def __init__(self):
        self.me, self.ref = self, ray.put(1)

def collect():
    while knots:
        time.sleep(0.0005)
        knots.pop()
        if gc.isenabled():
            gc.collect()

with RaySession(None, Resources(cpus=1, gpus=0)):
    import ray

    knots = [Knot() for _ in range(3_000)]
    gc.set_threshold(10**9)  # garbage is collected by the thread alone
    threading.Thread(target=collect, daemon=True).start()
    time.sleep(0.05)
print("left")
"""


def start_ray(home: Path) -> dict[str, list[tuple[str, str]]]:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("RAY_")} | {"HOME": str(home)}
    command = [sys.executable, "-c", _LAUNCH]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, list[tuple[str, str]]] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.integration
def test_a_local_ray_listens_on_loopback_only_and_leaves_no_token(tmp_path: Path) -> None:
    said = start_ray(tmp_path)
    assert {name for name, _ in said["sockets"]} >= {"gcs_server", "raylet"}
    assert {address.removeprefix("::ffff:") for _, address in said["sockets"]} == {"127.0.0.1"}
    assert not said["dashboard"]
    assert said["closed"], "other users of the machine reach Ray's sockets"
    assert not (tmp_path / ".ray" / "auth_token").exists()


@pytest.mark.integration
def test_ray_is_left_while_another_thread_would_collect_garbage() -> None:
    """References to Ray's objects that another thread collects while Ray shuts down would end the process."""
    environment = {key: text for key, text in os.environ.items() if not key.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", _LEAVE], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr


def test_a_token_that_an_earlier_launch_left_is_closed_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("a" * 64)
    token.chmod(0o644)
    mine, other = ray_session._own_token(), ray_session._own_token()  # before Ray starts
    assert mine.keys() == {"RAY_AUTH_TOKEN"}
    assert mine != other
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text() == "a" * 64


@pytest.mark.parametrize("address", [None, "10.0.0.1:6379"])
def test_a_launch_that_ends_while_it_hangs_withdraws_first(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else the same command, started on another machine, would be refused for a minute."""
    done: list[object] = []
    monkeypatch.setattr(ray_session, "end_children", lambda: done.append("children"))
    monkeypatch.setattr(ray_session, "restart_command", lambda error: done.append("restart"))
    monkeypatch.setattr(ray_session, "end_process", lambda said, status: done.append(status))
    session = RaySession(address, Resources(cpus=1, gpus=0), lambda: done.append("withdrawn"))
    session._leave_stuck()
    assert done == (["children", "withdrawn", "restart", 75] if address is None else ["withdrawn", 75])
