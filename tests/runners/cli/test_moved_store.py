"""A results folder that was copied, moved or made read-only: everything is read from it and written into it alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from goal_sweep.runners.cli.app import run
from tests.helpers.paths import ROOT
from tests.helpers.results_folder import arguments, finished, snapshot
from tests.helpers.sweep_cases import opened_in

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.usefixtures("undrawn")]


@pytest.fixture
def original(tmp_path: Path, empty_database: Path) -> Path:
    finished(tmp_path / "original", empty_database)
    return tmp_path / "original"


def addresses(folder: Path) -> set[str]:
    """The folders in which the database looks for artifacts."""
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    sweep = client.get_experiment_by_name("scenes")
    assert sweep is not None
    found = {run.info.artifact_uri for run in client.search_runs([sweep.experiment_id])}
    return {address.partition("/artifacts/")[0] for address in found}


def attached(folder: Path) -> list[Path]:
    return list(folder.glob("artifacts/scenes/*/artifacts/report/report.html"))


def test_a_copy_is_written_and_the_original_left_alone(original: Path, tmp_path, monkeypatch, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(original, copy)
    before = snapshot(original)
    assert run(arguments("report", copy)) == 0
    assert "was copied or moved; goal-sweep sync writes its runs again" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setattr("goal_sweep.runners.cli.options.open_sweep", lambda config, **options: opened_in(copy))
    assert run(arguments("sync", copy)) == 0
    assert snapshot(original) == before
    assert len(attached(copy)) == 1
    assert addresses(copy) == {copy.as_uri()}
    text = (copy / "reports" / "scenes" / "report.md").read_text()
    assert "4 of 4 trainings" in text


_READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -c "$3" "$1" "$4"'
_COMMANDS = """
import sys
from pathlib import Path
from goal_sweep.runners.cli.app import run
from tests.helpers.results_folder import arguments
store, out = Path(sys.argv[1]), sys.argv[2]
for verb, *more in (["report"], ["report", "--out", out], ["sync"], ["launch"]):
    print(f"-- {verb}", flush=True)
    print(f"status {run(arguments(verb, store, *more))}", file=sys.stderr, flush=True)
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, to mount a folder read-only")
def test_a_read_only_folder_is_read_and_says_in_one_line_why_it_is_not_written(original: Path, tmp_path: Path) -> None:
    before = snapshot(original)
    words = ["unshare", "-m", "sh", "-c", _READ_ONLY, "sh", str(original), sys.executable, _COMMANDS]
    done = subprocess.run(
        [*words, str(tmp_path / "out")], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    if done.stderr.startswith(("unshare: ", "mount: ")):  # root in a container has fewer rights
        pytest.skip(f"needs the right to mount a folder read-only: {done.stderr.strip()}")
    said = done.stderr.splitlines()
    assert [line for line in said if line.startswith("status")] == ["status 2", "status 0", "status 2", "status 2"]
    errors = [line for line in said if line.startswith("error: ")]
    assert len(errors) == 3, said
    assert "Read-only file system" in errors[0]
    assert errors[0].endswith("; give another folder with --out")
    assert f"the tracking database {original / 'mlflow.db'} is read-only" in errors[1]
    assert errors[2].startswith(f"error: results folder {original} is read-only")
    assert "not attached to MLflow: the tracking database" in done.stdout
    assert (tmp_path / "out" / "report.html").is_file()
    assert snapshot(original) == before
