"""One node of a Slurm job, with a program in place of Ray."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.errors import GoalError, UnfinishedError
from goal_sweep.runners.cluster import slurm_node
from goal_sweep.runners.cluster.slurm_node import Node, main, wait_for_address, wait_for_folder, wait_for_nodes
from goal_sweep.runners.execution.session import node as ray_node
from tests.helpers.ray_nodes import A_RAYLET
from tests.helpers.until import until

RAY = """
import json, os, socket, sys, time
words = sys.argv[1:]
options = dict(word[2:].split("=", 1) for word in words if "=" in word)
if "port" in options:
    server = socket.create_server(("127.0.0.1", int(options["port"])))
log = os.path.join(options["temp-dir"], "session_latest", "logs")
os.makedirs(log)
open(os.path.join(log, "raylet.err"), "w").write("why it ended\\n")
kind = "head" if "--head" in words else "worker"
open(os.path.join({told!r}, kind), "w").write(json.dumps([words, dict(os.environ)]))
{raylet}
print("Ray runtime started.", flush=True)
{then}
"""


class Here:
    """A session and what the nodes of this test were started with."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session, self.told, self._monkeypatch = tmp_path / "run-1.abcdef", tmp_path / "told", monkeypatch
        self.session.mkdir()
        self.told.mkdir()
        self.ray()
        monkeypatch.setenv("GOAL_SWEEP_NETWORK", "lo")
        monkeypatch.setattr(slurm_node, "_POLL_S", 0.02)
        monkeypatch.setenv("SLURM_JOB_ID", str(os.getpid()))
        monkeypatch.setenv("SLURM_CPUS_ON_NODE", "3")
        monkeypatch.setenv("GOAL_SWEEP_GPUS", "2")

    def ray(self, then: str = "time.sleep(300)") -> None:
        """What stands for Ray does once it is up."""
        self._monkeypatch.setattr(ray_node, "_START", RAY.format(told=str(self.told), raylet=A_RAYLET, then=then))

    def run(self, part: str, ready: Callable[[], object]) -> int:
        """Run a part until something holds, then end it as the job does."""

        def end() -> None:
            until(ready)
            os.kill(os.getpid(), signal.SIGUSR2)

        thread = threading.Thread(target=end)
        thread.start()
        node = Node(self.session)
        try:
            return node.run(getattr(node, part))
        finally:
            thread.join()

    def has(self, name: str) -> bool:
        return (self.session / name).exists()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(tmp_path, monkeypatch)


def test_a_head_writes_its_address_and_ends_when_it_is_asked_to(here: Here) -> None:
    assert here.run("head", lambda: here.has("address")) == 0
    words, environment = map(str, json.loads((here.told / "head").read_text()))
    assert "'--num-cpus=3', '--num-gpus=2'" in words
    token = here.session / "token"
    assert (len(token.read_text()), stat.S_IMODE(token.stat().st_mode)) == (64, 0o600)
    assert token.read_text() not in words + environment
    assert f"'RAY_AUTH_TOKEN_PATH': '{token}'" in environment
    assert wait_for_address(here.session).startswith("127.0.0.1:")
    assert not list(Path("/tmp").glob(f"goal-sweep-{os.getpid()}-*"))


def test_a_worker_joins_the_head_and_says_so(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "4")
    (here.session / "address").write_text("10.0.0.1:20001")
    assert here.run("worker", lambda: here.has("joined-4")) == 0
    words = json.loads((here.told / "worker").read_text())[0]
    assert {"--address=10.0.0.1:20001", "--node-ip-address=127.0.0.1"} <= set(words)


