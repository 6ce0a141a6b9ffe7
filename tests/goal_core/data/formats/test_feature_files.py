from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal_core.basics.atomic import StorageError
from goal_core.basics.errors import DataError
from goal_core.data.formats import FeatureFile, read_region_header

ROWS = np.arange(5 * 2 * 3, dtype=np.float32).reshape(5, 2, 3)


def test_rows_that_no_note_vouches_for_are_written_again(tmp_path: Path) -> None:
    path = tmp_path / "x_ims.npy"
    with FeatureFile(path, (5, 2, 3), "key") as file:
        file.append(ROWS[:2])
    assert not path.exists()
    with (tmp_path / ".x_ims.npy.partial").open("ab") as torn:
        torn.write(b"half a row")
    with FeatureFile(path, (5, 2, 3), "key") as file:
        assert file.num_rows == 2
        file.append(ROWS[2:])
    assert np.array_equal(np.load(path), ROWS)
    assert [found.name for found in tmp_path.iterdir()] == ["x_ims.npy"]


@pytest.mark.parametrize("damage", ["key", "shape", "note", "data"])
def test_what_does_not_fit_begins_anew(tmp_path: Path, damage: str) -> None:
    path, shape = tmp_path / "x_ims.npy", (5, 2, 3)
    with FeatureFile(path, (6, 2, 3) if damage == "shape" else shape, "old" if damage == "key" else "key") as file:
        file.append(ROWS[:2] + 100)
    if damage == "note":
        (tmp_path / ".x_ims.npy.partial.json").write_text("{")
    if damage == "data":
        os.truncate(tmp_path / ".x_ims.npy.partial", 140)
    with FeatureFile(path, shape, "key") as file:
        assert file.num_rows == 0  # and the writer is killed before it has written a row
    with FeatureFile(path, shape, "key") as file:
        assert file.num_rows == 0
        file.append(ROWS)
    assert np.array_equal(np.load(path), ROWS)


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "x_ims.npy"
    with FeatureFile(path, (5, 2, 3), "key") as file:
        file.append(ROWS[:2])
        with (
            pytest.raises(DataError, match=r"another process is writing .*x_ims\.npy"),
            FeatureFile(path, (5, 2, 3), "key"),
        ):
            pass
        file.append(ROWS[2:])
    assert np.array_equal(np.load(path), ROWS)


def test_a_writer_that_waited_does_not_touch_the_finished_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lock = tmp_path / "x_ims.npy", fcntl.flock

    def finished_meanwhile(file: Any, how: int) -> None:
        os.replace(tmp_path / ".x_ims.npy.partial", path)
        lock(file, how)

    with FeatureFile(path, (5, 2, 3), "key") as file:
        file.append(ROWS[:2])
    monkeypatch.setattr(fcntl, "flock", finished_meanwhile)
    with pytest.raises(DataError, match="another process is writing"), FeatureFile(path, (5, 2, 3), "key"):
        pass
    assert path.stat().st_size > 128


@pytest.mark.parametrize("extra", [b"", b"half a row"])
def test_a_continued_file_has_exactly_the_size_its_header_says(tmp_path: Path, extra: bytes) -> None:
    path = tmp_path / "x_ims.npy"
    with FeatureFile(path, (5, 2, 3), "key") as file:
        file.append(ROWS[:2])
    partial = tmp_path / ".x_ims.npy.partial"
    partial.write_bytes(partial.read_bytes()[: 128 + ROWS[:2].nbytes] + extra)  # only what the note vouches for
    with FeatureFile(path, (5, 2, 3), "key") as file:
        assert file.num_rows == 2
        file.append(ROWS[2:])
    assert read_region_header(path, ("images", "regions", "features")).shape == (5, 2, 3)
    assert np.array_equal(np.load(path), ROWS)


def test_a_full_disk_is_refused_before_a_row_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with (
        pytest.raises(StorageError, match=r"cannot write .*x_ims\.npy: No space left on device: free space there"),
        FeatureFile(tmp_path / "x_ims.npy", (5, 2, 3), "key"),
    ):
        pass
    monkeypatch.undo()
    with FeatureFile(tmp_path / "x_ims.npy", (5, 2, 3), "key") as file:
        file.append(ROWS)
    assert np.array_equal(np.load(tmp_path / "x_ims.npy"), ROWS)
