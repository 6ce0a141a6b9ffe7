"""`submit`, `status --jobs`, `logs --job` and `cancel`, with programs in place of Slurm's."""

import json
from pathlib import Path

import pytest

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.execution.job import CODE_DIGEST
from tests.helpers.cluster_cases import everything


def asked(folder: Path) -> list[str]:
    """The programs of Slurm that were called, by the log beside the folder."""
    return [line.split()[0] for line in (folder.parent / "log").read_text().splitlines()]


def test_a_sweep_is_submitted_seen_cancelled_and_submitted_again(here: Path, capsys) -> None:
    assert run(["submit", "tiny.yaml", "--to", "slurm"]) == 0
    said = capsys.readouterr().out.splitlines()
    (record,) = (here / "goal-sweep-store" / "submissions").glob("*.json")
    assert said[0] == f"{record.stem}: submitted to slurm as job 12"
    again = ["status tiny.yaml", "logs tiny.yaml --job --follow", "cancel tiny.yaml"]
    assert said[1:] == [f"  goal-sweep {words}" for words in again]
    content = json.loads(record.read_text())
    assert (content["sweep"], content["to"], content["job"], content["code"]) == ("tiny", "slurm", "12", CODE_DIGEST)

    (here / "queue").write_text("RUNNING|None|n1\n")
    before = everything(here)
    assert run(["status", "tiny.yaml"]) == 0
    assert f"{record.stem}: slurm job 12, submitted" in capsys.readouterr().out
    assert run(["status", "tiny.yaml", "--jobs", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)
    assert (job["id"], job["phase"], job["state"]) == (record.stem, "running", "running on n1")
    (record.parent / record.stem / "job.log").write_text("hello\n")
    before |= {str(record.parent / record.stem / "job.log"): b"hello\n"}
    assert run(["logs", "tiny.yaml", "--job"]) == 0
    assert capsys.readouterr().out == "hello\n"
    assert everything(here) == before

    assert run(["submit", "tiny.yaml", "--to", "slurm"]) == 2
    assert "of this sweep is running on n1; goal-sweep cancel tiny.yaml ends it" in capsys.readouterr().err
    assert run(["cancel", "tiny.yaml"]) == 0
    assert "is being cancelled; its running cells save" in capsys.readouterr().out
    assert asked(here)[-1] == "scancel"
    assert run(["cancel", "tiny.yaml"]) == 2
    assert f"{record.stem} is over: stopped before the end; submit continues it" in capsys.readouterr().err
    assert run(["submit", "tiny.yaml", "--to", "slurm"]) == 0
    assert len(list(record.parent.glob("*.json"))) == 2


def test_an_edit_after_the_submission_does_not_reach_the_job(here: Path, capsys) -> None:
    assert run(["submit", "tiny.yaml", "--to", "slurm", "--set", "seeds=[4]"]) == 0
    (here / "tiny.yaml").write_text("name: other\n")
    (frozen,) = (here / "goal-sweep-store").glob("submissions/*/sweep.yaml")
    capsys.readouterr()
    assert run(["status", str(frozen), "--json"]) == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} >= {"con/con test_resnet seed 4 (frozen)"}


def test_printing_changes_nothing_and_asks_nobody(here: Path, capsys) -> None:
    before = everything(here)
    assert run(["submit", "tiny.yaml", "--to", "slurm", "--print", "--set", "cluster.slurm.array=2"]) == 0
    assert "#SBATCH --array=0-1" in (out := capsys.readouterr().out)
    assert "\n# sweep.yaml\n" in out
    assert (everything(here), asked(here)) == (before, [])


def test_a_job_that_may_be_taken_leaves_its_record_and_one_that_is_refused_none(here: Path, capsys) -> None:
    for why in ("Socket timed out on send/recv operation", "Invalid account"):
        (here / "answer").write_text(f"sbatch: warning: x\nsbatch: error: {why}\n")
        assert run(["submit", "tiny.yaml", "--to", "slurm"]) == 2
        assert capsys.readouterr().err == f"error: cannot submit to Slurm: sbatch: error: {why}\n"
        (first, *files) = sorted((here / "goal-sweep-store" / "submissions").iterdir())
        assert [path.stem for path in files] == [first.name]


def test_the_user_s_site_file_counts(here: Path, capsys) -> None:
    own = here.parent / "config" / "goal-sweep" / "site.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("slurm: {partition: gpu7}\n")
    assert run(["submit", "tiny.yaml", "--to", "slurm", "--print"]) == 0
    assert "#SBATCH --partition=gpu7" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["slurm", "ray", "kubernetes"])
def test_each_kind_has_an_example_that_can_be_used(kind: str, here: Path, capsys) -> None:
    assert run(["submit", "--example", kind]) == 0
    (here / "site.yaml").write_text(capsys.readouterr().out)
    assert run(["submit", "tiny.yaml", "--to", kind, "--site", "site.yaml", "--print"]) == 0
    assert "tiny" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("submit", "give a sweep and --to ray, slurm or kubernetes"),
        ("submit tiny.yaml", "give a sweep and --to ray, slurm or kubernetes"),
        ("submit tiny.yaml --to pbs", "Invalid value for '--to'"),
        ("submit tiny.yaml --to ray", "cluster.ray.address is needed"),
        ("submit tiny.yaml --to kubernetes", "cluster.kubernetes.image is needed"),
        ("submit tiny.yaml --to slurm --site .", "cannot be read: Is a directory"),
        ("submit tiny.yaml --to slurm --site nowhere.yaml", "nowhere.yaml: cannot be read: No such file"),
        ("submit tiny.yaml --to slurm --set resources.cpus=9", "a unit needs 9 CPU"),
        ("submit tiny.yaml --to slurm --set stages.frozen.batch_size=900", "batch_size must be at most"),
        ("cancel tiny.yaml", "nothing was submitted for this sweep"),
        ("logs tiny.yaml --job", "nothing was submitted for this sweep"),
        ("logs tiny.yaml --job --failed", "give --job without --failed"),
    ],
)
def test_a_mistake_is_one_line(line: str, said: str, here: Path, capsys) -> None:
    assert run(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert said in printed.err
    assert asked(here) == []


def test_a_job_with_other_code_than_submitted_is_refused(here: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("GOAL_SWEEP_CODE", "0" * 16)
    assert run(["launch", "tiny.yaml"]) == 2
    assert "has other code of goal-sweep" in (said := capsys.readouterr().err)
    assert "than the machine that submitted the sweep; install the same version there, or submit again" in said
