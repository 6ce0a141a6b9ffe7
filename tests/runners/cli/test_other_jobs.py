"""Submissions beside others: damaged, lost, or gone with their cluster."""

from __future__ import annotations

import json
import shlex
import socket
from pathlib import Path

import pytest

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.cluster import ray_jobs
from goal_sweep.runners.cluster.ray_jobs import RayJobs
from goal_sweep.runners.store.submissions import Submission, Submissions
from tests.helpers.cluster_cases import asked

STORE = "goal-sweep-store"


@pytest.fixture
def records(here: Path) -> Submissions:
    return Submissions(here / STORE)


def sent(records: Submissions, to: str = "slurm", job: str = "12", **place: str) -> Submission:
    begun = records.begin("tiny", to, "", place)
    return records.note(begun, job=job) if job else begun


def queue(one: Submission, state: str = "RUNNING|None|n1", name: str = "") -> None:
    Path("queue").write_text(f"{state}|{name or one.id}\n")


def test_another_job_with_the_same_number_is_not_cancelled(here: Path, records: Submissions, capsys) -> None:
    one = sent(records)
    queue(one, name="my-other-work")
    assert run(["status", "tiny.yaml", "--jobs"]) == 0
    assert "Slurm's job 12 is another one now (my-other-work)" in capsys.readouterr().out
    for words in (["cancel", "tiny.yaml"], ["cancel", "tiny.yaml", one.id]):
        assert run(words) == 2
    assert f"{one.id} is over: Slurm's job 12 is another one now" in capsys.readouterr().err
    assert "scancel" not in asked(here)


def dead_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_ray_cluster_that_is_gone_blocks_nothing(here: Path, records: Submissions, monkeypatch, capsys) -> None:
    one = sent(records, "ray", address=dead_address())
    assert run(["cancel", "tiny.yaml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    forget = f"goal-sweep cancel tiny.yaml {one.id} --forget"
    assert line.startswith(f"error: {one.id}: Ray at")
    assert "Failed to connect" in line
    assert line.endswith(forget)
    assert run(["submit", "tiny.yaml", "--to", "slurm"]) == 0
    noted = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(f"note: {one.id}"))
    assert noted.endswith(forget)
    assert run(["cancel", "tiny.yaml", one.id, "--forget"]) == 0
    assert records.of("tiny")[0].ended == "forgotten"
    monkeypatch.setattr(RayJobs, "_client", lambda *_: pytest.fail("a job that is over is not asked for"))
    assert run(["submit", "tiny.yaml", "--to", "slurm"]) == 0


def test_a_silent_dashboard_does_not_hang_a_submission_elsewhere(
    here: Path,
    records: Submissions,
    monkeypatch,
    capsys,
) -> None:
    monkeypatch.setattr(ray_jobs, "_GREETING_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = sent(records, "ray", address=f"http://127.0.0.1:{server.getsockname()[1]}")
        assert run(["status", "tiny.yaml", "--jobs"]) == 0
        assert "does not answer" in capsys.readouterr().out
        assert run(["submit", "tiny.yaml", "--to", "slurm"]) == 0
        assert f"{one.id} may still run, but Ray at" in capsys.readouterr().out


def test_a_damaged_record_is_one_line_with_what_to_do(here: Path, records: Submissions, capsys) -> None:
    assert run(["submit", "tiny.yaml", "--to", "slurm"]) == 0
    (one,) = records.of("tiny")
    content = bytearray(records.path(one.id).read_bytes())
    content[20] ^= 1
    records.path(one.id).write_bytes(content)
    capsys.readouterr()
    for words in (["status", "tiny.yaml", "--jobs"], ["submit", "tiny.yaml", "--to", "slurm"], ["cancel", "tiny.yaml"]):
        assert run(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {records.path(one.id)} is damaged: it was the record of the job {one.id}.")
    assert asked(here).count("sbatch") == 1
    records.path(one.id).unlink()
    assert run(["submit", "tiny.yaml", "--to", "slurm"]) == 0


def test_every_job_that_lives_is_shown(here: Path, records: Submissions, capsys) -> None:
    first, second = sent(records), sent(records, job="13")
    Path("queue").write_text("".join(f"RUNNING|None|n1|{one.id}\n" for one in (first, second)))
    assert run(["status", "tiny.yaml", "--jobs"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [first.id, second.id]


def test_a_job_that_is_over_is_not_said_to_be_cancelled(here: Path, records: Submissions, capsys) -> None:
    one = sent(records)
    Path("ended").write_text(f"COMPLETED|None|n1|{one.id}\n")
    assert run(["cancel", "tiny.yaml", one.id]) == 2
    assert capsys.readouterr().err == f"error: {one.id} is over: completed\n"
    assert run(["cancel", "tiny.yaml", ""]) == 2
    assert capsys.readouterr().err == f"error: no job '' of this sweep; known: {one.id}\n"
    assert "scancel" not in asked(here)


def test_a_job_that_only_waited_leaves_the_queue(here: Path, records: Submissions, capsys) -> None:
    queue(one := sent(records), "PENDING|Priority|")
    assert run(["cancel", "tiny.yaml", one.id]) == 0
    assert capsys.readouterr().out == f"{one.id}: slurm job 12 leaves the queue\n"


def test_an_exact_id_means_one_job(here: Path, records: Submissions, capsys) -> None:
    ones = [sent(records, job=str(number)) for number in range(1, 11)]
    Path("queue").write_text("".join(f"RUNNING|None|n1|{one.id}\n" for one in ones))
    assert run(["cancel", "tiny.yaml", ones[0].id]) == 0
    assert capsys.readouterr().out.count("is being cancelled") == 1


def test_where_nothing_was_submitted_the_store_is_named(here: Path, monkeypatch, capsys) -> None:
    elsewhere = here.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run(["status", str(here / "tiny.yaml"), "--jobs"]) == 0
    assert capsys.readouterr().out == f"nothing was submitted from the store {elsewhere / STORE}\n"


def test_the_commands_that_are_shown_work_in_any_folder(here: Path, monkeypatch, capsys) -> None:
    assert run(["submit", "tiny.yaml", "--to", "slurm", "--store", "mine", "--set", "seeds=[4]"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if " status " in line)
    monkeypatch.chdir(here.parent)
    assert run([*shlex.split(line)[1:], "--jobs", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_gpus_that_the_sweep_does_not_use_are_named_on_submission(here: Path, capsys) -> None:
    assert run(["submit", "tiny.yaml", "--to", "slurm", "--set", "cluster.slurm.gpus_per_node=1"]) == 0
    assert "note: the job asks for GPUs" in capsys.readouterr().out


def test_gpus_that_would_stay_idle_for_want_of_cpus_are_named_on_submission(here: Path, capsys) -> None:
    node = ["--set", "cluster.slurm.gpus_per_node=8", "--set", "cluster.slurm.cpus_per_node=8"]
    unit = ["--set", "resources.gpus=1", "--set", "resources.cpus=8"]
    assert run(["submit", "tiny.yaml", "--to", "slurm", *node, *unit]) == 0
    said = capsys.readouterr().out
    assert "note: 1 of the 8 units" in said
    assert "64 CPUs, or resources.cpus=1 would use every GPU (cluster.slurm)" in said
