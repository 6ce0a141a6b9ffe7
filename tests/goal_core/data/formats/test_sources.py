"""The same pictures in every layout are the same data; what is wrong in one is said in a line."""

import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from goal_sweep.goal_core.basics.errors import DataError, MissingDataError
from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.goal_core.basics.registry import Plugin
from goal_sweep.goal_core.data import DataConfig, Dataset
from goal_sweep.goal_core.data.config import KarpathyConfig, RegionsConfig, SourceConfig
from goal_sweep.goal_core.data.formats.layout import PICTURES
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.formats.pictures import FORMATS
from goal_sweep.goal_core.objectives import ObjectiveConfig
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.region_files import write_regions
from tests.helpers.source_layouts import (
    add,
    as_arrow,
    as_csv,
    as_folder,
    as_parquet,
    as_shards,
    as_tsv,
    opened,
    records,
    write_arrow,
)
from tests.helpers.training_cases import MODEL

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data")


def cell_id(config: DataConfig, dataset: Dataset) -> str:
    settings: dict[str, Any] = {"model": MODEL, "objective": ObjectiveConfig(pair="con", triplet="nca"), "seed": 1}
    sweeps = pytest.importorskip("goal_sweep.sweeps")
    cell = sweeps.cells.Cell(id="", data=config, data_fingerprint=dataset.fingerprint, weights_id="w", **settings)
    return str(sweeps.identity.content_id(sweeps.identity.cell_settings(cell)))


def seen(dataset: Dataset) -> Iterator[tuple[str, list[str], list[bytes]]]:
    for split in dataset.splits.values():
        yield split.name, list(split.captions), [split.load_image(index).tobytes() for index in range(split.num_images)]


@pytest.mark.parametrize("write", [as_csv, as_tsv, as_parquet, as_arrow, as_shards, as_folder])
def test_the_same_pictures_in_another_layout_are_the_same_data(data: Path, write: Callable[[Path], Path]) -> None:
    ours, path = open_dataset(KarpathyConfig(name="tiny", root=str(data))), write(data)
    for _ in range(2):  # made, and kept
        theirs = opened(path)
        assert theirs.fingerprint == ours.fingerprint
        assert list(seen(theirs)) == list(seen(ours))
    other = SourceConfig(name="mine", root=str(path), max_captions=9, caption_column="words")
    assert cell_id(other, theirs) == cell_id(KarpathyConfig(name="tiny", root=str(data)), ours)


@pytest.mark.parametrize("place", ["goal-sweep-store", "train/mine"])
@pytest.mark.parametrize("is_ours", [True, False])
def test_pictures_in_a_store_of_goal_sweep_are_no_data(data: Path, place: str, is_ours: bool) -> None:
    (report := as_folder(data) / place / "report").mkdir(parents=True)
    before = opened(root := report.parents[len(Path(place).parts)]).fingerprint
    (report / "heatmap.png").write_bytes(b"a figure")
    (report.parent / "store.json").write_bytes(json_bytes({"version": 6}, seal=is_ours))
    if is_ours:
        assert opened(root).fingerprint == before
    else:
        with pytest.raises(MissingDataError, match=r"captions of heatmap\.png"):
            opened(root)


