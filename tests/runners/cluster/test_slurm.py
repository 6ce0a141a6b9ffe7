import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.runners.cluster import slurm
from goal_sweep.runners.cluster.backend import ClusterError, Job
from tests.helpers.cluster_cases import job, on_path, submission
from tests.helpers.until import until

NAME = "--name=tiny-0a1b2c-1"


def made(tmp_path: Path, *settings: str) -> Job:
    found = job(tmp_path, *settings, store=tmp_path / "store")
    found.folder.mkdir(parents=True)
    return found


def test_a_job_is_queued_with_its_files_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called, sent = on_path(tmp_path, monkeypatch, sbatch="echo '12;cluster'"), made(tmp_path)
    assert slurm.submit(sent) == "12"
    script = sent.folder / "job.sbatch"
    assert called() == [f"sbatch --parsable {script}"]
    assert script.read_text() == slurm.render_sbatch(sent)
    assert (sent.folder / "sweep.yaml").read_text() == sent.sweep_text
    assert slurm.render(sent) == f"{slurm.render_sbatch(sent)}\n# sweep.yaml\n{sent.sweep_text}"


def test_a_machine_without_slurm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"^sbatch is not installed"):
        slurm.submit(made(tmp_path))


@pytest.mark.parametrize(
    ("queue", "phase", "said"),
    [
        ("PENDING|Priority|", "pending", "pending (Priority)"),
        ("RUNNING|None|n[1-2]", "running", "running on n[1-2]"),
        ("RUNNING|None|n1\nPENDING|Dependency|", "running", "running on n1, pending (Dependency)"),
        ("REQUEUED|None|", "pending", "requeued"),
    ],
)
def test_a_job_in_the_queue(queue: str, phase: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = on_path(tmp_path, monkeypatch, squeue=f"echo '{queue}'")
    state = slurm.state(submission("slurm"), tmp_path)
    assert (state.phase, state.said, state.status) == (phase, said, None)
    assert NAME in called()[0]


@pytest.mark.parametrize(
    ("array", "written", "status", "said"),
    [
        (0, {}, 75, "stopped before the end; submit continues it"),
        (0, {"status": "0\n"}, 0, "done"),
        (0, {"status": "1\n"}, 1, "done, but some cells failed"),
        (2, {"status-0": "0\n"}, 75, "stopped before the end; submit continues it"),
        (2, {"status-0": "0\n", "status-1": "0\n"}, 0, "done"),
    ],
)
def test_a_job_that_has_left_the_queue_has_written_how_it_ended(
    array: int, written: dict[str, str], status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(tmp_path, monkeypatch, sbatch="echo 12", squeue="echo 'CANCELLED|None|n1'")
    sent = made(tmp_path, f"slurm.array={array}")
    slurm.submit(sent)
    for name, text in written.items():
        (sent.folder / name).write_text(text)
    state = slurm.state(submission("slurm"), sent.folder)
    assert (state.phase, state.status, state.said) == ("ended", status, said)


def test_a_controller_that_does_not_answer_is_no_ended_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path, monkeypatch, squeue="echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    with pytest.raises(ClusterError, match="Unable to contact slurm controller"):
        slurm.state(submission("slurm"), tmp_path)


def test_a_cancellation_signals_the_script_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = on_path(tmp_path, monkeypatch, scancel="")
    slurm.cancel(submission("slurm"))
    assert called() == [f"scancel {NAME} --state=PENDING", f"scancel {NAME} --state=RUNNING --batch --signal=TERM"]


def test_a_log_is_followed_to_the_end_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_POLL_S", 0.05)
    monkeypatch.setattr(slurm, "_ASK_EVERY_S", 0.1)
    on_path(tmp_path, monkeypatch, squeue=f"cat {tmp_path / 'queue'}")
    (tmp_path / "queue").write_text("PENDING|Resources|\n")
    lines: list[str] = []

    def follow() -> None:
        lines.extend(slurm.logs(submission("slurm"), tmp_path, follow=True))

    (thread := threading.Thread(target=follow)).start()
    try:
        until(lambda: (tmp_path / "log").read_text().count("squeue") > 1)
        (tmp_path / "job.log").write_text("one\ntw")
        (tmp_path / "queue").write_text("RUNNING|None|n1\n")
        until(lambda: (tmp_path / "log").read_text().count("squeue") > 4)
        (tmp_path / "job.log").write_text("one\ntwo\nthree")
    finally:
        (tmp_path / "queue").write_text("")
        thread.join()
    assert lines == ["no output yet: pending (Resources)", "one", "two", "three"]
    assert list(slurm.logs(submission("slurm"), tmp_path, follow=False)) == ["one", "two", "three"]


def test_the_lines_of_an_array_name_their_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(tmp_path, monkeypatch, squeue="")
    (tmp_path / "job-0.log").write_text("a\n")
    (tmp_path / "job-1.log").write_text("b\n")
    assert list(slurm.logs(submission("slurm"), tmp_path, follow=False)) == ["0 | a", "1 | b"]


def test_a_store_in_a_bucket_needs_credentials_and_a_folder_on_the_nodes(tmp_path: Path) -> None:
    far: dict[str, Any] = {"store": "s3://bucket/store"}
    (note,) = slurm.check(replace(job(tmp_path), **far))
    assert "cluster.slurm.pass_environment" in note
    assert "GOAL_SWEEP_CACHE" in note
    assert slurm.check(job(tmp_path)) == []


def test_gpus_that_nothing_would_use_are_named(tmp_path: Path) -> None:
    (note,) = slurm.check(job(tmp_path, "slurm.gpus_per_node=1"))
    assert "its units train on the CPU" in note
