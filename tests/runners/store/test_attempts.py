"""The records of attempts: what they say, what counts, and what becomes of damaged ones."""

import json
import os
import socket
from typing import Any

import pytest

from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.goal_core.checkpoints.names import LAST
from goal_sweep.runners.store import Store, TrainingFolder, counted_failures
from tests.helpers.store_cases import claimed, named, save

TRAINING = named("a" * 16)


@pytest.fixture
def folder(store: Store) -> TrainingFolder:
    return claimed(store.folder(TRAINING), "L", 3)


def test_a_record_says_who_where_and_with_what(folder: TrainingFolder) -> None:
    content = json.loads((folder.attempts.folder / "1.json").read_text())
    stated = {name: content[name] for name in ("n", "launch", "host", "pid", "outcome", "ended", "shared_by")}
    assert stated == {
        "n": 1, "launch": "L", "host": socket.gethostname(), "pid": os.getpid(), "outcome": "running", "ended": None,
        "shared_by": 3,
    }  # fmt: skip
    assert {"python", "torch", "numpy"} <= content["versions"].keys()
    assert content["device"]
    assert {"git_commit", "git_diff"} <= content.keys()


def test_an_end_has_its_reason_in_one_line_and_its_trace_whole(folder: TrainingFolder) -> None:
    folder.end("failed", "two\n lines", trace="Traceback\n  line\n", counted=True, final=True)
    (attempt,) = folder.attempts.all()
    assert (attempt.reason, attempt.trace) == ("two lines", "Traceback\n  line\n")
    assert (attempt.outcome, attempt.counted, attempt.final, attempt.progressed) == ("failed", True, True, False)
    assert attempt.ended is not None
    assert attempt.ended >= attempt.started


def test_the_driver_ends_the_attempt_of_a_worker_that_it_saw_die_and_no_other(store: Store, folder: TrainingFolder):
    driver = store.folder(TRAINING)
    driver.end_for("another launch", "failed", "killed", counted=True)
    assert driver.attempts.all()[0].outcome == "running"
    driver.end_for("L", "failed", "killed", counted=True)
    driver.end_for("L", "lost", "again")
    (attempt,) = driver.attempts.all()
    assert (attempt.outcome, attempt.reason, attempt.counted) == ("failed", "killed", True)


def test_what_failed_before_a_state_was_saved_counts_no_more(store: Store) -> None:
    for saves in (False, False, True, False):
        folder = claimed(store.folder(TRAINING))
        if saves:
            save(folder, LAST, b"%d" % len(folder.attempts.numbers()))
        folder.end("failed", "it broke", counted=True)
    attempts = store.folder(TRAINING).attempts.all()
    assert [one.progressed for one in attempts] == [False, False, True, False]
    # Those before the state is saved do not count; the failure after it does, as does the last.
    assert counted_failures(attempts) == 2


def test_numbers_are_sorted_as_numbers_and_other_files_ignored(folder: TrainingFolder) -> None:
    for name in ("10", "9", ".3.json.host-1-1", "notes", "²", "0", "01", "9" * 200):
        (folder.attempts.folder / f"{name}.json").write_text("{}")
    assert folder.attempts.numbers() == [1, 9, 10]


@pytest.mark.parametrize(
    "change",
    [
        {"launch": ["L"]},
        {"n": True},
        {"n": 2},
        {"pid": "4711"},
        {"started": "yesterday"},
        {"ended": []},
        {"outcome": "???"},
        {"versions": [1]},
    ],
)
def test_a_record_that_no_attempt_writes_is_that_of_a_lost_one_and_costs_nothing(
    store: Store, folder: TrainingFolder, change: dict[str, Any]
) -> None:
    path = folder.attempts.folder / "1.json"
    path.write_bytes(json_bytes({**json.loads(path.read_text()), **change}))
    (attempt,) = folder.attempts.all()
    assert (attempt.outcome, attempt.counted) == ("lost", False)
    assert "attempts/1.json is damaged" in attempt.reason
    assert store.status([TRAINING])[TRAINING].state == "waiting"
    store.folder(TRAINING).claim("M")
    assert folder.attempts.numbers() == [1, 2]
