"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from goal_sweep.goal_core.basics import atomic


def test_create_is_exclusive_without_hard_links_too(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EPERM, "no links here")))
    assert atomic.create_bytes(tmp_path / "x", b"1")
    assert not atomic.create_bytes(tmp_path / "x", b"2")
    assert (tmp_path / "x").read_bytes() == b"1"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def writers_name(folder) -> str:
    """The name of the temporary file of a write by this process."""
    written: list[str] = []

    def write(path):
        written.append(path.name)
        path.touch()

    atomic.replace_with(folder / "x", write)
    (folder / "x").unlink()
    return written[0]


def test_leftovers_go_only_when_their_writer_is_dead(tmp_path):
    here, dead = writers_name(tmp_path).removeprefix(".x.").rpartition(f"-{os.getpid()}-")[0], 2**22 + 1
    assert here
    names = {
        f".x.{here}-{dead}-0.tmp": False,
        f".best.safetensors.{here}-{os.getpid()}-3.tmp": True,
        ".x.0123456789ab-9-1.tmp": True,
        ".old.0123456789ab-9-2.tmp": False,
        ".foreign.tmp": True,
        "best.safetensors": True,
    }
    for name in names:
        (tmp_path / name).touch()
    os.utime(tmp_path / ".old.0123456789ab-9-2.tmp", (time.time() - 7200,) * 2)
    atomic.remove_leftovers(tmp_path)
    assert {name: (tmp_path / name).exists() for name in names} == names


def test_a_write_whose_temporary_file_is_removed_is_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "RETRY_DELAYS", (0.0,))
    removed: list[Path] = []

    def write(path):
        path.write_bytes(b"content")
        if not removed:
            removed.append(path)
            path.unlink()

    atomic.replace_with(tmp_path / "x", write)
    assert (tmp_path / "x").read_bytes() == b"content"
    with pytest.raises(atomic.StorageError, match="cannot write") as error:
        atomic.replace_with(tmp_path / "gone" / "x", write)
    assert error.value.errno == errno.ENOENT
