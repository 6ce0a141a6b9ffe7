"""The parent of a launch: it says so of a launch that ended without its own word, and passes signals on."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

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
"""
ENDED = "this launch was ended, by Ray or from outside ({}); the same command continues\n"


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


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os._exit(1)", "status 1"),
        ("os.abort()", "signal 6"),
        ("os.kill(os.getpid(), 9)", "signal 9"),
        ("os._exit(0)", "status 0"),
    ],
)
def test_a_launch_that_ends_without_a_word_is_unfinished(end: str, how: str, tmp_path: Path) -> None:
    """Also if it looks like a success, which only the launch itself can know."""
    assert end_of(tmp_path, end, "launch", "x") == (75, ENDED.format(how), ["launch x"])


def test_what_ray_has_written_of_a_launch_that_it_ended_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    logs = f"{tmp_path}/goal-ray-0-PID/ray/session_latest/logs"
    made = f"os.makedirs({logs!r}.replace('PID', str(os.getpid()))); os._exit(1)"
    said = end_of(tmp_path, made)[1].splitlines()
    pid = started(tmp_path)
    assert said[1:] == [f"what Ray says of it, until the next launch, is in {logs.replace('PID', str(pid))}"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_launch(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, "time.sleep(600)")
    started(tmp_path)
    process.send_signal(number)
    assert process.wait(timeout=120) == 75
    assert (tmp_path / "signals").read_text() == f"{number.value} "


def test_a_launch_that_ends_without_a_word_after_a_signal_is_unfinished(tmp_path: Path) -> None:
    process = start(tmp_path, "time.sleep(600)", begin="signal.signal(signal.SIGTERM, lambda *_: os._exit(1))")
    started(tmp_path)
    process.terminate()
    assert process.communicate(timeout=120)[1] == ENDED.format("status 1")
    assert process.returncode == 75


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


def test_a_launch_that_waits_for_a_dead_ray_is_ended(tmp_path: Path) -> None:
    launch = """
os.symlink(sys.executable, "raylet")
dead = __import__("subprocess").Popen(["./raylet", "-c", ""])
time.sleep(600)
"""
    said = f"a process of Ray has ended, so this launch ends\n{ENDED.format('signal 9')}"
    assert end_of(tmp_path, launch, "words") == (75, said, ["words"])
