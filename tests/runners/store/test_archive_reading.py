"""Archives that are damaged, too large or made up: each is refused in one line, before anything is added."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runners.cli.app import run
from runners.store import archive_reading
from runners.store.archive import ArchiveError, export_results, read_archive
from tests.helpers.archive_cases import Files, finished_sweep, first, forged


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    sweep = finished_sweep(folder / "there")
    export_results(sweep, sweep.store, folder / "results.zip", with_provenance=True)
    return folder / "results.zip"


@pytest.fixture
def archive(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(good, tmp_path / "results.zip"))


def refused(archive: Path, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says one line and exits with 2, and the store has not come into being."""
    store = archive.parent / "here"
    assert run(["import", str(archive), "--store", str(store)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert not store.exists()


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    middle = data.index(b"result.json") + 60
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


def each_header(data: bytes, local: int, central: int, size: str, value: int) -> bytes:
    """Set a field in the header and the directory entry of every member."""
    changed = bytearray(data)
    for signature, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        at = data.find(signature)
        while at >= 0:
            struct.pack_into(f"<{size}", changed, at + offset, value)
            at = data.find(signature, at + 4)
    return bytes(changed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "is not an archive of results"),
        (lambda data: b"not a zip file", "is not an archive of results"),
        (cut, "is not an archive of results"),
        (flip, "is not an archive of results"),
        (lambda data: each_header(data, 6, 8, "H", 1), "is encrypted"),
        (lambda data: each_header(data, 6, 8, "H", 1 << 5), "is not an archive of results"),
        (lambda data: each_header(data, 8, 10, "H", 14), "is compressed in a way that no export uses"),
        (lambda data: each_header(data, 8, 10, "H", 99), "is compressed in a way that no export uses"),
        (lambda data: each_header(data, 4, 6, "H", 200), "is not an archive of results"),
        (lambda data: each_header(data, 22, 24, "I", 8_000_000_000 % 2**32), "is larger than"),
        (lambda data: each_header(data, 22, 24, "I", 10), "is not an archive of results"),
    ],
    ids=[
        *("empty", "text", "truncated", "corrupt", "encrypted", "patched", "lzma", "unknown", "version"),
        *("huge", "larger than declared"),
    ],
)
def test_a_file_that_cannot_be_unpacked(
    archive: Path, change: Callable[[bytes], bytes], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.write_bytes(change(archive.read_bytes()))
    refused(archive, said, capsys)


def test_a_bomb_is_refused_by_what_it_declares(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def inflate(files: Files) -> None:
        files[first(files, "result.json")] = bytes(50_000_000)

    refused(forged(archive, inflate), "result.json is larger than 1024 KiB", capsys)


def test_many_files_are_limited_together(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def inflate(files: Files) -> None:
        for name in [name for name in files if name.endswith("log.txt")]:
            files[name] = bytes(2_000_000)

    monkeypatch.setattr(archive_reading, "MAX_TOTAL", 5 * 1024 * 1024)
    refused(forged(archive, inflate), "its files have more than 5 MiB together", capsys)


def test_an_endless_list_of_files_is_not_read(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(archive, "w") as zipped:
        for number in range(300):
            zipped.writestr(f"{number:0>60000}", b"")
    refused(archive, "its list of files is too long", capsys)


def test_a_large_archive_is_not_opened(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with archive.open("r+b") as file:
        file.truncate(2**31)
    refused(archive, "is larger than 1024 MiB", capsys)


def test_two_files_of_one_name(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(archive, "a") as zipped, pytest.warns(UserWarning, match="Duplicate name"):
        zipped.writestr("sweep.json", b"{}")
    refused(archive, "two files of the same name", capsys)


@pytest.mark.parametrize(
    "name",
    [
        *("../../evil.json", "/etc/passwd", "cells/../../x", "cells\\..\\x", "sweep.json/", "cells/"),
        *("cells/0000000000000000/frozen-0000000000000000/best.safetensors", "\x1b[2Jx", "a\nb"),
        "cells/0000000000000000/frozen-0000000000000000/attempts/" + "1" * 5000 + ".json",
    ],
)
def test_a_name_that_no_export_writes(archive: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def add(files: Files) -> None:
        files[name] = b"{}"

    refused(forged(archive, add), "does not belong in an archive", capsys)


def test_a_link_in_an_archive(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No member is unpacked to a file, so a link would lead nowhere; but no export writes one."""
    with zipfile.ZipFile(archive) as zipped:
        members = {member: zipped.read(member) for member in zipped.infolist()}
    with zipfile.ZipFile(archive, "w") as zipped:
        for member, content in members.items():
            if member.filename.endswith("log.txt"):
                member.external_attr = 0o120777 << 16
            zipped.writestr(member, content)
    refused(archive, "log.txt is a link", capsys)


def test_parts_of_another_sweep(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def add(files: Files) -> None:
        files["cells/0000000000000000/cell.json"] = b"{}"

    refused(forged(archive, add), "it holds results of another sweep, or parts of one", capsys)


def test_another_stage_key(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def move(files: Files) -> None:
        folder = first(files, "result.json").rpartition("-")[0]
        for name in [name for name in files if name.startswith(folder)]:
            files[f"{folder}-{'0' * 16}/{name.partition('-')[2].partition('/')[2]}"] = files.pop(name)

    refused(forged(archive, move), "it holds results of another sweep", capsys)


RESULT: dict[str, tuple[Any, str]] = {
    "recall above 100": ({"metrics": {"test/i2t_r10": 100.5}}, "must have test/i2t_r10 from 0 to 100"),
    "negative recall": ({"metrics": {"test/i2t_r1": -1}}, "must have test/i2t_r1 from 0 to 100"),
    "rsum above 600": ({"metrics": {"test/rsum": 601.0}}, "must have test/rsum from 0 to 600"),
    "rsum is not the sum": ({"metrics": {"test/rsum": 300.0}}, "must have rsum 42, got 300"),
    "R@1 above R@5": ({"metrics": {"test/i2t_r1": 9.0}}, "must have i2t_r1 <= i2t_r5"),
    "NaN": ({"metrics": {"test/rsum": float("nan")}}, "is not valid JSON"),
    "NaN as text": ({"metrics": {"test/rsum": "nan"}}, "must have a finite number as test/rsum"),
    "infinity": ({"metrics": {"val/rsum": 1e999}}, "is not valid JSON"),
    "text": ({"metrics": {"test/rsum": "42"}}, "must have a finite number as test/rsum"),
    "true": ({"metrics": {"test/i2t_r1": True}}, "must have a finite number as test/i2t_r1"),
    "list": ({"metrics": {"test/i2t_r1": [1]}}, "must have a finite number as test/i2t_r1"),
    "name": ({"metrics": {"a b\x1b": 1}}, "has a metric that cannot be called"),
    "not done": ({"status": "failed"}, "is not the result of a finished training"),
    "of another training": ({"stage_key": "0" * 16}, "has the stage_key of another training"),
    "of another stage": ({"stage": "other"}, "has the stage of another training"),
    "best epoch 0": ({"best_epoch": 0}, "must have best_epoch from 1"),
    "best epoch beyond": ({"best_epoch": 99}, "must have best_epoch from 1"),
    "best epoch half": ({"best_epoch": 1.5}, "must have best_epoch from 1"),
    "too many epochs": ({"epochs": 10**6}, "must have epochs from 1"),
    "attempt": ({"attempt": "1"}, "must have an attempt from 1"),
    "end of time": ({"finished": 1e300}, "must have finished in seconds since 1970"),
    "no metrics": ({"metrics": None}, "has no mapping of metrics"),
    "other val rsum": ({"metrics": {"val/rsum": 11.0}}, "has another val/rsum than result.json"),
}


@pytest.mark.parametrize(("change", "said"), RESULT.values(), ids=RESULT.keys())
def test_a_result_that_no_training_gives(
    archive: Path, change: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def forge(files: Files) -> None:
        name = first(files, "result.json")
        result = json.loads(files[name])
        metrics = change.get("metrics", {})
        merged = {"metrics": None if metrics is None else result["metrics"] | metrics}
        files[name] = json.dumps({**result, **change, **merged}).encode()

    refused(forged(archive, forge), said, capsys)


@pytest.mark.parametrize(
    ("end", "content", "said"),
    [
        ("result.json", b"{", "is not valid JSON"),
        ("result.json", b"[]", "is not a JSON object"),
        ("result.json", b"\xff\xfe", "is not valid JSON"),
        ("result.json", b'{"a":' * 100_000, "is not valid JSON"),
        ("result.json", b'{"status": "done", "best_epoch": 1, "metrics": {}}', "lacks the metrics test/i2t_r1"),
        ("metrics.jsonl", b"{}\n", "is not epoch 1"),
        ("metrics.jsonl", b'{"epoch": 2, "metrics": {}}\n', "is not epoch 1"),
        ("metrics.jsonl", b'{"epoch": 1, "metrics": {"val/rsum": "nan"}}\n', "finite number as val/rsum"),
        ("metrics.jsonl", b'{"epoch": 1, "metrics": {"val/i2t_r1": 101}}\n', "val/i2t_r1 from 0 to 100"),
        ("metrics.jsonl", b'{"epoch": 1, "time": "x", "metrics": {}}\n', "time in seconds"),
        ("metrics.jsonl", b"{}\n" * 1000, "epochs"),
        ("cell.json", b"{}", "has another id than the sweep's cell"),
        ("attempts/1.json", b"{}", "n: "),
        ("triplets.npz", b"not a record", "is not a triplet record"),
        ("sweep.json", b"{}", "is not an archive of results: KeyError"),
        ("sweep.json", b'{"sweep": {}, "data_fingerprint": "f", "weights": {}}', "sweep.json: not a valid stored"),
        ("sweep.json", b'{"sweep": {}, "data_fingerprint": 1, "weights": {}}', "fingerprint"),
    ],
)
def test_a_file_that_says_something_else(
    archive: Path, end: str, content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def forge(files: Files) -> None:
        files[first(files, end)] = content

    refused(forged(archive, forge), said, capsys)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n": 2}, "is not attempt 1"),
        ({"pid": "x"}, "pid"),
        ({"started": 1e300}, "seconds since 1970"),
        ({"outcome": "won"}, "outcome"),
        ({"git_diff_sha256": "<script>"}, "in hex"),
        ({"versions": {"torch": 2}}, "versions"),
    ],
)
def test_an_attempt_that_no_worker_writes(
    archive: Path, change: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def forge(files: Files) -> None:
        name = first(files, "attempts/1.json")
        files[name] = json.dumps({**json.loads(files[name]), **change}).encode()

    refused(forged(archive, forge), said, capsys)


def test_a_sweep_of_a_billion_cells_is_not_expanded(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def forge(files: Files) -> None:
        described = json.loads(files["sweep.json"])
        described["sweep"]["seeds"] = list(range(20_000))
        files["sweep.json"] = json.dumps(described).encode()

    refused(forged(archive, forge), "has more than 20000 cells", capsys)


@pytest.mark.parametrize("weight", [np.zeros((10**5, 2)), np.array([{}], dtype=object), np.zeros((80, 80), "S1")])
def test_a_triplet_record_of_another_shape(archive: Path, weight: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def forge(files: Files) -> None:
        name = first(files, "triplets.npz")
        with np.load(io.BytesIO(files[name])) as record:
            arrays = {key: record[key] for key in record.files}
        changed = io.BytesIO()
        np.savez_compressed(changed, **(arrays | {"weight": weight}))
        files[name] = changed.getvalue()

    refused(forged(archive, forge), "is not a triplet record", capsys)


def test_a_triplet_record_that_declares_a_huge_array(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def forge(files: Files) -> None:
        name = first(files, "triplets.npz")
        packed = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(files[name])) as old, zipfile.ZipFile(packed, "w") as new:
            for member in old.namelist():
                header = b"(80, 8" + b"0" * 12 + b"), }"
                new.writestr(member, old.read(member).replace(b"(80, 80), }" + b" " * 12, header))
        files[name] = packed.getvalue()

    refused(forged(archive, forge), "is not a triplet record", capsys)


def test_the_name_of_an_archive_cannot_command_a_terminal(archive: Path) -> None:
    assert read_archive(archive.rename(archive.with_name("a\x1b[2J\n.zip"))).name == "a?[2J?.zip"


def test_a_file_that_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.zip"):
        with pytest.raises(ArchiveError, match="is not an archive of results"):
            read_archive(path)


@pytest.mark.parametrize("uri", ["ftp://host/x", "sqlite://", "./mlruns", "no database"])
def test_a_tracking_uri_is_checked_before_anything_is_added(
    archive: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (archive.parent / "text.db").write_text("this is no database")
    uri = f"sqlite:///{archive.parent}/text.db" if uri == "no database" else uri
    store = archive.parent / "here"
    assert run(["import", str(archive), "--store", str(store), "--tracking-uri", uri]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert not store.exists()
