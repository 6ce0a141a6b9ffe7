"""A worker trains nothing with other code, data or weights than the ids of its trainings state."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from goal_core.data import Dataset, open_dataset
from goal_core.objectives import triplet_weights
from runners.execution import inputs
from runners.launch.launcher import LaunchOutcome
from runners.launch.opened_sweep import OpenedSweep
from tests.helpers.in_process import launch, results, sweep_in


@pytest.fixture
def sweep(tmp_path: Path) -> OpenedSweep:
    return sweep_in(tmp_path)


def check_refused(sweep: OpenedSweep, outcome: LaunchOutcome, what: str) -> None:
    """Nothing was claimed or trained, and the reason names the machine."""
    assert outcome.status == 1
    reasons = {outcome.progress[training].reason for training in sweep.by_stage[0]}
    assert len(reasons) == 1
    assert what in min(reasons)
    assert socket.gethostname() in min(reasons)
    assert results(sweep) == {}
    assert not any(sweep.store.folder(training).attempts.all() for training in sweep.trainings)


def test_other_data_are_refused(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(config: object) -> Dataset:
        return replace(open_dataset(config), fingerprint="another")

    with monkeypatch.context() as patch:
        patch.setattr(inputs, "open_dataset", stale)
        check_refused(sweep, launch(sweep, patch), "the data (another, not")
    assert launch(sweep, monkeypatch).status == 0


def test_data_that_change_between_the_stages_are_refused(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = [0]

    def changes(config: object) -> Dataset:
        opened[0] += 1
        dataset = open_dataset(config)
        return dataset if opened[0] == 1 else replace(dataset, fingerprint="another")

    with monkeypatch.context() as patch:
        patch.setattr(inputs, "open_dataset", changes)
        outcome = launch(sweep, patch)
    assert outcome.status == 1
    assert {name.split("(")[1] for name in results(sweep)} == {"frozen)"}
    assert launch(sweep, monkeypatch).status == 0


def test_other_code_is_refused(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = iter(["the driver's", *["the worker's"] * 9])
    with monkeypatch.context() as patch:
        patch.setattr("runners.launch.opened_sweep.code_digest", lambda: next(digests))
        check_refused(sweep, launch(sweep, patch), "has other code of goal-sweep")
    assert launch(sweep, monkeypatch).status == 0


def test_other_weights_are_refused(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(inputs, "initial_weights_id", lambda model: "sha256:other")
        check_refused(sweep, launch(sweep, patch), "the first weights (sha256:other, not random)")


def test_another_objective_of_the_same_name_is_refused(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sweep.cells  # the ids are computed with the code of the driver
    with monkeypatch.context() as patch:
        entry = triplet_weights["con"]
        changed = replace(entry, function=lambda triplets, **named: triplets.neg)
        patch.setitem(triplet_weights._entries, "con", changed)
        check_refused(sweep, launch(sweep, patch), "the code of con/con")


def test_the_digest_is_that_of_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert inputs.code_digest() == inputs.code_digest()
    assert len(inputs.code_digest()) == 16
