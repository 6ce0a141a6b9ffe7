from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data.formats.features import REGION_AXES, read_region_header
from goal_sweep.goal_core.evaluation.feature_files import write_features

ROWS = np.arange(5 * 2 * 3, dtype=np.float32).reshape(5, 2, 3)


class KilledError(BaseException):
    """Stands for a kill."""


def write(
    path: Path, shape: tuple[int, ...] = (5, 2, 3), key: str = "key", *, kill_at: int = 9, rows: Any = ROWS
) -> int:
    """Write the rows in parts of two, or up to one where the writer is killed: the row at which it began."""
    begun: list[int] = []

    def parts(first: int) -> Iterator[Any]:
        begun.append(first)
        for start in range(first, 5, 2):
            if start >= kill_at:
                raise KilledError
            yield rows[start : start + 2]

    with suppress(KilledError):
        write_features(path, shape, key, 2, parts)
    return begun[0]


@pytest.mark.parametrize("torn", [b"", b"half a row"])
def test_the_last_part_of_a_killed_writer_is_written_again(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "x_ims.npy"
    assert write(path, kill_at=4) == 0
    assert not path.exists()
    (partial,) = tmp_path.iterdir()
    with partial.open("ab") as file:
        file.write(torn)
    assert write(path) == 2
    assert np.array_equal(np.load(path), ROWS)
    assert read_region_header(path, REGION_AXES).shape == (5, 2, 3)
    assert [left.name for left in tmp_path.iterdir()] == ["x_ims.npy"]


@pytest.mark.parametrize("damage", ["key", "shape", "data"])
def test_what_does_not_fit_begins_anew(tmp_path: Path, damage: str) -> None:
    path, shape = tmp_path / "x_ims.npy", (5, 2, 3)
    old = (6, 2, 3) if damage == "shape" else shape
    write(path, old, "old" if damage == "key" else "key", kill_at=4, rows=ROWS + 100)
    if damage == "data":
        (partial,) = tmp_path.iterdir()
        os.truncate(partial, 180)
    assert write(path, kill_at=0) == 0  # and the writer is killed before it has written a row
    assert write(path) == 0
    assert np.array_equal(np.load(path), ROWS)


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "x_ims.npy"

    def parts(first: int) -> Iterator[Any]:
        yield ROWS[:2]
        with pytest.raises(DataError, match=r"another process is writing .*x_ims\.npy"):
            write(path)
        yield ROWS[2:]

    write_features(path, (5, 2, 3), "key", 2, parts)
    assert np.array_equal(np.load(path), ROWS)


def test_a_writer_that_waited_does_not_touch_the_finished_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lock = tmp_path / "x_ims.npy", fcntl.flock

    def finished_meanwhile(file: Any, how: int) -> None:
        os.replace(next(tmp_path.glob(".x_ims.npy.*.partial")), path)
        lock(file, how)

    write(path, kill_at=2)
    monkeypatch.setattr(fcntl, "flock", finished_meanwhile)
    with pytest.raises(DataError, match="another process is writing"):
        write(path)
    assert path.stat().st_size > 128


def test_a_full_disk_is_one_line_and_the_next_writer_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "x_ims.npy"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"cannot write .*x_ims\.npy: No space left on device: free space there"):
            write(path)
    write(path)
    assert np.array_equal(np.load(path), ROWS)
