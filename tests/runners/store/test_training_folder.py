"""What a training's folder takes and gives back, and what it makes of damage and of disks that refuse."""

import errno
import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.runners.store import BEST, LAST, ClaimLostError, Store, TrainingFolder
from tests.helpers import store_cases as cases

TRAINING = cases.named("c" * 16)


@pytest.fixture
def folder(store: Store) -> TrainingFolder:
    return cases.claimed(store.folder(TRAINING))


def test_what_is_saved_is_read_back(folder: TrainingFolder) -> None:
    assert cases.load(folder, BEST) is None
    cases.save(folder, "x.bin", b"one")
    cases.save(folder, "x.bin", b"two")
    assert cases.load(folder, "x.bin") == folder.path("x.bin").read_bytes() == b"two"
    special = {"a": float("nan"), "b": float("-inf"), "c": 1e-17}
    folder.write_metrics([cases.record(1), {"epoch": 2, "time": 1.0, "metrics": special}])
    first, second = folder.records()
    assert first == cases.record(1)
    assert str(second["metrics"].pop("a")) == "nan"
    assert second["metrics"] == {"b": float("-inf"), "c": 1e-17}
    for line in (cases.load(folder, "metrics.jsonl") or b"").splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    folder.write_metrics([cases.record(1)])
    assert folder.records() == [cases.record(1)]


def test_every_log_line_names_its_attempt(folder: TrainingFolder) -> None:
    folder.log("one\ntwo")
    folder.log("")
    lines = folder.log_text().splitlines()
    assert [line.split(" | ")[1] for line in lines] == ["one", "two", ""]
    assert all(line.split(" | ")[0].endswith("attempt 1") for line in lines)


def test_a_result_says_what_it_speaks_for_and_the_rest_goes(folder: TrainingFolder) -> None:
    cases.save(folder, "ranks.npz", cases.npz("ranks"))
    cases.train(folder)
    found = cases.result_of(folder)
    assert found["metrics"] == cases.result()["metrics"]
    assert (found["attempt"], found["stage_key"]) == (1, TRAINING.key)
    for name, stated in found["files"].items():
        assert folder.storage.digest(folder.place(name)) == stated["sha256"]
    assert folder.stated("ranks.npz", found) == cases.npz("ranks")
    assert folder.path(BEST).name == "best-3.safetensors"
    assert [one.outcome for one in folder.attempts.all()] == ["done"]
    names = {path.name for path in folder.folder.iterdir()}
    assert names == {"attempts", "best-3.safetensors", "metrics.jsonl", "ranks.npz", "result.json"}


def test_writing_without_a_claim_is_a_bug(store: Store, folder: TrainingFolder) -> None:
    with pytest.raises(ValueError, match="claimed"):
        cases.save(store.folder(TRAINING), "x", b"")
    cases.train(folder)
    with pytest.raises(ValueError, match="claimed"):
        cases.save(folder, LAST, b"after its result")


def test_no_result_without_weights(folder: TrainingFolder) -> None:
    folder.save_with("best-3.safetensors", cases.write_weights)
    folder.path("best-3.safetensors").unlink()
    with pytest.raises(StorageError, match="best-3"):
        folder.finish(cases.result())
    assert folder.result() is None


def test_the_result_of_another_attempt_is_not_overwritten(folder: TrainingFolder) -> None:
    folder.save_with("best-3.safetensors", cases.write_weights)
    cases.write_result(folder.folder)
    theirs = folder.path("result.json").read_bytes()
    with pytest.raises(ClaimLostError, match="another attempt"):
        folder.finish(cases.result(test_rsum=2.0))
    assert folder.path("result.json").read_bytes() == theirs


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE])
@pytest.mark.parametrize("native", [False, True])
def test_a_refusing_disk_is_one_readable_line_and_loses_nothing(folder: TrainingFolder, code: int, native: bool):
    cases.save(folder, LAST, b"before")

    def write(path: Path) -> None:
        path.write_bytes(b"half")
        # safetensors writes in Rust and reports system errors as text
        raise RuntimeError(f"I/O error: x (os error {code})") if native else OSError(code, os.strerror(code))

    with pytest.raises(StorageError, match=os.strerror(code)) as error:
        folder.save_with(LAST, write)
    assert LAST in str(error.value)
    assert "\n" not in str(error.value)
    assert cases.load(folder, LAST) == b"before"
    assert not list(folder.folder.glob(".*"))
    cases.save(folder, LAST, b"after")
    assert cases.load(folder, LAST) == b"after"


def test_an_error_that_is_not_the_disks_keeps_its_type(folder: TrainingFolder) -> None:
    with pytest.raises(KeyError):
        folder.save_with("x", Mock(side_effect=KeyError("weight")))
