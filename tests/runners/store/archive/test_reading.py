"""Archives that are damaged, too large or made up: each is refused in one line, before anything is added."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.runners.cli.app import run
from goal_sweep.runners.store.archive import export_results, reading
from tests.helpers.archive_cases import (
    Files,
    edited,
    files_in,
    finished_sweep,
    first,
    recounted,
    rewritten,
    write_archive,
)

END = b"\0" * 1024


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    sweep = finished_sweep(folder / "there")
    export_results(sweep, sweep.store, folder / "results.tar.gz")
    return folder / "results.tar.gz"


@pytest.fixture
def archive(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(good, tmp_path / "results.tar.gz"))


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Path], str]:
    """Import an archive. The command says one line and exits with 2, and the store has not come into being."""

    def import_(archive: Path) -> str:
        assert run(["import", str(archive), "--store", str(tmp_path / "here")]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        (line,) = err.splitlines()
        assert line.startswith(f"error: {archive}")
        assert line.isprintable()
        assert not (tmp_path / "here").exists()
        return str(line)

    return import_


def flipped(data: bytes, share: float) -> bytes:
    place = int(len(data) * share)
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_flipped_bit(archive: Path, refused: Callable[[Path], str], share: float) -> None:
    archive.write_bytes(flipped(archive.read_bytes(), share))
    refused(archive)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
def test_a_file_that_was_cut_short(archive: Path, refused: Callable[[Path], str], share: float) -> None:
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * share)])
    refused(archive)


def test_a_file_that_lacks_its_last_byte(archive: Path, refused: Callable[[Path], str]) -> None:
    archive.write_bytes(archive.read_bytes()[:-1])
    refused(archive)


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_an_archive_that_was_cut_short_before_it_was_packed(
    archive: Path, refused: Callable[[Path], str], share: float
) -> None:
    content = gzip.decompress(archive.read_bytes()).rstrip(b"\0")  # without the end of a tar
    archive.write_bytes(gzip.compress(content[: int(len(content) * share) // 512 * 512] + END))
    refused(archive)


def damage(files: Files) -> None:
    name = first(files, "result.json")
    files[name] = files[name].replace(b"42.0", b"99.0")


def lose(files: Files) -> None:
    del files[first(files, ".jsonl")]


def lose_the_sweep(files: Files) -> None:
    del files["sweep.json"]


def smuggle(files: Files) -> None:
    files[f"cells/{'0' * 16}/frozen-{'0' * 16}/result.json"] = b"{}"


def of_another_version(files: Files) -> None:
    edited(files, "sweep.json", version=99)


def of_another_format(files: Files) -> None:
    edited(files, "sweep.json", format="results")


def edit_the_sweep(files: Files) -> None:
    files["sweep.json"] = files["sweep.json"].replace(b"scenes", b"Scenes")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (damage, "result.json is damaged"),
        (lose, "it has 12 of its 13 files"),
        (lose_the_sweep, "it does not begin with sweep.json"),
        (smuggle, "result.json is damaged"),
        (of_another_version, "it has version 99, and this goal-sweep reads 4"),
        (of_another_format, "it does not begin with sweep.json"),
        (edit_the_sweep, "does not match its checksum"),
    ],
)
def test_what_no_export_has_written(
    archive: Path, refused: Callable[[Path], str], change: Callable[[Files], None], said: str
) -> None:
    assert said in refused(rewritten(archive, change))


@pytest.mark.parametrize(
    "name",
    [
        "../../evil.json",
        "/tmp/evil.json",
        f"cells/{'0' * 16}/../../../evil.json",
        f"cells/{'0' * 16}/frozen-{'0' * 16}/../../x/result.json",
        f"cells/{'0' * 16}/frozen-{'0' * 16}/best-3.1.safetensors",
        f"cells/{'0' * 16}/frozen-{'0' * 16}/attempts/x.json",
        "cells\\evil",
        "\x1b[2Jevil",
        "store.json",
    ],
)
def test_a_name_that_no_export_writes(archive: Path, refused: Callable[[Path], str], name: str) -> None:
    before = set(archive.parent.parent.rglob("evil*"))
    assert "does not belong in an archive" in refused(recounted(archive, lambda files: files.update({name: b"{}"})))
    assert set(archive.parent.parent.rglob("evil*")) == before
    assert not Path("/tmp/evil.json").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_member_that_is_no_file(archive: Path, refused: Callable[[Path], str], kind: bytes) -> None:
    def add(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(f"cells/{'0' * 16}/frozen-{'0' * 16}/result.json")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)

    assert "does not belong in an archive" in refused(write_archive(archive, files_in(archive), add))


def test_a_name_that_comes_twice(archive: Path, refused: Callable[[Path], str]) -> None:
    files = files_in(archive)

    def add(tar: tarfile.TarFile) -> None:
        name = first(files, "result.json")
        member = tarfile.TarInfo(name)
        member.size = len(files[name])
        tar.addfile(member, io.BytesIO(files[name]))

    assert "result.json does not belong" in refused(write_archive(archive, files, add))


class _Zeros(io.RawIOBase):
    """Many zeros, of which none is kept."""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return bytes(size)


@pytest.mark.parametrize("name", [f"cells/{'0' * 16}/frozen-{'0' * 16}/metrics.1.jsonl", "sweep.json"])
def test_a_file_that_unpacks_to_more_than_any_export_writes(
    archive: Path, refused: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(reading, "MAX_FILE", 2**20)
    files = {} if name == "sweep.json" else files_in(archive)

    def add(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(name)
        member.size = 2**21
        tar.addfile(member, _Zeros())

    write_archive(archive, files, add)
    assert archive.stat().st_size < 2**18
    refused(archive)


def test_many_files_that_unpack_to_more_than_any_export_writes(
    archive: Path, refused: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading._Unpacked, "_left", 20_000)
    assert "it unpacks to more than" in refused(archive)


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "nothing"])
def test_a_file_without_end_is_not_read(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = {"device": Path("/dev/zero"), "pipe": tmp_path / "pipe", "folder": tmp_path}.get(kind, tmp_path / "none")
    if kind == "pipe":
        os.mkfifo(path)
    assert run(["import", str(path), "--store", str(tmp_path / "here")]) == 2
    assert ("there is no file" if kind == "nothing" else "is not a regular file") in capsys.readouterr().err


def a_zip(archive: Path) -> None:
    archive.write_bytes(b"PK\x03\x04 of an earlier version")


def a_plain_tar(archive: Path) -> None:
    archive.write_bytes(gzip.decompress(archive.read_bytes()))


def a_text(archive: Path) -> None:
    archive.write_text("name: scenes\n")


@pytest.mark.parametrize("make", [a_zip, a_plain_tar, a_text])
def test_a_file_of_another_kind(archive: Path, refused: Callable[[Path], str], make: Callable[[Path], None]) -> None:
    make(archive)
    assert "is not an archive of results" in refused(archive)


def not_a_sweep(files: Files) -> None:
    edited(files, "sweep.json", sweep={"name": "x"})


def too_many_cells(files: Files) -> None:
    import json

    sweep = json.loads(files["sweep.json"])["sweep"]
    edited(files, "sweep.json", sweep={**sweep, "seeds": list(range(1, 20_002))})


def no_weights(files: Files) -> None:
    edited(files, "sweep.json", weights={})


def weights_of_another_type(files: Files) -> None:
    edited(files, "sweep.json", weights={"test_byobnet": 7})


def of_another_sweep(files: Files) -> None:
    edited(files, "sweep.json", data_fingerprint="another")


def no_result(files: Files) -> None:
    del files[first(files, "result.json")]


def no_records(files: Files) -> None:
    del files[first(files, ".jsonl")]


def other_records(files: Files) -> None:
    name = first(files, ".jsonl")
    files[name] = b"".join(files[name].splitlines(keepends=True)[:-1])


def of_another_training(files: Files) -> None:
    edited(files, first(files, "result.json"), stage_key="0" * 16)


def states_a_foreign_file(files: Files) -> None:
    name = first(files, "result.json")
    stated = {"name": "/etc/passwd", "bytes": 9, "sha256": "0" * 64, "modified_ns": 1}
    edited(files, name, files={"best.safetensors": stated})


def not_a_number(files: Files) -> None:
    edited(files, first(files, "result.json"), metrics={"test/rsum": "high"})


def without_a_checksum(files: Files) -> None:
    files[first(files, "result.json")] = b'{"status": "done"}'


CONTENTS: dict[Callable[[Files], None], str] = {
    not_a_sweep: "not a valid stored SweepConfig",
    too_many_cells: "more than 20000 cells",
    no_weights: "test_byobnet",
    weights_of_another_type: "",
    of_another_sweep: "results of another sweep",
    no_result: "parts of one",
    no_records: "metrics.1.jsonl is missing",
    other_records: "metrics.1.jsonl is damaged",
    of_another_training: "is the result of another training",
    states_a_foreign_file: "its files have",
    not_a_number: "metrics",
    without_a_checksum: "result.json is damaged",
}


@pytest.mark.parametrize(("change", "said"), CONTENTS.items(), ids=[change.__name__ for change in CONTENTS])
def test_contents_that_a_store_would_not_read(
    archive: Path, refused: Callable[[Path], str], change: Callable[[Files], None], said: str
) -> None:
    assert said in refused(recounted(archive, change))


def test_values_that_json_does_not_have(archive: Path, refused: Callable[[Path], str]) -> None:
    def nest(files: Files) -> None:
        files["sweep.json"] = b'{"sweep": ' + b"[" * 5000 + b"]" * 5000 + b"}"

    refused(recounted(archive, nest))
    refused(recounted(archive, lambda files: files.update({"sweep.json": json_bytes(["a list"])})))
