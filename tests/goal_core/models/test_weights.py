"""What identifies the weights that a model starts from."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from goal_sweep.goal_core.models.weights import file_sha256


@pytest.mark.parametrize("how", ["in place", "by another file"])
def test_a_file_replaced_by_one_of_the_same_size_and_time_is_read_again(tmp_path: Path, how: str) -> None:
    path, other = tmp_path / "w.safetensors", tmp_path / "other"
    path.write_bytes(b"one weight")
    before = path.stat()
    assert file_sha256(path) == hashlib.sha256(b"one weight").hexdigest()

    while time.time_ns() <= before.st_ctime_ns + 100_000_000:  # a file system counts in steps of some milliseconds
        time.sleep(0.01)
    (path if how == "in place" else other).write_bytes(b"two weight")
    if how != "in place":
        other.rename(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert file_sha256(path) == hashlib.sha256(b"two weight").hexdigest()
