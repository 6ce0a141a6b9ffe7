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
from goal_core.data.formats import REGION_AXES, FeatureFile, read_region_header

ROWS = np.arange(5 * 2 * 3, dtype=np.float32).reshape(5, 2, 3)


def writer(path: Path, shape: tuple[int, ...] = (5, 2, 3), key: str = "key") -> FeatureFile:
    return FeatureFile(path, shape, key, part=2)


@pytest.mark.parametrize("torn", [b"", b"half a row"])
def test_the_last_part_of_a_killed_writer_is_written_again(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "x_ims.npy"
    with writer(path) as file:
        file.append(ROWS[:2])
        file.append(ROWS[2:4])
    assert not path.exists()
    (partial,) = tmp_path.iterdir()
    with partial.open("ab") as file:
        file.write(torn)
    with writer(path) as file:
        assert file.num_rows == 2
        file.append(ROWS[2:4])
        file.append(ROWS[4:])
    assert np.array_equal(np.load(path), ROWS)
    assert read_region_header(path, REGION_AXES).shape == (5, 2, 3)
    assert [left.name for left in tmp_path.iterdir()] == ["x_ims.npy"]


@pytest.mark.parametrize("damage", ["key", "shape", "data"])
def test_what_does_not_fit_begins_anew(tmp_path: Path, damage: str) -> None:
    path, shape = tmp_path / "x_ims.npy", (5, 2, 3)
    with writer(path, (6, 2, 3) if damage == "shape" else shape, "old" if damage == "key" else "key") as file:
        file.append(ROWS[:2] + 100)
        file.append(ROWS[2:4] + 100)
    if damage == "data":
        (partial,) = tmp_path.iterdir()
        os.truncate(partial, 180)
    with writer(path) as file:
        assert file.num_rows == 0  # and the writer is killed before it has written a row
    with writer(path) as file:
        assert file.num_rows == 0
        for start in (0, 2, 4):
            file.append(ROWS[start : start + 2])
    assert np.array_equal(np.load(path), ROWS)


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "x_ims.npy"
    with writer(path) as file:
        file.append(ROWS[:2])
        with (
            pytest.raises(DataError, match=r"another process is writing .*x_ims\.npy"),
            writer(path),
        ):
            pass
        file.append(ROWS[2:])
    assert np.array_equal(np.load(path), ROWS)


def test_a_writer_that_waited_does_not_touch_the_finished_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lock = tmp_path / "x_ims.npy", fcntl.flock

    def finished_meanwhile(file: Any, how: int) -> None:
        os.replace(next(tmp_path.glob(".x_ims.npy.*.partial")), path)
        lock(file, how)

    with writer(path) as file:
        file.append(ROWS[:2])
    monkeypatch.setattr(fcntl, "flock", finished_meanwhile)
    with pytest.raises(DataError, match="another process is writing"), writer(path):
        pass
    assert path.stat().st_size > 128


def test_a_full_disk_is_one_line_and_the_next_writer_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "x_ims.npy"
    with monkeypatch.context() as patch, writer(path) as file:
        file.append(ROWS[:2])
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"cannot write .*x_ims\.npy: No space left on device: free space there"):
            file.append(ROWS[2:4])
    with writer(path) as file:
        for start in range(file.num_rows, 5, 2):
            file.append(ROWS[start : start + 2])
    assert np.array_equal(np.load(path), ROWS)
