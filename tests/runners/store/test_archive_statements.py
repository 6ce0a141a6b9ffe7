"""What an archived result states of its files: its own, as they are. No later launch takes others for them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goal_core.basics.sealed_json import json_bytes
from goal_core.checkpoints import BEST
from runners.cli.app import run
from runners.launch.plan import LaunchOptions, LaunchPlan
from runners.store.archive import ArchiveError, export_results, read_archive
from tests.helpers.archive_cases import Files, finished_sweep, first, forged, import_into, rewritten
from tests.helpers.sweep_cases import opened_in

Result = dict[str, Any]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    sweep = finished_sweep(folder / "there")
    export_results(sweep, sweep.store, folder / "results.zip")
    return folder / "results.zip"


@pytest.fixture
def archive(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(good, tmp_path / "results.zip"))


def of_result(change: Callable[[Result], None]) -> Callable[[Files], None]:
    def forge(files: Files) -> None:
        name = first(files, "/result.json")
        result = json.loads(files[name])
        change(result)
        files[name] = json.dumps(result).encode()

    return forge


def states(files: Any) -> Callable[[Files], None]:
    return of_result(lambda result: result.update(files=files))


def states_of(name: str, /, **change: Any) -> Callable[[Files], None]:
    return of_result(lambda result: result["files"][name].update(change))


def without(end: str) -> Callable[[Files], None]:
    def forge(files: Files) -> None:
        del files[first(files, end)]

    return forge


SECRET = {"name": "/etc/passwd", "bytes": 9, "sha256": "0" * 64, "modified_ns": 1}
FORGERIES: dict[str, tuple[Callable[[Files], None], str]] = {
    "the weights of another cell": (states_of(BEST, name="../../x/frozen-y/best-1.safetensors"), "does not write"),
    "an absolute path": (states_of("metrics.jsonl", name="/tmp/secret.txt"), "does not write"),
    "another file": (of_result(lambda result: result["files"].update(secret=SECRET)), "that no training writes"),
    "no mapping": (of_result(lambda result: result["files"].update({"metrics.jsonl": {}})), "must state"),
    "weights as of 0.1": (of_result(lambda result: result["files"][BEST].pop("name")), "must state"),
    "a list": (states([1]), "does not state the files"),
    "a number": (states({"a": 5}), "does not state the files"),
    "nothing": (states(None), "does not state the files"),
    "another digest": (states_of("metrics.jsonl", sha256="0" * 64), "is not the file that result.json states"),
    "another size": (states_of("triplets.npz", bytes=7), "is not the file that result.json states"),
    "no metrics": (without("metrics.jsonl"), "is missing, but result.json states it"),
    "no triplets": (without("triplets.npz"), "is missing, but result.json states it"),
    "unstated metrics": (of_result(lambda result: result["files"].pop("metrics.jsonl")), "is not a file that"),
    "no seconds": (of_result(lambda result: result.pop("seconds")), "must have seconds from 0"),
    "seconds as text": (of_result(lambda result: result.update(seconds="x")), "must have seconds from 0"),
    "endless seconds": (of_result(lambda result: result.update(seconds=10**400)), "must have seconds from 0"),
    "a metric of 400 digits": (of_result(lambda result: result["metrics"].update(x=10**400)), "finite number as x"),
}


@pytest.mark.parametrize(("change", "said"), FORGERIES.values(), ids=FORGERIES.keys())
def test_a_result_that_states_what_is_not_its_own(
    archive: Path, change: Callable[[Files], None], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", str(forged(archive, change)), "--store", str(archive.parent / "here")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (archive.parent / "here").exists()


@pytest.mark.parametrize("end", ["result.json", "metrics.jsonl", "cell.json", "attempts/1.json", "sweep.json"])
def test_a_file_that_does_not_match_its_own_checksum(archive: Path, end: str) -> None:
    def forge(files: Files) -> None:
        name = first(files, end)
        content = json.loads(files[name].splitlines()[0] if end == "metrics.jsonl" else files[name])
        sealed = json.loads(json_bytes(content))
        files[name] = json.dumps({**sealed, "note": "added"}).encode()

    with pytest.raises(ArchiveError, match="does not match its checksum"):
        read_archive(forged(archive, forge))


def test_a_manifest_that_does_not_match_its_own_checksum(archive: Path) -> None:
    def forge(files: Files) -> None:
        files["manifest.json"] = files["manifest.json"].replace(b"goal-sweep results", b"goal-sweep Results")

    with pytest.raises(ArchiveError, match="does not match its checksum"):
        read_archive(rewritten(archive, forge))


@pytest.mark.parametrize(
    ("end", "change"),
    [
        ("cell.json", {"note": "\ud800"}),
        ("cell.json", {"note": float("nan")}),
        ("cell.json", {"note": json.loads("[" * 500 + "]" * 500)}),
        ("attempts/1.json", {"launch_id": "../../launches/x"}),
        ("attempts/1.json", {"launch_id": "x\0"}),
        ("attempts/1.json", {"reason": "\udfff"}),
        ("sweep.json", {"weights": {"test_byobnet": "\ud800"}}),
    ],
)
def test_a_value_that_could_not_be_written_or_looked_up_again(archive: Path, end: str, change: dict[str, Any]) -> None:
    def forge(files: Files) -> None:
        name = first(files, end)
        files[name] = json.dumps({**json.loads(files[name]), **change}).encode()

    with pytest.raises(ArchiveError, match="is damaged"):
        read_archive(forged(archive, forge))


def test_text_in_another_encoding(archive: Path) -> None:
    def forge(files: Files) -> None:
        name = first(files, "result.json")
        files[name] = files[name].decode().encode("utf-16")

    with pytest.raises(ArchiveError, match="is not valid JSON"):
        read_archive(forged(archive, forge))


def test_records_are_compared_whatever_form_the_weights_are_stated_in(archive: Path) -> None:
    def change(result: Result) -> None:
        result["files"][BEST] = {"bytes": 1, "sha256": "0" * 64}
        result["files"]["metrics.jsonl"]["sha256"] = "0" * 64

    with pytest.raises(ArchiveError, match=r"metrics\.jsonl is not the file that result\.json states"):
        read_archive(forged(archive, of_result(change)))


@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_a_file_without_end_is_not_read(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = {"device": Path("/dev/zero"), "pipe": tmp_path / "pipe", "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    assert run(["import", str(path), "--store", str(tmp_path / "here")]) == 2
    assert "it is not a regular file" in capsys.readouterr().err


def test_no_training_starts_from_a_file_beside_an_imported_result(good: Path, tmp_path: Path) -> None:
    """Not even where the file is the one that the archive states: an import brings no weights."""

    def only_frozen(files: Files) -> None:
        for name in [name for name in files if "/finetune-" in name]:
            del files[name]
        for name in [name for name in files if name.endswith("/result.json")]:
            result = json.loads(files[name])
            result["files"][BEST] |= {"bytes": 5, "sha256": hashlib.sha256(b"other").hexdigest()}
            files[name] = json.dumps(result).encode()

    sweep = opened_in(tmp_path / "here")
    added = import_into(sweep.store, forged(Path(shutil.copy(good, tmp_path / "x.zip")), only_frozen)).added
    for training in added:
        for name in (BEST, "best.1.safetensors", "best-10.safetensors"):
            (sweep.store.folder(training).folder / name).write_bytes(b"other")
    later = [training for training in sweep.trainings if training.before in added]
    plan = LaunchPlan(sweep, LaunchOptions())
    assert later
    assert {plan.progress[training].state for training in added} == {"done"}
    assert {plan.progress[training].state for training in later} == {"failed"}
    assert "imported results come without weights" in plan.progress[later[0]].reason
    assert plan.startable(later, ahead=True) == []


def test_a_damaged_record_is_not_exported(tmp_path: Path) -> None:
    """A disk may change a file and not its time: then only its digest tells."""
    sweep = finished_sweep(tmp_path / "there")
    path = sweep.store.folder(sweep.trainings[0]).path("metrics.jsonl")
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"1.0", b"2.0", 1))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(ArchiveError, match=r"is not the file that result\.json states; launch trains"):
        export_results(sweep, sweep.store, tmp_path / "results.zip")
    assert not (tmp_path / "results.zip").exists()


def test_an_attempt_that_no_import_would_accept_is_not_exported(tmp_path: Path) -> None:
    sweep = finished_sweep(tmp_path / "there")
    record = sweep.store.folder(sweep.trainings[0]).attempts.path(1)
    record.write_text(json.dumps({**json.loads(record.read_text()), "pid": "x", "checksum": None}))
    export_results(sweep, sweep.store, tmp_path / "results.zip", with_provenance=True)
    assert len([name for name in read_archive(tmp_path / "results.zip").files if "/attempts/" in name]) == 2
