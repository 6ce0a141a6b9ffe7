"""Writers of the same pictures in the layouts that `data.format: source` recognises."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.data.config import SourceConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset

pa = pytest.importorskip("pyarrow")


def records(data: Path) -> list[dict[str, Any]]:
    """The images: path, captions and split."""
    stored = json.loads((data / "dataset_tiny.json").read_text())["images"]
    return [
        {
            "image": f"{one['filepath']}/{one['filename']}",
            "captions": [sentence["raw"] for sentence in one["sentences"]],
            "split": one["split"],
        }
        for one in stored
    ]


def as_csv(data: Path, separator: str = ",") -> Path:
    path = data / f"photos.{'csv' if separator == ',' else 'tsv'}"
    rows = [
        separator.join((one["image"], json.dumps(text), one["split"]))
        for one in records(data)
        for text in one["captions"]
    ]
    empty = [separator * 2] * 2  # as Excel ends a sheet
    path.write_text("\n".join([separator.join(("image", "caption", "split")), *rows, *empty]) + "\n")
    return path


def as_tsv(data: Path) -> Path:
    return as_csv(data, "\t")


def as_parquet(data: Path) -> Path:
    from pyarrow import parquet

    table = pa.Table.from_pylist(records(data))
    kind = table.schema.set(0, pa.field("image", pa.large_string()))  # as pandas writes texts
    parquet.write_table(table.cast(kind), data / "photos.parquet")
    return data / "photos.parquet"


def write_arrow(path: Path, table: Any) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)


def as_arrow(data: Path) -> Path:
    """As `datasets` writes a DatasetDict with embedded images."""
    folder = data.parent / "saved"
    for name, own in (("train", ("train", "restval")), ("validation", ("val",)), ("test", ("test",))):
        rows = [
            {"image": {"bytes": (data / one["image"]).read_bytes(), "path": None}, "caption": one["captions"]}
            for one in records(data)
            if one["split"] in own
        ]
        (folder / name).mkdir(parents=True)
        files = [{"filename": f"data-{number:05d}-of-00002.arrow"} for number in range(2)]
        (folder / name / "state.json").write_text(json.dumps({"_data_files": files}))
        table = pa.Table.from_pylist(rows)
        write_arrow(folder / name / "cache-5d5aa2d76a4ce8d8.arrow", table)  # what `datasets` leaves of a `map`
        for number, part in enumerate((table[:2], table[2:])):
            write_arrow(folder / name / f"data-{number:05d}-of-00002.arrow", part)
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "validation", "test"]}')
    return folder


def add(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    shard.addfile(member, io.BytesIO(content))


def as_shards(data: Path) -> Path:
    folder, of_split = data.parent / "shards", dict[str, list[dict[str, Any]]]()
    folder.mkdir()
    for one in records(data):
        of_split.setdefault(one["split"].replace("restval", "train"), []).append(one)
    for split, rows in of_split.items():
        for start in range(0, len(rows), 3):
            with tarfile.open(folder / f"{split}-{start:06d}.tar", "w") as shard:
                for one in rows[start : start + 3]:
                    key = Path(one["image"]).stem
                    add(shard, f"{key}.png", (data / one["image"]).read_bytes())
                    if start:
                        add(shard, f"{key}.json", json.dumps({"captions": one["captions"]}).encode())
                    else:
                        add(shard, f"{key}.txt", "\n".join(one["captions"]).encode())
    return folder


def as_folder(data: Path) -> Path:
    folder = data.parent / "pictures"
    for one in records(data):
        path = folder / one["split"].replace("restval", "train") / Path(one["image"]).name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((data / one["image"]).read_bytes())
        path.with_suffix(".txt").write_text("\n".join(one["captions"]) + "\n")
    return folder


def opened(path: Path, **settings: Any) -> Dataset:
    """The dataset of a source, with its index beside it."""
    return open_dataset(SourceConfig(name="mine", root=str(path), **settings), path.parent / "indexes")
