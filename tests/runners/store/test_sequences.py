"""Faults as sequences: whatever commands and faults follow each other, the store holds what a small model of it says.

Every command runs in a process of its own, so a kill is a real one. `make chaos` runs more and longer sequences.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from goal_sweep.runners.launch.remaining.plan import LaunchOptions
from goal_sweep.runners.store.verification import damaged_files
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.results import update_results
from goal_sweep.runners.store.archive import add_results, export_results, opened_archive, plan_import
from goal_sweep.runners.store.garbage import remove_garbage
from goal_sweep.sweeps import Training
from tests.helpers.in_process import launch, results, sweep_in

DAY_S = 86_400.0
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}
NO_FAULT = ("none", 0)
FAULTS = st.one_of(st.just(NO_FAULT), st.tuples(st.sampled_from(["kill", "flip", *ERRORS]), st.integers(0, 600)))


TUNED = (
    "stages=[{name: frozen, epochs: 2, lr: 1e-3, batch_size: 24, warmup_epochs: 1}]",
    "tune={space: {objectives.params.tau: {loguniform: [1, 20]}, stages.frozen.lr: {choice: [1e-3, 1e-2]}}, batch: 2}",
)


@functools.cache
def unbroken(overrides: tuple[str, ...]) -> tuple[dict[Training, Any], bytes]:
    """The numbers of the trainings of a launch without a fault, and an archive of its results."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        assert launch(sweep_in(Path(folder), *overrides), patch).status == 0
        sweep = sweep_in(Path(folder), *overrides)
        export_results(sweep, sweep.store, Path(folder, "results.tar.gz"))
        return numbers_of(sweep, sweep.trainings), Path(folder, "results.tar.gz").read_bytes()


def numbers_of(sweep: OpenedSweep, trainings: Iterable[Training]) -> dict[Training, Any]:
    """The numbers of finished trainings."""
    return {training: results(sweep, [training])[training.name] for training in trainings}


def flip(path: Path, at: float) -> None:
    """Flip a bit of a file. Doing it again does not undo it.

    Args:
        path: the file.
        at: where, as a share of its length.
    """
    content = bytearray(path.read_bytes())
    if content:
        place = int(at * (len(content) - 1))
        content[place] = (content[place] + 16) % 256
        path.write_bytes(bytes(content))


def disturb(patch: pytest.MonkeyPatch, fault: tuple[str, int]) -> None:
    """Let a fault happen at a file operation, counted from 0. A disk that refuses a file refuses it from then on."""
    kind, number = fault
    count, refused = iter(range(10**9)), set[tuple[str, Path]]()

    def hook(name: str, path: Path) -> None:
        here = next(count)
        if kind == "kill" and here == number:
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "flip" and here == number and name == "read" and path.is_file():
            flip(path, 0.5)
        elif kind in ERRORS:
            refused.update([(name, path)] if here == number else [])
            if (name, path) in refused:
                raise OSError(ERRORS[kind], os.strerror(ERRORS[kind]), str(path))

    patch.setattr(atomic, "before_operation", hook)
    patch.setattr(atomic, "RETRY_DELAYS", (0.0,))


