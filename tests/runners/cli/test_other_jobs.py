"""Submissions beside others: damaged, or gone with their cluster; and RayJobs, which are kubectl's."""

import json
import socket
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.cluster.backend import Submission, Submissions

STORE = "goal-sweep-store"


@pytest.fixture
def records(here: Path) -> Submissions:
    return Submissions(here / STORE)


def sent(records: Submissions, to: str = "slurm", job: str = "12", address: str = "") -> Submission:
    return records.taken(records.begin("tiny", to, "", address), job)


def test_a_ray_cluster_that_is_gone_blocks_nothing(here: Path, records: Submissions, capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    one = sent(records, "ray", address=address)
    assert run(["cancel", "tiny.yaml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {one.id}: Ray at")
    assert "Failed to connect" in line
    assert run(["submit", "tiny.yaml", "--to", "slurm"]) == 0
    assert f"note: {one.id} may still run, but Ray at" in capsys.readouterr().out
    Path("queue").write_text("RUNNING|None|n1\n")
    assert run(["cancel", "tiny.yaml"]) == 0


def test_a_silent_cluster_is_asked_once_for_all_jobs(here: Path, records: Submissions, capsys, monkeypatch) -> None:
    monkeypatch.setattr("goal_sweep.runners.cluster.backend._ANSWER_S", 0.1)
    (here.parent / "bin" / "squeue").write_text('#!/bin/sh\necho squeue >> "$LOG"\nexec sleep 60\n')
    for address in ("a", "a", "b", "a"):
        sent(records, address=address)
    assert run(["status", "tiny.yaml", "--jobs", "--json"]) == 0
    found = [(job["phase"], job["state"]) for job in json.loads(capsys.readouterr().out)]
    assert found == [("silent", "squeue does not answer (waited 0 s)")] * 4
    assert (here.parent / "log").read_text() == 2 * "squeue\n"


def test_a_damaged_record_is_one_line_with_what_to_do(here: Path, records: Submissions, capsys) -> None:
    one = sent(records)
    flipped = bytearray(records.path(one.id).read_bytes())
    flipped[20] ^= 1
    status, submit, cancel = "status tiny.yaml --jobs", "submit tiny.yaml --to slurm", "cancel tiny.yaml"
    wrong = (b"", b"{", b"[]", b'{"id": 3}', b'{"id": "tiny-000000-7", "job": []}', bytes(flipped))
    for content, words in zip(wrong, (status, status, status, status, cancel, submit), strict=True):
        records.path(one.id).write_bytes(content)
        assert run(words.split()) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {records.path(one.id)} is damaged: it was the record of the job {one.id}.")
    records.path(one.id).unlink()
    assert run(["submit", "tiny.yaml", "--to", "slurm"]) == 0


def test_a_job_is_named_by_its_id_or_that_of_the_cluster(here: Path, records: Submissions, capsys) -> None:
    first, *_ = [sent(records, job=str(number)) for number in range(1, 4)]
    for words, job in (([first.id], "1"), (["2"], "2"), ([], "3")):
        Path("queue").write_text("PENDING|Priority|\n")
        assert run(["cancel", "tiny.yaml", *words]) == 0
        assert capsys.readouterr().out.endswith(f"slurm job {job} leaves the queue\n")
    assert run(["cancel", "tiny.yaml", ""]) == 2
    assert capsys.readouterr().err.startswith(f"error: no job '' of this sweep; known: {first.id}, ")


def test_where_nothing_was_submitted_the_store_is_named(here: Path, monkeypatch, capsys) -> None:
    elsewhere = here.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run(["status", str(here / "tiny.yaml"), "--jobs"]) == 0
    assert capsys.readouterr().out == f"nothing was submitted from the store {elsewhere / STORE}\n"


def test_a_rayjob_is_printed_for_kubectl(here: Path, capsys) -> None:
    mounts = ["--set", "cluster.kubernetes.mounts=[{name: r, mountPath: /r}]"]
    settings = ["--set", "cluster.kubernetes.image=i:1", "--set", "cluster.kubernetes.store=/r/s", *mounts]
    assert run(["submit", "tiny.yaml", "--to", "kubernetes", *settings]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["kind"] == "RayJob"
    assert not (here / STORE / "submissions").exists()
