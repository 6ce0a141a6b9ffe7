"""A launch as a process: signals in its first moment, and output that nobody reads."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from goal_sweep.runners.cli.__main__ import LastingOutput
from goal_sweep.runners.cli.app import run
from tests.helpers.paths import ROOT
from tests.helpers.product import run_by_every_process

WHILE_LOADING = """
import os, sys

class Loading:
    def find_spec(self, name, *rest):
        if name == "goal_sweep.runners.cli.app":
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Loading())
"""
LAUNCH = [sys.executable, "-m", "goal_sweep.runners.cli", "launch", "quickstart"]


BREAKING = """
import sys

class Breaking:
    def find_spec(self, name, *rest):
        if name == "goal_sweep.runners.launch.launch":
            raise BrokenPipeError(32, "Broken pipe")

sys.meta_path.insert(0, Breaking())
"""


def test_a_pipe_that_breaks_in_a_launch_is_said_and_the_launch_is_unfinished(tmp_path: Path) -> None:
    """The library of the command line takes a broken pipe for the output, and would end without a word."""
    environment = run_by_every_process(tmp_path / "site", BREAKING)
    ended = subprocess.run(LAUNCH, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 75
    assert ended.stderr.count("a pipe of this launch broke (") == 1
    assert ended.stderr.endswith("the same command continues\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_command_line_loads_ends_a_launch_in_one_line(tmp_path: Path, number: signal.Signals):
    environment = run_by_every_process(tmp_path / "site", WHILE_LOADING.format(number=int(number)))
    ended = subprocess.run(LAUNCH, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == (130 if number == signal.SIGINT else 75)
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


def test_output_goes_on_when_its_disk_is_full() -> None:
    with open("/dev/full", "w") as stream:
        print("lost", file=LastingOutput.of(stream), flush=True)


def test_a_command_without_standard_files_opens_no_others_in_their_place() -> None:
    script = (
        "import os, sys; from goal_sweep.runners.cli.__main__ import open_closed as act; act(); file = open(__file__); "
        "print(1, flush=True); os.write(2, b'x'); sys.exit(0 if file.fileno() > 2 and sys.stderr else 3)"
    ).replace("__file__", repr(__file__))
    command = 'exec "$@" <&- >&- 2>&-'
    assert subprocess.run(["bash", "-c", command, "", sys.executable, "-c", script], timeout=60).returncode == 0


LACKING = {
    "a folder": ("os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')", "the current folder is gone"),
    "an extra": ("sys.modules['typer'] = None", "the command line needs typer: pip install 'goal-sweep[sweep]'"),
}


@pytest.mark.parametrize("what", LACKING)
def test_without_what_it_needs_the_command_line_ends_in_one_line(what: str, tmp_path: Path) -> None:
    act, said = LACKING[what]
    script = f"import os, sys; {act}; from goal_sweep.runners.cli.__main__ import main; main()"
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=path, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert said in ended.stderr


def test_installing_the_completion_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    assert run(["--install-completion"]) == 0
    assert "goal-sweep" in (tmp_path / ".bashrc").read_text()


def test_a_command_whose_reader_has_left_does_not_end_as_if_cells_had_failed() -> None:
    theirs, ours = os.pipe()
    os.close(theirs)
    command = [sys.executable, "-m", "goal_sweep.runners.cli", "objectives"]
    ended = subprocess.run(command, cwd=ROOT, stdout=ours, stderr=subprocess.PIPE, text=True, check=False)
    os.close(ours)
    assert (ended.returncode, ended.stderr) == (141, "")


NOBODY_READS = """
import sys, types
from goal_sweep.runners.launch.signals import own_status

app = sys.modules["goal_sweep.runners.cli.app"] = types.ModuleType("app")

def train():
    for _ in range(3):
        print("a line", flush=True)
    sys.exit(own_status(7))

app.main = train
"""


@pytest.mark.parametrize("to", [os.pipe, os.openpty], ids=["head -1", "closed terminal"])
def test_a_launch_trains_to_its_end_whoever_reads(tmp_path: Path, to: Callable[[], tuple[int, int]]) -> None:
    environment = run_by_every_process(tmp_path / "site", NOBODY_READS)
    theirs, ours = to()
    os.close(theirs)
    ended = subprocess.run(
        LAUNCH, cwd=tmp_path, env=environment, stdout=ours, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(ours)
    assert (ended.returncode, ended.stderr) == (7, "")
