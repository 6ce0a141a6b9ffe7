"""Faults as sequences: whatever commands and faults follow each other, the store holds what a small model of it says.

Every command runs in a process of its own, so a kill is a real one. `make chaos` runs more and longer sequences.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.launch.remaining import LaunchOptions
from goal_sweep.runners.results import read_results, update_results
from goal_sweep.runners.store.garbage import remove_garbage
from tests.helpers.damage import ERRORS, flip, let_fail
from tests.helpers.forked import exit_status, forked, in_child
from tests.helpers.in_process import counted, launch, sweep_in

DAY_S = 86_400.0
Fault = tuple[str, int]
NO_FAULT = ("none", 0)
FAULTS = st.one_of(st.just(NO_FAULT), st.tuples(st.sampled_from(["kill", "flip", *ERRORS]), st.integers(0, 600)))
TUNED = (
    "stages=[{name: frozen, epochs: 2, lr: 1e-3, batch_size: 24, warmup_epochs: 1}]",
    "tune={space: {objectives.params.tau: {loguniform: [1, 20]}, stages.frozen.lr: {choice: [1e-3, 1e-2]}}, batch: 2}",
)


@functools.cache
def unbroken(overrides: tuple[str, ...]) -> Mapping[str, Any]:
    """The numbers of a launch without a fault, by training."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        assert launch(sweep_in(Path(folder), *overrides), patch).status == 0
        return numbers_of(sweep_in(Path(folder), *overrides))


def numbers_of(sweep: OpenedSweep) -> dict[str, Any]:
    """The numbers of the finished trainings in a sweep's results table, without times."""
    table = read_results(sweep.store, sweep.config.name)
    found = {}
    for row in table.rows() if table is not None else ():
        if row["status"] == "done":
            names = [name for name in row if name.startswith(("test/", "val/", "epochs/", "best_epoch", "ranks"))]
            own = {name: _known(row[name]) for name in names if not name.startswith(("epochs/time", "epochs/system"))}
            found[row["training"]] = {name: value for name, value in own.items() if value is not None}
    return found


def _known(values: Any) -> Any:
    """A list without what was not measured, which a table of more columns fills up; None for nothing."""
    if isinstance(values, list):
        return [value for value in values if not math.isnan(value)] or None
    return values