@pytest.mark.parametrize("name", ["fold", "subset", "partition", "split"])
@pytest.mark.parametrize("place", ["", "train"])
def test_saved_datasets_may_name_splits_in_a_column(data: Path, name: str, place: str) -> None:
    expected = open_dataset(KarpathyConfig(name="tiny", root=str(data))).fingerprint
    whole = data.parent / "whole"
    folder = whole / place
    folder.mkdir(parents=True)
    rows = [
        {"image": {"bytes": (data / one["image"]).read_bytes()}, "caption": one["captions"], name: one["split"], "x": 1}
        for one in records(data)
    ]
    for number, part in enumerate((rows[:2], rows[2:])):
        write_arrow(folder / f"{number}.arrow", pa.Table.from_pylist(part))
    files = [{"filename": f"{number}.arrow"} for number in range(2)]
    (folder / "state.json").write_text(json.dumps({"_data_files": files}))
    found = opened(whole)
    assert found.fingerprint == expected
    assert [f"split read from column {name!r}" in note for note in found.notes[:1]] == [True] * (name != "split")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("picture,words\na.png,b\n", "name that of the image: data.image_column"),
        ("a.png\tA dog, brown\nb.png\tA cat\n", "has no header: .*a.png"),
        ("1.JPG#0,A dog\n", "has no header: .*1.JPG"),
        ("image,caption,caption\na.png,b,c\n", "two columns 'caption' and 'caption'"),
        ("image,caption_0,caption_1\na.png,b,c\n", "two columns 'caption_0' and .* a row for each caption"),
        ('image,caption\na.png,"b\n', r"photos\.csv:\d: .*end of data"),
        ("", r"photos\.csv is empty"),
        ("image,caption\n,b\n", "row 1: image must be the path of a file"),
        ("image,caption\n../a.png,b\n", "row 1: image must be the path of a file below"),
        (f"image,caption\n{{'bytes': b'{256 * 'x'},b\n", "row 1: image must be the path of a file"),
        ("image,caption,split\npictures/0001.png,b,tests\n", "split must be one of"),
        ("image,caption\npictures/0001.png,\n", "must be a caption"),
        ("image,caption\npictures/0001.png,a cat, sitting\n", "row 1 has more fields than the header"),
        ("image,caption,split\ngone.png,b,train\n", "split 'train' has no images: split val and test drawn from train"),
        ('image,caption,split\n0.png,"a,train\n1.png,b,val\n2.png,c",test\n', "row 1: a cell .* holds other rows"),
        ('image;split;caption\n0.png;train;"a\n1.PNG;val;b"\n2.png;test;c\n', "row 1: a cell .* holds other rows"),
        ('caption\timage\n"a\t0.png\nb"\t1.png\nc\t2.png\n', "row 1: .*; double the quote, or take it away"),
        ("version https://git-lfs.github.com/spec/v1\n", "photos.csv is a Git LFS pointer"),
        ("<!DOCTYPE html><html>", "photos.csv is a web page"),
    ],
)
def test_what_is_wrong_in_a_table_is_said_with_its_place(data: Path, text: str, said: str) -> None:
    (data / "photos.csv").write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        opened(data / "photos.csv")
    assert "\n" not in str(caught.value)


def test_a_source_that_is_nothing_known_says_what_could_be(data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no table .*, no shard .* and no folder with"):
        opened(tmp_path / "empty")
    with pytest.raises(DataError, match="is no table"):
        opened(data / "dataset_tiny.json")
    with zipfile.ZipFile(tmp_path / "book.csv", "w") as book:
        book.writestr("xl/workbook.xml", "<workbook/>")
    with pytest.raises(DataError, match=r"book\.csv is a zip archive, as Excel writes"):
        opened(tmp_path / "book.csv")
    (tmp_path / "x.tar").write_bytes(b"no tar")
    with pytest.raises(DataError, match="not a whole, uncompressed tar file"):
        opened(tmp_path / "x.tar")


def arrow_of(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Path], Path]:
    """A folder that `datasets` saved, whose last row of train is another."""

    def write(data: Path) -> Path:
        path = as_arrow(data) / "train/data-00001-of-00002.arrow"
        with pa.OSFile(str(path)) as file:
            rows = pa.ipc.open_stream(file).read_all().to_pylist()
        write_arrow(path, pa.Table.from_pylist([*rows[:-1], change(rows[-1])]))
        return path.parents[1]

    return write


def shard_of(members: list[tuple[str, bytes]], name: str = "train-000009.tar") -> Callable[[Path], Path]:
    """Shards with one more."""

    def write(data: Path) -> Path:
        folder = as_shards(data)
        with tarfile.open(folder / name, "w") as shard:
            for member, content in members:
                add(shard, member, content)
        return folder

    return write


def a_shard_of(data: Path) -> tuple[Path, Path]:
    folder = as_shards(data)
    return folder, min(folder.glob("train*.tar"))


