"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import time

from goal_core.basics import atomic


def test_create_is_exclusive_without_hard_links_too(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(atomic.os, "link", refuse)
    assert atomic.create_bytes(tmp_path / "x", b"1")
    assert not atomic.create_bytes(tmp_path / "x", b"2")
    assert (tmp_path / "x").read_bytes() == b"1"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_leftovers_go_only_when_their_writer_is_dead(tmp_path):
    written: list[str] = []

    def write(path):
        written.append(path.name)
        path.touch()

    atomic.replace_with(tmp_path / "x", write)
    host, dead = written[0].removeprefix(".x.").rpartition(f"-{os.getpid()}-")[0], 2**22 + 1
    assert host
    (tmp_path / "x").unlink()
    names = {
        f".x.{host}-{dead}-0.tmp": False,
        f".best.safetensors.{host}-{os.getpid()}-3.tmp": True,
        ".x.other-host-9-1.tmp": True,
        ".old.other-host-9-2.tmp": False,
        ".foreign.tmp": True,
        "best.safetensors": True,
    }
    for name in names:
        (tmp_path / name).touch()
    os.utime(tmp_path / ".old.other-host-9-2.tmp", (time.time() - 7200,) * 2)
    atomic.remove_leftovers(tmp_path)
    assert {name: (tmp_path / name).exists() for name in names} == names
