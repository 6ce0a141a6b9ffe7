"""Signals that stop a launch: noted or raised, once, with their status; and how the running units are waited for."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from rich.console import Console

from goal_sweep.runners.execution import worker
from goal_sweep.runners.execution.job import UnitJob
from goal_sweep.runners.execution.worker import Send, UnitCallback
from goal_sweep.runners.launch import signals as signals_module
from goal_sweep.runners.launch.signals import StopSignals
from tests.helpers.in_process import OneMachine, counted, launch, results, sweep_in, without_ray
from tests.helpers.launches import goal_sweep_here
from tests.helpers.product import tiny_in

NUMBERS = [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT]


def receive(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_stops_at_once_with_its_status_and_handlers_are_put_back(number: signal.Signals) -> None:
    before = [signal.getsignal(one) for one in NUMBERS]
    with StopSignals() as signals:
        with pytest.raises(KeyboardInterrupt):
            receive(number)
        assert signals.received == number
        assert signals.status == (130 if number == signal.SIGINT else 75)
    assert [signal.getsignal(one) for one in NUMBERS] == before


def test_a_launch_that_a_closed_terminal_should_not_stop_is_not_stopped_by_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with StopSignals() as signals, signals.gentle():
            signals.install()
            receive(signal.SIGHUP)
            assert signals.received is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_where_cells_can_save_the_first_signal_is_noted_and_the_second_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    with StopSignals() as signals, signals.gentle():
        receive(signal.SIGUSR1)
        receive(signal.SIGUSR1)  # the same wish: the sender signalled the process and its group
        assert signals.cause == "stopped by SIGUSR1"
        monkeypatch.setattr(signals_module, "REPEAT_S", 0.0)
        with pytest.raises(KeyboardInterrupt):
            receive(signal.SIGINT)
        assert signals.status == 75  # the first signal decides


def test_handlers_that_a_library_replaced_are_installed_again() -> None:
    with StopSignals() as signals, signals.gentle():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signals.install()
        receive(signal.SIGTERM)
        assert signals.received == signal.SIGTERM


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_while_libraries_are_loaded_ends_the_process_without_an_exception(number: signal.Signals) -> None:
    # As in C++ code that calls Python while it is loaded, and aborts the process if an exception comes out of it.
    script = f"""
import os
from goal_sweep.runners.launch.signals import StopSignals

with StopSignals() as signals:
    with signals.loading():
        try:
            os.kill(os.getpid(), {int(number)})
        except BaseException:
            os.abort()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == (130 if number == signal.SIGINT else 75), ended.stderr
    said = {signal.SIGINT: "interrupted by the user"}.get(number, f"stopped by {number.name}")
    assert ended.stderr == f"{said}: the same command continues\n"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 75), pytest.param(signal.SIGINT, 130, marks=pytest.mark.exhaustive)]
)
def test_a_signal_lets_the_cells_save_and_the_next_launch_ends_with_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    sweep, steps, said = sweep_in(tmp_path), iter(range(10**6)), io.StringIO()
    step = UnitCallback.step

    def signalled(callback: UnitCallback) -> None:
        """Between the first and the second of three epochs of 4 steps."""
        if next(steps) == 3:
            receive(number)
        step(callback)

    with monkeypatch.context() as patch:
        patch.setattr(worker, "STOP_CHECK_S", 0.0)
        patch.setattr(UnitCallback, "step", signalled)
        outcome = launch(sweep, patch, console=Console(file=said, width=300))
    assert outcome.status == status
    assert "the running cells save their state" in said.getvalue()
    assert "the same command continues from the saved states" in said.getvalue()
    for training in sweep.by_stage[0]:
        (attempt,) = sweep.store.folder(training).attempts.all()
        assert (attempt.outcome, attempt.progressed) == ("interrupted", True)
    assert {one.state for one in sweep.statuses().values()} == {"waiting"}
    assert launch(sweep, monkeypatch).status == 0
    assert counted(sweep) == []
    assert all("continues after epoch 1 step" in sweep.store.folder(one).log_text() for one in sweep.by_stage[0])
    unbroken = sweep_in(tmp_path / "unbroken")
    assert launch(unbroken, monkeypatch).status == 0
    assert results(sweep) == results(unbroken)


def test_a_second_signal_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_in(tmp_path)

    def signalled(job: UnitJob, send: Send) -> None:
        sweep.store.folder(sweep.trainings[0]).claim(job.launch)
        receive(signal.SIGTERM)
        receive(signal.SIGTERM)

    monkeypatch.setattr(signals_module, "REPEAT_S", 0.0)
    assert launch(sweep, monkeypatch, train=signalled).status == 75
    (attempt,) = sweep.store.folder(sweep.trainings[0]).attempts.all()
    assert (attempt.outcome, attempt.reason) == ("interrupted", "stopped by SIGTERM")
    assert not list((sweep.store.root / "launches").iterdir())


def test_a_signal_that_ray_turns_into_an_exit_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneMachine, "machines", Mock(side_effect=SystemExit(signal.SIGTERM)))
    without_ray(monkeypatch)
    done = goal_sweep_here(tiny_in(tmp_path / "run"), "launch", "tiny.yaml")
    assert (done.returncode, done.stderr) == (75, "")
    assert done.stdout.splitlines()[-1] == "stopped by SIGTERM: the same command continues"