def test_a_shard_that_is_cut_between_members_is_named_until_it_is_ended(data: Path) -> None:
    folder, path = a_shard_of(data)
    with tarfile.open(path) as shard:
        *_, before, last = shard
    whole, end = path.read_bytes(), last.offset_data + -(-last.size // 512) * 512
    damaged = whole[: last.offset] + b"damage" + whole[last.offset + 6 :]
    for content in (whole[: before.offset], whole[:end], whole[: end + 512], damaged, whole + whole):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{path.name} is cut, or goes on after its end.*truncate -s \+1024"):
            opened(folder)
    path.write_bytes(whole[:end] + bytes(1024))
    assert opened(folder)


def picture_of(name: bytes, captions: bytes) -> Callable[[Path], Path]:
    """A folder of pictures with one more."""

    def write(data: Path) -> Path:
        folder = as_folder(data)
        place = os.fsencode(folder / "train") + b"/" + name
        for end, content in ((b".png", (data / "pictures/0003.png").read_bytes()), (b".txt", captions)):
            Path(os.fsdecode(place + end)).write_bytes(content)
        return folder

    return write


def parquet_of(change: dict[str, Any]) -> Callable[[Path], Path]:
    """A table whose third row is another."""

    def write(data: Path) -> Path:
        from pyarrow import parquet

        rows = records(data)
        rows[2] |= change
        parquet.write_table(pa.Table.from_pylist(rows), data / "photos.parquet")
        return data / "photos.parquet"

    return write


TEXT, PICTURE = ("a.txt", b"one\n"), ("a.png", b"picture")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (
            arrow_of(lambda row: row | {"caption": None}),
            r"data-00001-of-00002\.arrow, row \d+: caption must be a caption",
        ),
        (arrow_of(lambda row: row | {"image": {"bytes": None, "path": "a.png"}}), r"row \d+: image holds no image"),
        (parquet_of({"image": None}), "row 3: image must be the path"),
        (parquet_of({"captions": None}), "row 3: captions must be a caption"),
        (parquet_of({"split": None}), "image pictures/0002.png has no split"),
        (shard_of([PICTURE, ("a.jpg", b"another"), TEXT]), "train-000009.tar/a must have one picture"),
        (shard_of([PICTURE, ("a.txt", b"fine\n\xff")]), r"a\.txt:2 is not UTF-8"),
        (shard_of([PICTURE, ("a.json", b'{"caption": "\\ud800"}')]), r"a\.json: caption must be a caption in UTF-8"),
        (shard_of([PICTURE, TEXT], "device-000000.tar"), "image device-000000.tar/a has no split"),
        (picture_of(b"b\xe4r", b"a bear\n"), "image must be the path of a file .* in UTF-8"),
    ],
)
def test_what_is_wrong_in_a_source_is_said_with_its_place(data: Path, write: Callable[[Path], Path], said: str) -> None:
    path = write(data)
    with pytest.raises(DataError, match=said) as caught:
        opened(path)
    assert "\n" not in str(caught.value)


def test_files_that_are_damaged_missing_or_folders_are_said_without_an_error_number(data: Path) -> None:
    saved = as_arrow(data)
    arrow = saved / "train/data-00000-of-00002.arrow"
    whole = arrow.read_bytes()
    for content in (b"", b"no arrow", whole[: len(whole) // 2]):
        arrow.write_bytes(content)
        with pytest.raises(DataError, match=r"data-00000-of-00002\.arrow is not an Arrow file"):
            opened(saved)
    arrow.unlink()
    with pytest.raises(MissingDataError, match=r"data-00000-of-00002\.arrow is missing"):
        opened(saved)
    folder = as_folder(data)
    (folder / "train/0003.txt").unlink()
    (folder / "train/0003.txt").mkdir()
    with pytest.raises(DataError, match=r"0003\.txt: it is not a file") as caught:
        opened(folder)
    assert "Errno" not in str(caught.value)
    (folder / "train/0003.txt").rmdir()
    os.mkfifo(folder / "train/0003.txt")
    with pytest.raises(DataError, match=r"0003\.txt: it is not a file"):
        opened(folder)
    (folder / "train/0003.txt").unlink()
    (folder / "train/round").symlink_to(folder)
    with pytest.raises(DataError, match=r"round and .* are one folder; remove the link"):
        opened(folder)


@pytest.mark.parametrize("place", ["train", "val"])
def test_a_linked_folder_of_pictures_is_followed_where_that_is_allowed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    folder, elsewhere = as_folder(data), tmp_path / "elsewhere"
    expected = opened(folder).fingerprint
    (folder / place).rename(elsewhere)
    (folder / place).symlink_to(elsewhere)
    with pytest.raises(DataError, match=f"{place} is a link to .*GOAL_LINKED_DATA"):
        opened(folder)
    monkeypatch.setenv("GOAL_LINKED_DATA", f"/nowhere:{elsewhere}")
    assert opened(folder).fingerprint == expected
    monkeypatch.delenv("GOAL_LINKED_DATA")
    elsewhere.rename(folder / ".kept")
    (folder / place).unlink()
    (folder / place).symlink_to(".kept")
    assert opened(folder).fingerprint == expected


@pytest.mark.parametrize(
    ("write", "pattern"),
    [
        (as_shards, "*.tar"),
        (as_folder, "**/*.txt"),
        (as_arrow, "**/*.arrow"),
        (lambda data: write_dataset(data / "made"), "*.json"),
        (lambda data: write_regions(data / "made"), "train_caps.txt"),
        (lambda data: write_regions(data / "made"), "dev_ims.npy"),
    ],
)
def test_no_file_may_be_a_link_out_of_its_folder_unless_that_is_listed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], Path], pattern: str
) -> None:
    root, elsewhere = write(data), tmp_path / "elsewhere"
    kinds = {"*.json": KarpathyConfig, "train_caps.txt": RegionsConfig, "dev_ims.npy": RegionsConfig}
    config = kinds.get(pattern, SourceConfig)(name="linked", root=str(root))
    expected = open_dataset(config).fingerprint
    elsewhere.mkdir()
    link = next(iter(root.glob(pattern)))
    link.rename(elsewhere / link.name)
    link.symlink_to(elsewhere / link.name)
    with pytest.raises(DataError, match=f"{link.name} is a link to .*GOAL_LINKED_DATA"):
        open_dataset(config)
    monkeypatch.setenv("GOAL_LINKED_DATA", str(elsewhere))
    assert open_dataset(config).fingerprint == expected
    monkeypatch.delenv("GOAL_LINKED_DATA")
    (elsewhere / link.name).rename(root / "within")
    link.unlink()
    link.symlink_to("within" if link.parent == root else root / "within")
    assert open_dataset(config).fingerprint == expected


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise SystemExit(0)", "after row 0: SystemExit"),
        ("yield 1 / 0", "after row 0: ZeroDivisionError: division by zero"),
        ('yield Row("../a.png", ["b"])', "row 1: image must be the path of a file below"),
        ('yield "pictures/0001.png", []', "row 1: captions holds no caption"),
        ('yield Row("pictures/0001.png", ["b"], "tests")', "row 1: split must be one of"),
        ('return [("a.png", ["x"], "train", (1,), "k")]', "row 1: span must be"),
        ('return [("a.png", ["x"], "train", (-1, 5), "k")]', "row 1: span must be"),
        (f'return [("a.png", ["x"], "train", (0, {10**30}), "k")]', "row 1: span must be"),
    ],
)
def test_an_importer_that_ends_or_says_nonsense_is_named(data: Path, body: str, said: str) -> None:
    name = f"odd_{abs(hash(body))}"
    text = "from goal_sweep.data import Row, importers\n\n@importers.register('NAME')\ndef read(root):\n    BODY\n"
    Plugin(name="odd.py", text=text.replace("NAME", name).replace("BODY", body)).run()
    with pytest.raises(DataError, match=rf"plugin odd\.py: {name}, {said}") as caught:
        opened(data, importer=name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["backup.tar", "old/backup.tar", "train/x/9.TAR"])