def in_child(act: Callable[[pytest.MonkeyPatch], int], fault: tuple[str, int], clock: float = 0.0) -> tuple[int, str]:
    """Run a command in a process of its own.

    Args:
        act: the command; returns its exit status.
        fault: see `disturb`.
        clock: seconds by which this process's clock is wrong.

    Returns:
        The exit status, 2 after an error for the user, negative after a kill; and what it said.
    """
    said = Path(tempfile.mkstemp()[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the tests' threads hold no lock that a child needs
        child = os.fork()
    if not child:
        status = 99
        try:
            now = time.time
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(time, "time", lambda: now() + clock)
                disturb(patch, fault)
                status = act(patch)
        except GoalError as error:
            said.write_text(str(error))
            status = 2
        except BaseException as error:
            said.write_text(repr(error))
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = said.read_text()
    said.unlink()
    assert ended != 99, text
    return ended, text


class Sequences(RuleBasedStateMachine):
    """Commands on one sweep and one store, with faults in them and between them."""

    versions: tuple[tuple[str, ...], ...] = ((),)
    """What overrides the sweep file, first and after each edit."""

    @initialize()
    def begin(self) -> None:
        """Make an empty store."""
        self.version = self.rivals = 0
        self.numbers: dict[Training, Any] = {}
        for overrides in self.versions:
            self.numbers |= unbroken(overrides)[0]
        archived, archive = unbroken(self.versions[0])
        self.archived = {training.key for training in archived}
        self.folder = Path(tempfile.mkdtemp(prefix="goal-sweep-sequences-"))
        (self.folder / "results.tar.gz").write_bytes(archive)
        self.whole: set[str] = set()
        """The model: keys of the trainings that are finished, with every file as it was written."""

    def teardown(self) -> None:
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    @property
    def sweep(self) -> OpenedSweep:
        return sweep_in(self.folder, *self.versions[self.version])

    def look(self) -> set[str]:
        """The trainings that are finished now, with every file as it was written, and their numbers right."""
        sweep = self.sweep
        # A search that must try a candidate again does not ask for the trainings that follow from it until then.
        statuses = sweep.store.status(self.numbers, thorough=True)
        found = numbers_of(sweep, [training for training, status in statuses.items() if status.state == "done"])
        assert found == {training: self.numbers[training] for training in found}
        return {training.key for training in found}

    def look_after(self, fault: tuple[str, int]) -> set[str]:
        """As `look`, where a command has taken nothing; a bit that flipped in it may have, of one training."""
        now = self.look()
        assert len(self.whole - now) <= (fault[0] == "flip"), f"lost {self.whole - now}"
        return now

    @rule(
        fault=FAULTS,
        failed=st.sampled_from(["keep", "retry", "only"]),
        force=st.integers(0, 5).map(lambda number: number == 0),
        clock=st.sampled_from([0.0, 0.0, -DAY_S, 400 * DAY_S]),
    )
    def launches(self, fault: tuple[str, int], failed: Any, force: bool, clock: float) -> None:
        """Launch; without a fault all is done then, or said to have failed because its weights were not imported."""
        options = LaunchOptions(failed="keep" if force else failed, force=force)
        status, said = in_child(lambda patch: launch(self.sweep, patch, options).status, fault, clock)
        now = self.look() if force else self.look_after(fault)
        if status == 0 or fault == NO_FAULT:
            assert status in (0, 1) or (failed == "only" and status == 75), said
            for training, one in self.sweep.statuses().items():
                if one.state != "done" and failed != "only":
                    assert status == 1
                    assert training.before is not None
                    assert self.sweep.store.status([training.before])[training.before].imported
        self.whole = now

    @rule(fault=FAULTS)
    def removes_garbage(self, fault: tuple[str, int]) -> None:
        """Removing garbage takes nothing that is finished."""
        in_child(lambda patch: len(remove_garbage(self.sweep.store, "tiny", self.sweep.trainings)) * 0, fault)
        now = self.look_after(fault)
        assert now <= self.whole
        self.whole = now

    @rule(fault=FAULTS)
    def imports(self, fault: tuple[str, int]) -> None:
        """Import all results: what nobody has begun is finished then."""

        def act(patch: pytest.MonkeyPatch) -> int:
            with opened_archive(self.folder / "results.tar.gz") as archive:
                store = self.sweep.store
                add_results(archive, plan_import(archive, store), store, "sqlite:///x.db")
            return 0

        unbegun = {one.key for one in self.sweep.trainings if not self.sweep.store.folder(one).attempts.numbers()}
        status, said = in_child(act, fault)
        now = self.look_after(fault)
        assert status != 0 or now >= unbegun & self.archived, said
        self.whole = now

    @rule(fault=FAULTS)
    def updates_the_table(self, fault: tuple[str, int]) -> None:
        """The results table follows from the store, and changes nothing in it."""
        before = contents(self.folder / "store" / "cells")

        def act(patch: pytest.MonkeyPatch) -> int:
            sweep = self.sweep
            sweep.store.prepare()
            update_results(sweep.store, sweep)
            return 0

        status, said = in_child(act, fault)
        assert status in (0, 2, -signal.SIGKILL), said
        if fault[0] != "flip":
            assert contents(self.folder / "store" / "cells") == before
        self.whole = self.look()

    @rule()
    def checks_all_files(self) -> None:
        """What a full check finds is moved away, and nothing else."""
        sweep = self.sweep
        damaged_files(sweep.store, sweep.trainings, set_aside=True)
        assert not any(status.damaged for status in sweep.statuses(thorough=True).values())
        assert self.look() == self.whole

    @rule(which=st.integers(0, 10**6), at=st.floats(0, 1), quietly=st.booleans())
    def a_bit_flips(self, which: int, at: float, quietly: bool) -> None:
        """A file of a training is damaged: at most that training is not finished any more."""
        paths = sorted(path for path in (self.folder / "store" / "cells").rglob("*") if path.is_file())
        if not paths:
            return
        path = paths[which % len(paths)]
        stat = path.stat()
        flip(path, at)
        if quietly:
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        now = self.look()
        assert now <= self.whole
        assert len(self.whole - now) <= 1
        self.whole = now

    @rule()
    def launches_again(self) -> None:
        """Launch once more, as people do until all is done."""
        self.launches(NO_FAULT, "keep", False, 0.0)

    @precondition(lambda self: self.rivals < 2)
    @rule()
    def a_rival_launches(self) -> None:
        """While another launch lives, a second one and the removal of garbage are refused, and change nothing."""
        self.rivals += 1
        sweep = self.sweep
        with sweep.store.heartbeat("tiny") as rival:
            rival.start(training.key for training in sweep.trainings)
            before = contents(self.folder / "store" / "cells")
            waiting = any(status.state != "done" for status in sweep.statuses().values())
            status, said = in_child(lambda patch: launch(self.sweep, patch).status, NO_FAULT)
            # What follows an import without weights cannot be trained, so nobody is in its way.
            assert "already being done" in said if status == 2 else status == 0 or (waiting and status == 1), said
            status, said = in_child(lambda patch: len(remove_garbage(sweep.store, "tiny", sweep.trainings)), NO_FAULT)
            assert (status, "in use" in said) == (2, True)
            assert contents(self.folder / "store" / "cells") == before

    @rule()
    def edits_the_sweep(self) -> None:
        """Edit the sweep file; what both versions ask for stays finished."""
        self.version = min(self.version + 1, len(self.versions) - 1)
        assert self.look() == self.whole

    @invariant()
    def nobody_is_charged(self) -> None:
        """No fault of a disk, a process or a clock is a training's own."""
        if hasattr(self, "folder"):
            sweep = self.sweep
            for training in sweep.trainings:
                charged = [one for one in sweep.store.folder(training).attempts.all() if one.charged]
                assert not charged, f"{training.name}: {charged[0].reason}"


class TunedSequences(Sequences):
    """The same on a sweep that tunes, whose budget is raised once."""

    versions = ((*TUNED, "tune.budget=2"), (*TUNED, "tune.budget=4"))


def contents(folder: Path) -> dict[Path, bytes]:
    """All files in a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_sequences(machine: type[Sequences], examples: int, steps: int, *, derandomize: bool) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    how = settings(
        max_examples=examples, stateful_step_count=steps, derandomize=derandomize, deadline=None, database=None,
        suppress_health_check=checks, print_blob=True,
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.slow
def test_a_few_sequences() -> None:
    run_sequences(Sequences, examples=2, steps=6, derandomize=True)
    run_sequences(TunedSequences, examples=1, steps=6, derandomize=True)


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("machine", [Sequences, TunedSequences])
def test_many_sequences(machine: type[Sequences]) -> None:
    """SEQUENCES says how many; ``--hypothesis-seed`` which."""
    run_sequences(machine, examples=int(os.environ.get("SEQUENCES", "100")), steps=15, derandomize=False)
