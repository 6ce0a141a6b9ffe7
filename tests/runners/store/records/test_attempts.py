from __future__ import annotations

import json
import os
import socket

import pytest
from goal_sweep.runners.store.records.attempts import Attempt, AttemptFolder

from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.runners.store import Store
from tests.helpers.store_cases import named

TRAINING = named("a" * 16)


@pytest.fixture
def folder(tmp_path):
    store = Store(tmp_path)
    store.prepare()
    return store.folder_of("c", "frozen", "k")


def test_record_says_who_where_and_with_what(folder):
    folder.claim("L")
    content = json.loads(folder.path("attempts/1.json").read_text())
    assert (content["n"], content["launch_id"], content["host"], content["pid"]) == (
        1,
        "L",
        socket.gethostname(),
        os.getpid(),
    )
    assert (content["outcome"], content["charged"], content["ended"]) == ("running", False, None)
    assert {"python", "torch", "numpy"} <= content["versions"].keys()
    assert content["device"]
    assert {"git_commit", "git_diff"} <= content.keys()


@pytest.mark.parametrize(
    ("end", "outcome", "charged", "final"),
    [
        (lambda folder: folder.fail("bad", "Traceback\n  line"), "failed", True, False),
        (lambda folder: folder.fail("node lost", charged=False), "failed", False, False),
        (lambda folder: folder.fail("NaN", final=True), "failed", True, True),
        (lambda folder: folder.end_for("L", "interrupted", "Ctrl-C", charged=False), "interrupted", False, False),
    ],
)
def test_ends(folder, end, outcome, charged, final):
    folder.claim("L")
    end(folder)
    attempt = folder.attempts.newest()
    assert (attempt.outcome, attempt.charged, attempt.final) == (outcome, charged, final)
    assert attempt.ended >= attempt.started
    assert attempt.reason


def test_trace_is_kept_whole_and_reason_is_one_line(folder):
    folder.claim("L")
    folder.fail("two\n lines", "Traceback\n  line\n")
    attempt = folder.attempts.newest()
    assert (attempt.reason, attempt.trace) == ("two lines", "Traceback\n  line\n")


def test_an_attempt_without_an_end_becomes_lost_and_costs_nothing(folder):
    folder.claim("dead")
    folder.claim("next")
    lost, running = folder.attempts.all()
    assert (lost.outcome, lost.charged, lost.ended) == ("lost", False, None)
    assert running.outcome == "running"


def test_numbers_are_sorted_as_numbers_and_other_files_ignored(tmp_path):
    folder = AttemptFolder(tmp_path)
    assert folder.numbers() == []
    assert folder.newest() is None
    folder.folder.mkdir()
    for name in ("10.json", "9.json", ".3.json.host-1-1.tmp", "notes.json", "x"):
        (folder.folder / name).write_text("{}")
    assert folder.numbers() == [9, 10]


def test_damaged_record_reads_as_lost_and_the_next_attempt_begins(folder):
    folder.claim("L")
    folder.path("attempts/1.json").write_text('{"n": 1')
    attempt = folder.attempts.newest()
    assert (attempt.outcome, attempt.charged) == ("lost", False)
    assert "damaged" in attempt.reason
    assert folder.claim("M") == 2


def test_a_number_is_taken_once(folder):
    folder.claim("L")
    again = Attempt(n=1, launch_id="M", host="h", pid=1, started=0.0)
    assert not folder.attempts.create(again)
    assert folder.attempts.read(1).launch_id == "L"


@pytest.mark.parametrize(
    "change",
    [
        {"launch_id": ["L"]},
        {"launch_id": "../../x"},
        {"launch_id": "x\0"},
        {"launch_id": "x" * 5000},
        {"n": True},
        {"n": 2},
        {"pid": "4711"},
        {"started": "yesterday"},
        {"started": 1e300},
        {"ended": []},
        {"outcome": ["running"]},
        {"outcome": "???"},
        {"charged": "no"},
        {"versions": [1]},
        {"reason": {}},
    ],
)
def test_a_record_with_values_of_other_types_is_a_lost_attempt(store, change):
    folder = store.folder(TRAINING)
    folder.claim("L")
    path = folder.attempts.path(1)
    path.write_bytes(json_bytes({**json.loads(path.read_text()), **change}))
    (attempt,) = folder.attempts.all()
    assert attempt.outcome == "lost"
    assert "attempts/1.json is damaged" in attempt.reason
    assert store.status([TRAINING])[TRAINING].state == "waiting"
    assert store.folder(TRAINING).claim("M") == 2


def test_a_file_whose_name_is_no_number_is_no_attempt(store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    for name in ("²", "0", "01", "x", "9" * 200):
        (folder.attempts.folder / f"{name}.json").write_text("{}")
    assert folder.attempts.numbers() == [1]
