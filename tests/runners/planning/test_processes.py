"""Work in a process of its own: its answers, its errors, and its end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.errors import DataError, UnfinishedError
from goal_sweep.goal_core.basics.machine import is_taken
from goal_sweep.runners.planning.processes import apart
from tests.helpers.until import until

WAITING = """
import os, sys, time
from goal_sweep.runners.planning.processes import apart

def wait(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    os.replace(path, path + ".done")
    time.sleep(600)

if __name__ == "__main__":
    apart(wait, sys.argv[1])
"""


def refuse(path: Path) -> None:
    raise DataError(f"{path} is missing")


def test_an_answer_or_an_error_comes_from_another_process() -> None:
    assert apart(os.getpid) != os.getpid()
    with pytest.raises(DataError) as caught:
        apart(refuse, Path("a.png"))
    assert str(caught.value) == "a.png is missing"
    assert "in refuse" in "".join(caught.value.__notes__)


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    sys.exit("enough")  # called here, for wandb may have put another function in its place


def test_a_process_that_ends_without_an_answer_is_one_line() -> None:
    with pytest.raises(RuntimeError, match=r"ended without an answer \(exit status 7"):
        apart(os._exit, 7)
    with pytest.raises(UnfinishedError, match=r"ended without an answer \(killed; is there enough memory"):
        apart(kill_itself)
    with pytest.raises(SystemExit, match="enough"):
        apart(leave)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_process_ends_with_its_maker(tmp_path: Path, end: signal.Signals) -> None:
    """Ctrl-C, which reaches both, is the maker's."""
    (script := tmp_path / "waiting.py").write_text(WAITING)
    told = tmp_path / "pid.done"
    words = [sys.executable, str(script), str(tmp_path / "pid")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True) as maker:
        until(told.is_file)
        pid = int(told.read_text())
        assert is_taken(pid)
        (os.killpg if end == signal.SIGINT else os.kill)(maker.pid, end)
        assert maker.communicate(timeout=120)[1].count("KeyboardInterrupt") == (end == signal.SIGINT)
    until(lambda: not is_taken(pid))
