"""Signals that stop a launch: noted or raised, once, with their status; and how the running units are waited for."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from goal_sweep.runners.launch.launcher import Launcher
from goal_sweep.runners.launch.remaining.plan import LaunchOptions, LaunchPlan
from goal_sweep.runners.tracking.sync import SweepTracking
from rich.console import Console

from goal_sweep.runners.launch import launcher
from goal_sweep.runners.launch import signals as signals_module
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.launch.signals import StopSignals
from goal_sweep.runners.launch.view.live import LiveView
from goal_sweep.sweeps import pack
from tests.helpers.sweep_cases import opened_in

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


@pytest.fixture
def sweep(tmp_path: Path) -> OpenedSweep:
    return opened_in(tmp_path / "store")


def launcher_of(sweep: OpenedSweep, launch_id: str, signals: StopSignals, said: io.StringIO) -> Launcher:
    options = LaunchOptions()
    plan = LaunchPlan(sweep, options)
    view = LiveView(plan.progress, "s", Console(file=said, width=200), lambda *words: " ".join(words))
    return Launcher(sweep, options, plan, view, SweepTracking(sweep, sweep.store, mirror=False), launch_id, signals)


def test_running_units_are_asked_to_stop_and_waited_for(sweep: OpenedSweep) -> None:
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    said = io.StringIO()
    with sweep.store.heartbeat("s") as heartbeat, StopSignals() as signals, signals.gentle():
        job = sweep.job(unit, heartbeat.id, {})
        launch = launcher_of(sweep, heartbeat.id, signals, said)
        launch.started(job)
        launch.step()
        assert not launch.stopping
        assert not sweep.store.drivers.is_asked_to_stop(heartbeat.id)
        receive(signal.SIGTERM)
        for _ in range(3):
            launch.step()
        assert sweep.store.drivers.is_asked_to_stop(heartbeat.id)
        assert said.getvalue().count("SIGTERM") == 1
        assert not launch.stopping
        launch.ended(job)
        assert launch.stopping


def test_a_unit_that_does_not_end_is_not_waited_for_for_ever(
    sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "SAVE_S", -1.0)
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    with sweep.store.heartbeat("s") as heartbeat, StopSignals() as signals, signals.gentle():
        launch = launcher_of(sweep, heartbeat.id, signals, io.StringIO())
        launch.started(sweep.job(unit, heartbeat.id, {}))
        receive(signal.SIGTERM)
        launch.step()
        assert launch.stopping