@pytest.mark.parametrize(("network", "status"), [("lo", 0), ("127.0.0.0/8", 0), ("ib7", 2), ("203.0.113.0/24", 2)])
def test_a_node_without_an_address_in_the_network_is_no_node_of_the_job(
    network: str, status: int, here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOAL_SWEEP_NETWORK", network)
    assert main(["--session", str(here.session), "--nodes", "2", "arrive"]) == status
    said = capsys.readouterr().err
    assert (said == "") if status == 0 else ("has no IPv4 address there; it has " in said and "lo 127.0.0.1" in said)
    assert main(["--session", str(here.session), "arrive"]) == 0  # alone, it speaks to no other


def test_a_head_that_does_not_start_says_why_to_all_nodes(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_node, "_START", "raise SystemExit('no space left on device')")
    node = Node(here.session)
    assert node.run(node.head) == 75
    assert "no space left on device" in capsys.readouterr().err
    with pytest.raises(UnfinishedError, match="no space left on device"):
        wait_for_address(here.session)


def test_a_ray_that_ends_leaves_the_end_of_its_logs_in_the_job_s(
    here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    here.ray(f"while not os.path.exists({str(here.session / 'address')!r}): time.sleep(0.05)\nprint('it broke')")
    node = Node(here.session)
    assert node.run(node.head) == 75
    said = capsys.readouterr().err
    assert f"Ray's processes on {socket.gethostname()} have ended: Ray runtime started. | it broke" in said
    assert "raylet.err | why it ended" in said


ALONE = "; going on without the others"


@pytest.mark.parametrize(
    ("files", "missing", "status", "said"),
    [
        (("joined-1", "joined-0"), "give-up", 0, "goal-sweep: 3 of 3 nodes joined\n"),
        (("joined-1",), "go-on", 0, f"goal-sweep: 2 of 3 nodes joined within 0 s{ALONE}\n"),
        (("joined-1",), "give-up", 75, "error: 2 of 3 nodes joined within 0 s; cluster.slurm.missing_nodes is give-up"),
        (("joined-1", "lost-0"), "go-on", 0, f"goal-sweep: 2 of 3 nodes joined, Ray has ended on 1{ALONE}\n"),
        (("joined-1", "lost-0"), "wait", 75, "error: 2 of 3 nodes joined, Ray has ended on 1; cluster.slurm.missing_n"),
        (("joined-1", "failed"), "wait", 75, "error: the head's reason"),
    ],
)
def test_what_happens_without_some_nodes_is_chosen_and_said(
    files: tuple[str, ...],
    missing: str,
    status: int,
    said: str,
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(slurm_node, "_JOIN_S", 0.0)
    for name in ("address", *files):
        (here.session / name).write_text("the head's reason")
    words = ["--session", str(here.session), "--nodes", "3", "--missing-nodes", missing, "address"]
    assert main(words) == status
    assert capsys.readouterr().err.startswith(said)


def test_nodes_that_are_late_are_waited_for(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slurm_node, "_JOIN_S", 0.0)
    (here.session / "address").touch()
    threading.Timer(0.3, (here.session / "joined-0").touch).start()
    wait_for_nodes(here.session, 2, "wait")
    said = ["1 of 2 nodes joined within 0 s; waiting for the others", "2 of 2 nodes joined"]
    assert capsys.readouterr().err.splitlines() == [f"goal-sweep: {one}" for one in said]


def test_a_node_that_is_asked_to_end_while_it_starts_has_not_failed(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_node, "_START", "import os, signal; os.kill(os.getppid(), signal.SIGUSR2)")
    (here.session / "address").write_text("10.0.0.1:20001")
    node = Node(here.session)
    assert node.run(node.worker) == 0
    assert capsys.readouterr().err == ""
    assert not here.has("lost-0")


def test_a_worker_whose_ray_ends_is_counted_as_lost(here: Here) -> None:
    here.ray(f"while not os.path.exists({str(here.session / 'address')!r}): time.sleep(0.05)\nprint('it broke')")
    (here.session / "address").write_text("10.0.0.1:20001")
    node = Node(here.session)
    assert node.run(node.worker) == 75
    assert "it broke" in (here.session / "lost-0").read_text()


def test_a_folder_of_another_user_is_refused(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("/tmp") / f"goal-sweep-{os.getpid()}-{here.session.name[-6:]}"
    folder.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    try:
        with pytest.raises(GoalError, match="belongs to another user"):
            Node(here.session)
    finally:
        folder.rmdir()


@pytest.mark.parametrize("part", ["arrive", "address"])
def test_a_node_that_does_not_see_the_store_says_so_in_one_line(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slurm_node, "_SEE_S", 0.1)
    assert main(["--session", "/not/here/run-1.abcdef", part]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {socket.gethostname()} does not see /not/here/run-1.abcdef; ")
    assert said.count("\n") == 1
    assert main(["--session", "/tmp", "arrive"]) == 0


def test_a_folder_that_appears_late_is_waited_for(tmp_path: Path) -> None:
    threading.Timer(0.3, (tmp_path / "late").mkdir).start()
    wait_for_folder(tmp_path / "late")


def test_a_session_that_goes_away_ends_the_wait_for_its_head(tmp_path: Path) -> None:
    with pytest.raises(UnfinishedError, match=r"no longer sees .*/gone"):
        wait_for_address(tmp_path / "gone")