def test_a_shard_among_pictures_with_captions_is_refused(data: Path, place: str) -> None:
    shard, folder = a_shard_of(data)[1], as_folder(data)
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    shard.rename(folder / place)
    with pytest.raises(DataError, match=rf"{place} is a shard, .*0.*\.txt the captions of a picture; move one away"):
        opened(folder)


@pytest.mark.parametrize("place", [".git/x", "@eaDir", "train/.ipynb_checkpoints"])
def test_hidden_folders_are_no_data(data: Path, place: str) -> None:
    folder = as_folder(data)
    expected = opened(folder).fingerprint
    (folder / place).mkdir(parents=True)
    for end in (".png", ".txt"):
        (folder / place / f"a{end}").write_bytes((folder / f"train/0001{end}").read_bytes())
    (folder / place / "a.tar").write_bytes(b"")
    assert opened(folder).fingerprint == expected


@pytest.mark.parametrize("ending", [".jfif", ".JPE", ".ppm"])
def test_pictures_with_rare_endings_are_read(data: Path, ending: str) -> None:
    folder = as_folder(data)
    expected = opened(folder).fingerprint
    (folder / "train/0001.png").rename(folder / f"train/0001{ending}")
    (folder / f"train/0002{ending}").write_bytes(b"a mask beside a picture")
    found = opened(folder)
    assert found.fingerprint == expected
    assert "1 files left out, of another format or without captions, such as" in found.notes[0]


@pytest.mark.parametrize("ending", [".heic", ".avif", ""])
def test_captions_of_what_is_no_known_picture_are_said(data: Path, ending: str) -> None:
    folder = as_folder(data)
    (folder / "train/0001.png").rename(folder / f"train/0001{ending}")
    assert f"1 files left out, of another format or without captions, such as {folder}" in opened(folder).notes[0]


def test_all_endings_of_the_formats_are_known() -> None:
    Image.init()
    endings = {end for end, kind in Image.registered_extensions().items() if kind in FORMATS}
    assert endings == {*PICTURES}
