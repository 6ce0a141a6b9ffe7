"""One Ray node of a batch job, with a program in place of Ray that notes its signals."""

from __future__ import annotations

import itertools
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from goal_core.basics.errors import GoalError, UnfinishedError
from runners.cluster import arrival, ray_node, ray_ports, ray_process, ray_session
from runners.cluster.ray_ports import is_free, ports
from runners.cluster.ray_process import RayNode, start_command
from runners.cluster.ray_session import run_head, wait_for_address

RAY = """
import signal, socket, subprocess, sys, time
port = int(sys.argv[1])
if port:
    server = socket.create_server(("127.0.0.1", port))
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("Ray runtime started.", flush=True)
time.sleep(60)
"""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def command(session: Path, folder: str, address: str | None, port: int) -> list[str]:
        return [sys.executable, "-c", RAY, str(port)]

    monkeypatch.setattr(ray_process, "start_command", command)
    monkeypatch.setattr(ray_session, "own_address", lambda: "127.0.0.1")
    monkeypatch.setattr(ray_process, "_END_S", 3.0)
    monkeypatch.setattr(sys.modules[__name__], "_OTHERS", set(psutil.Process().children(recursive=True)))
    return tmp_path


_OTHERS: set[psutil.Process] = set()
"""Processes that tests before this one have left, which are none of a node's."""


def children() -> list[psutil.Process]:
    return [process for process in psutil.Process().children(recursive=True) if process not in _OTHERS]


def test_two_jobs_begin_at_different_ports() -> None:
    first = {job: next(ports(job)) for job in range(1000, 1100)}
    assert len(set(first.values())) == 100
    for job in (1, 123456, 2**31):
        tried = list(ports(job))
        assert len(set(tried)) == len(tried) == 20
        assert all(20000 <= port < 32000 for port in tried)


def test_a_port_in_use_is_not_free() -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_the_command_names_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "3")
    monkeypatch.setenv("GOAL_SWEEP_GPUS", "2")
    (tmp_path / "token").write_text("secret")
    head, worker = (start_command(tmp_path, "/tmp/x", address, 20001) for address in (None, "10.0.0.1:20001"))
    assert {"--head", "--port=20001", "--num-cpus=3", "--num-gpus=2", "--block"} <= set(head)
    assert "--address=10.0.0.1:20001" in worker
    assert "secret" not in " ".join([*head, *worker])


def test_a_head_takes_a_free_port_and_ends_alone(session: Path) -> None:
    def end_when_it_answers() -> None:
        while not (session / "address").exists():
            time.sleep(0.05)
        node.ask_to_end()

    node = RayNode(session, "head.log")
    job = next(job for job in itertools.count(7) if all(map(is_free, itertools.islice(ports(job), 2))))
    first, taken = itertools.islice(ports(job), 2)
    with socket.create_server(("", first)):
        threading.Thread(target=end_when_it_answers, daemon=True).start()
        other = subprocess.Popen(["sleep", "60"])
        try:
            assert run_head(node, session, "/tmp/x", job) == 0
        finally:
            left = children()
            other.kill()
            other.wait()
    assert (session / "address").read_text() == f"127.0.0.1:{taken}"
    assert [process.pid for process in left] == [other.pid]
    token = session / "token"
    assert (len(token.read_text()), stat.S_IMODE(token.stat().st_mode)) == (64, 0o600)


def test_ray_s_processes_are_given_the_path_of_the_token(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    show = "import os; print(os.environ['RAY_AUTH_MODE'], os.environ['RAY_AUTH_TOKEN_PATH'])"
    monkeypatch.setattr(ray_process, "start_command", lambda *given: [sys.executable, "-c", show])
    node = RayNode(session, "head.log")
    node.start("/tmp/x")
    node.wait()
    assert (session / "head.log").read_text().split() == ["token", str(session / "token")]


def test_ray_does_not_hear_the_signals_with_which_a_job_is_asked_to_save(session: Path) -> None:
    node = RayNode(session, "head.log")
    node.start("/tmp/x")
    try:
        while len(children()) < 2:
            time.sleep(0.05)
        for process in children():
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        assert len(children()) == 2
        assert node.is_running()
    finally:
        node.end()
    assert children() == []


def test_a_head_that_does_not_start_says_why_to_all_nodes(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [sys.executable, "-c", "raise SystemExit('no space left on device')"]
    monkeypatch.setattr(ray_process, "start_command", lambda *arguments: failing)
    monkeypatch.setattr(ray_ports, "_PORT_TRIES", 2)
    assert run_head(RayNode(session, "head.log"), session, "/tmp/x", 7) == 75
    with pytest.raises(UnfinishedError, match="no space left on device"):
        wait_for_address(session)


def test_a_worker_that_loses_ray_is_not_taken_for_ended(session: Path) -> None:
    node = RayNode(session, "worker.log")
    node.start("/tmp/x")
    children()[0].kill()
    assert node.wait() == 1
    node.end()
    for process in children():
        process.kill()


def test_a_folder_of_another_user_is_refused(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("/tmp") / f"goal-sweep-7-{session.name[-6:]}"
    folder.mkdir()
    monkeypatch.setattr(ray_node.os, "geteuid", lambda: 12345)
    try:
        with pytest.raises(GoalError, match="belongs to another user"):
            ray_node._own_folder(session, 7)
    finally:
        folder.rmdir()


@pytest.mark.parametrize("part", ["head", "worker", "address"])
def test_a_node_that_does_not_see_the_store_says_so_in_one_line(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(arrival, "_SEE_S", 0.1)
    monkeypatch.setattr(ray_node, "SAVING", ())
    assert ray_node.main(["--session", "/not/here/run-1.abcdef", part]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {socket.gethostname()} does not see /not/here/run-1.abcdef; ")
    assert said.count("\n") == 1
    assert arrival.main(["/not/here"]) == 2
    assert "does not see /not/here;" in capsys.readouterr().err
    assert arrival.main(["/tmp"]) == 0


def test_a_folder_that_appears_late_is_waited_for(tmp_path: Path) -> None:
    threading.Timer(0.3, (tmp_path / "late").mkdir).start()
    arrival.wait_for_folder(tmp_path / "late")


def test_a_session_that_goes_away_ends_the_wait_for_its_head(tmp_path: Path) -> None:
    with pytest.raises(UnfinishedError, match=r"no longer sees .*/gone: No such file or directory"):
        wait_for_address(tmp_path / "gone")
