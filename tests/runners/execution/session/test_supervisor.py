"""A launch in its child process, ended in every way in which one can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.helpers.paths import ROOT

_BEGIN = """
import os, signal, subprocess, sys, time
from pathlib import Path
from goal_sweep.runners.execution.session import supervisor

def stop(number, frame):
    with open("signals", "a") as file:
        file.write(f"{number} ")
    supervisor.will_end(75)
    os._exit(75)

signal.signal(signal.SIGTERM, stop)
supervisor.supervise()
with open("starts", "a") as file:
    file.write(f"{os.getpid()} {' '.join(sys.argv[1:])}\\n")
"""


def start(folder: Path, launch: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"{_BEGIN}{launch}", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_of(folder: Path, launch: str, *words: str) -> tuple[int, str, list[str]]:
    """The exit status of a launch, what it said, and the words of each of its starts."""
    process = start(folder, launch, *words)
    said, complained = process.communicate(timeout=120)
    starts = [line.partition(" ")[2] for line in (folder / "starts").read_text().splitlines()]
    return process.returncode, said + complained, starts


def pids(folder: Path, number: int) -> list[int]:
    """The processes of the starts so far, once there are so many."""
    deadline = time.monotonic() + 120
    while True:
        path = folder / "starts"
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= number:
            return [int(line.split()[0]) for line in lines]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("status", [0, 1, 2, 75, 130])
def test_a_launch_that_ends_by_itself_ends_with_its_status(status: int, tmp_path: Path) -> None:
    launch = f"supervisor.ray_is_ours(); supervisor.will_end({status}); sys.exit({status})"
    assert end_of(tmp_path, launch) == (status, "", [""])


def test_what_ray_does_after_the_end_does_not_change_the_status(tmp_path: Path) -> None:
    assert end_of(tmp_path, "supervisor.will_end(0); os._exit(1)") == (0, "", [""])


@pytest.mark.parametrize("crash", ["os._exit(1)", "os.abort()"])
def test_a_launch_that_its_own_ray_ends_starts_again_without_what_is_done(crash: str, tmp_path: Path) -> None:
    launch = f"""
supervisor.ray_is_ours()
if len(Path("starts").read_text().splitlines()) == 1:
    supervisor.force_is_done()
    {crash}
supervisor.will_end(0)
"""
    status, said, starts = end_of(tmp_path, launch, "launch", "--force")
    assert (status, said) == (0, "Ray has ended this launch; starting again\n")
    assert starts == ["launch --force", "launch"]


@pytest.mark.parametrize(
    "launch", ["os._exit(1)", "supervisor.start_again(RuntimeError('Ray has ended'))"], ids=["ended", "by itself"]
)
def test_a_launch_starts_again_three_times_at_most(launch: str, tmp_path: Path) -> None:
    status, said, starts = end_of(tmp_path, f"supervisor.ray_is_ours(); {launch}")
    assert len(starts) == 4
    assert said.count("starting again") == 3
    assert status == 75


def test_an_end_that_nobody_can_explain_is_no_success_and_no_restart(tmp_path: Path) -> None:
    status, said, starts = end_of(tmp_path, "os._exit(0)")
    assert (status, len(starts)) == (75, 1)
    assert said.startswith("error: ")


def test_a_launch_that_is_killed_is_not_started_again_and_leaves_nothing(tmp_path: Path) -> None:
    launch = """
supervisor.ray_is_ours()
print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    status, said, starts = end_of(tmp_path, launch)
    left, error = said.splitlines()
    assert (status, len(starts)) == (128 + signal.SIGKILL, 1)
    assert "SIGKILL" in error
    assert not psutil.pid_exists(int(left))


def test_a_signal_reaches_the_launch_and_none_starts_again(tmp_path: Path) -> None:
    process = start(tmp_path, "time.sleep(600)")
    pids(tmp_path, 1)
    process.terminate()
    assert process.wait(timeout=120) == 75
    assert (tmp_path / "signals").read_text() == f"{signal.SIGTERM.value} "


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends it")
def test_a_launch_dies_with_its_supervisor(tmp_path: Path) -> None:
    process = start(tmp_path, "time.sleep(600)")
    (child,) = pids(tmp_path, 1)
    process.kill()
    process.wait(timeout=120)
    deadline = time.monotonic() + 120
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
