"""The parent of a launch: it starts a launch again that ended without its own word, and passes signals on."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from goal_sweep.runners.launch.signals import MOST_RESTARTS
from tests.helpers.paths import ROOT
from tests.helpers.until import until

_BEGIN = """
import os, signal, sys, time
from pathlib import Path
from goal_sweep.runners.launch import signals

def stop(number, frame):
    with open("signals", "a") as file:
        file.write(f"{number} ")
    os._exit(signals.own_status(75))

signals._RAY_LOOK_S, signals._RAY_DEAD_S = 0.2, 0.5
if not signals.has_parent():
    sys.exit(signals.watch_over([sys.executable, *sys.argv]))
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
signals.end_with_parent()
BEGIN
with open("starts", "a") as file:
    file.write(f"{os.getpid()} {' '.join(sys.argv[1:])}\\n")
def starts():
    return len(Path("starts").read_text().splitlines())
"""


def start(folder: Path, launch: str, *words: str, begin: str = "", **options: Any) -> subprocess.Popen[str]:
    """A launch in a folder: what it does once it has a parent, before and after it has said that it began."""
    (folder / "launch.py").write_text(f"{_BEGIN.replace('BEGIN', begin)}{launch}")
    return subprocess.Popen(
        [sys.executable, "launch.py", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def end_of(folder: Path, launch: str, *words: str) -> tuple[int, str, list[str]]:
    """The exit status of a launch, what it said, and the words of each of its starts."""
    process = start(folder, launch, *words)
    said, complained = process.communicate(timeout=120)
    starts = [line.partition(" ")[2] for line in (folder / "starts").read_text().splitlines()]
    return process.returncode, said + complained, starts


def started(folder: Path) -> int:
    """The process of the first start."""
    path = folder / "starts"
    until(lambda: path.exists() and path.read_text().endswith("\n"), "start")
    return int(path.read_text().split()[0])


@pytest.mark.parametrize("status", [0, 1, 2, 75, 130])
def test_a_launch_that_ends_by_itself_ends_with_its_status(status: int, tmp_path: Path) -> None:
    assert end_of(tmp_path, f"sys.exit(signals.own_status({status}))") == (status, "", [""])


@pytest.mark.parametrize("end", ["os._exit(1)", "os.abort()", "os.kill(os.getpid(), 9)", "os._exit(0)"])
def test_a_launch_that_ends_without_a_word_goes_on(end: str, tmp_path: Path) -> None:
    """Also if it looks like a success, which only the launch itself can know."""
    status, said, starts = end_of(
        tmp_path, f"({end}) if starts() == 1 else sys.exit(signals.own_status(1))", "launch", "x"
    )
    assert (status, starts) == (1, ["launch x"] * 2)
    assert said == "this launch was ended, by Ray or from outside; it goes on\n"


def test_it_goes_on_three_times_and_then_the_same_command_continues(tmp_path: Path) -> None:
    status, said, starts = end_of(tmp_path, "os._exit(1)")
    assert (status, len(starts)) == (75, 1 + MOST_RESTARTS)
    assert said.splitlines()[-1].endswith("the same command continues")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_launch_which_then_is_not_started_again(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, "time.sleep(600)")
    started(tmp_path)
    process.send_signal(number)
    assert process.wait(timeout=120) == 75
    assert (tmp_path / "signals").read_text() == f"{number.value} "
    assert len((tmp_path / "starts").read_text().splitlines()) == 1


def test_a_launch_that_is_killed_after_a_signal_is_not_started_again(tmp_path: Path) -> None:
    process = start(tmp_path, "time.sleep(600)", begin="signal.signal(signal.SIGTERM, lambda *_: os._exit(1))")
    started(tmp_path)
    process.terminate()
    assert process.communicate(timeout=120)[1].endswith("the same command continues\n")
    assert process.returncode == 75
    assert len((tmp_path / "starts").read_text().splitlines()) == 1


def test_a_hangup_that_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    process = start(tmp_path, "time.sleep(600)", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    started(tmp_path)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 75
    assert (tmp_path / "signals").read_text() == f"{signal.SIGTERM.value} "


def test_a_launch_stops_when_its_parent_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path, "time.sleep(600)")
    launch = psutil.Process(started(tmp_path))
    process.kill()
    process.wait(timeout=120)
    psutil.wait_procs([launch], timeout=120)
    assert (tmp_path / "signals").read_text() == f"{signal.SIGTERM.value} "


def test_a_launch_that_waits_for_a_dead_ray_is_started_again(tmp_path: Path) -> None:
    launch = """
if starts() == 1:
    os.symlink(sys.executable, "raylet")
    dead = __import__("subprocess").Popen(["./raylet", "-c", ""])
    time.sleep(600)
sys.exit(signals.own_status(0))
"""
    status, said, starts = end_of(tmp_path, launch, "words")
    assert (status, starts) == (0, ["words"] * 2)
    assert said.count("it goes on") == 1
