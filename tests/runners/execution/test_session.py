"""The Ray that a local launch starts: open to nobody else, patient, and gone when it is left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

pytestmark = pytest.mark.integration
_LAUNCH = """
import gc, json, os, psutil, threading, time
from pathlib import Path
from goal_sweep.runners.execution.session import Resources
from goal_sweep.runners.execution.session import RaySession

class Knot:
    def __init__(self):
        self.me, self.ref = self, ray.put(1)

def collect():
    while knots:
        time.sleep(0.0005)
        knots.pop()
        if gc.isenabled():
            gc.collect()

with RaySession(None, Resources(cpus=1, gpus=0), 300):
    import ray

    ray.get(ray.remote(lambda: os.getpid()).remote())  # so that there is a worker
    me = psutil.Process()
    children = me.children(recursive=True)
    sockets = [
        (process.name(), one.laddr.ip)
        for process in [me, *children]
        for one in process.net_connections(kind="inet")
        if one.status == psutil.CONN_LISTEN
    ]
    (node,) = ray.nodes()
    path = Path(node["RayletSocketName"]).parent
    own = os.environ["RAY_TMPDIR"]
    modes = [folder.stat().st_mode & 0o077 for folder in [path, *path.parents]]
    print(json.dumps({"sockets": sockets, "dashboard": ray.worker.get_dashboard_url(), "closed": 0 in modes[:4]}))
    # References to Ray's objects that another thread collects while Ray shuts down would end the process.
    knots = [Knot() for _ in range(3_000)]
    gc.set_threshold(10**9)  # garbage is collected by the thread alone
    threading.Thread(target=collect, daemon=True).start()
    time.sleep(0.05)
print("left", len(psutil.wait_procs(children, timeout=60)[1]) + os.path.exists(own))
"""


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("RAY_")} | variables
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.exhaustive
def test_a_local_ray_listens_on_loopback_only_and_leaves_no_token_and_no_process(tmp_path: Path) -> None:
    """Even if a thread collects garbage while it is left."""
    done = run(_LAUNCH, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    *_, line, left = done.stdout.splitlines()
    assert left == "left 0"
    said = json.loads(line)
    assert {name for name, _ in said["sockets"]} >= {"gcs_server", "raylet"}
    assert {address.removeprefix("::ffff:") for _, address in said["sockets"]} == {"127.0.0.1"}
    assert not said["dashboard"]
    assert said["closed"], "other users of the machine reach Ray's sockets"
    assert not (tmp_path / ".ray" / "auth_token").exists()


_SUSPENDED = """
import psutil, threading, time
from goal_sweep.runners.execution.session import Resources
from goal_sweep.runners.execution.session import RaySession

def suspend(seconds):
    while not (found := [one for one in psutil.Process().children(recursive=True) if one.name() == "raylet"]):
        time.sleep(0.05)
    for act in ("suspend", "resume"):
        for one in found:
            getattr(one, act)()
        time.sleep(seconds if act == "suspend" else 0)

starting = threading.Thread(target=suspend, args=(40,), daemon=True)
starting.start()
with RaySession(None, Resources(cpus=1, gpus=0), 300) as session:
    starting.join()
    import ray

    suspend(80)
    print(ray.get(ray.remote(lambda: "works").remote()), len(session.machines()))
"""


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_a_ray_that_is_suspended_while_it_starts_and_afterwards_is_waited_for() -> None:
    """Ray gives a node 30 s to start, and takes one for dead that is silent for a minute."""
    done = run(_SUSPENDED)
    assert done.stdout == "works 1\n", done.stderr