class Sequences(RuleBasedStateMachine):
    """Commands on one sweep and one store, with faults in them and between them."""

    versions: tuple[tuple[str, ...], ...] = ((),)
    """What overrides the sweep file, first and after each edit."""

    @initialize()
    def begin(self) -> None:
        """Make an empty folder."""
        self.version = 0
        self.numbers: dict[str, Any] = {}
        for overrides in self.versions:
            self.numbers |= unbroken(overrides)
        self.folder = Path(tempfile.mkdtemp(prefix="goal-sweep-sequences-"))
        self.whole: set[str] = set()
        """The model: keys of the finished trainings."""

    def teardown(self) -> None:
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    @property
    def sweep(self) -> OpenedSweep:
        return sweep_in(self.folder, *self.versions[self.version])

    def look(self, lost: int = 0) -> None:
        """Compare what is finished with the model, of which so many trainings may be lost, and its numbers."""
        store, now = self.sweep.store, set()
        for path in (self.folder / "store" / "cells").glob("*/*/result.json"):
            stage, _, key = path.parent.name.rpartition("-")
            with contextlib.suppress(DamagedError):
                store.folder_of(path.parents[1].name, stage, key).result()
                now.add(key)
        assert len(self.whole - now) <= lost, f"lost {self.whole - now}"
        self.whole = now

    def run(self, act: Callable[[pytest.MonkeyPatch], int], fault: Fault = NO_FAULT, clock: float = 0.0) -> Any:
        """Run a command in a process of its own, with a fault, or with a clock that is wrong by so many seconds."""

        def faulty() -> int:
            now = time.time
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(time, "time", lambda: now() + clock)
                patch.setattr(atomic, "RETRY_DELAYS", (0.0,))
                let_fail(patch, *fault)
                return act(patch)

        return in_child(faulty)

    @rule(fault=FAULTS, failed=st.sampled_from(["keep", "retry", "only"]), clock=st.sampled_from([0.0, -DAY_S, DAY_S]))
    def launches(self, fault: Fault, failed: Any, clock: float) -> None:
        """Launch; without a fault all is done then, and the table has the unbroken numbers."""
        options = LaunchOptions(failed=failed)
        status, said = self.run(lambda patch: launch(self.sweep, patch, options).status, fault, clock)
        self.look(lost=fault[0] == "flip")
        if fault == NO_FAULT and failed != "only":
            assert status == 0, said
            found = numbers_of(self.sweep)
            assert found == {key: self.numbers[key] for key in found}
            assert {one.key for one in self.sweep.trainings} == found.keys()

    @rule()
    def launches_again(self) -> None:
        """Launch once more, as people do until all is done."""
        self.launches(NO_FAULT, "keep", 0.0)

    @rule()
    def two_launch_at_once(self) -> None:
        """Both end well, and no training is trained by both."""

        def act() -> None:
            with pytest.MonkeyPatch.context() as patch:
                status = launch(self.sweep, patch).status
                is_done = all(one.state == "done" for one in self.sweep.statuses().values())
                os._exit(status if is_done else 3)

        before = self.attempts()
        both = [forked(act), forked(act)]
        assert [exit_status(one) for one in both] == [0, 0]
        assert all(number - before.get(path, 0) <= 1 for path, number in self.attempts().items())
        self.look()

    def attempts(self) -> dict[Path, int]:
        folders = (self.folder / "store" / "cells").glob("*/*/attempts")
        return {folder: len(list(folder.glob("[0-9]*.json"))) for folder in folders}

    @rule(fault=FAULTS)
    def removes_garbage(self, fault: Fault) -> None:
        """Removing garbage takes nothing that is finished."""
        self.run(lambda patch: len(remove_garbage(self.sweep.store, self.sweep.trainings)) * 0, fault)
        self.look(lost=fault[0] == "flip")

    @rule(fault=FAULTS)
    def updates_the_table(self, fault: Fault) -> None:
        """The results table follows from the trainings, and changes nothing of them."""

        def act(patch: pytest.MonkeyPatch) -> int:
            sweep = self.sweep
            sweep.store.prepare()
            update_results(sweep.store, sweep)
            return 0

        before = self.contents()
        status, said = self.run(act, fault)
        assert status in (0, 2, -signal.SIGKILL), said
        assert fault[0] == "flip" or self.contents() == before
        self.look(lost=fault[0] == "flip")

    def contents(self) -> dict[Path, bytes]:
        paths = (self.folder / "store" / "cells").rglob("*")
        return {path: path.read_bytes() for path in paths if path.is_file()}

    @rule(which=st.integers(0, 10**6), at=st.floats(0, 1))
    def a_bit_flips(self, which: int, at: float) -> None:
        """Any file of the store is damaged: at most one training is not finished any more."""
        if paths := sorted(path for path in (self.folder / "store").rglob("*") if path.is_file()):
            flip(paths[which % len(paths)], at)
        self.look(lost=1)

    @rule()
    def edits_the_sweep(self) -> None:
        """Edit the sweep file; what both versions ask for stays finished."""
        self.version = min(self.version + 1, len(self.versions) - 1)
        self.look()

    @invariant()
    def nobody_is_charged(self) -> None:
        """No fault of a disk, a process or a clock is a training's own."""
        assert not hasattr(self, "folder") or counted(self.sweep) == []


class TunedSequences(Sequences):
    """The same on a sweep that tunes, whose budget is raised once."""

    versions = ((*TUNED, "tune.budget=2"), (*TUNED, "tune.budget=4"))


def run_sequences(machine: type[Sequences], examples: int, steps: int, *, derandomize: bool) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    how = settings(
        max_examples=examples, stateful_step_count=steps, derandomize=derandomize, deadline=None, database=None,
        suppress_health_check=checks, print_blob=True,
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.slow
def test_a_few_sequences() -> None:
    run_sequences(Sequences, examples=2, steps=5, derandomize=True)
    run_sequences(TunedSequences, examples=1, steps=5, derandomize=True)


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("machine", [Sequences, TunedSequences])
def test_many_sequences(machine: type[Sequences]) -> None:
    """SEQUENCES says how many; ``--hypothesis-seed`` which."""
    run_sequences(machine, examples=int(os.environ.get("SEQUENCES", "100")), steps=15, derandomize=False)
