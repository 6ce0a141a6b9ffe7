"""Tables and shards as people have them: lists in cells, other separators, splits that are not given."""

import csv
import io
import json
import re
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data.dataset import SPLIT_NAMES, Row
from goal_sweep.goal_core.data.formats.layout import drawn_splits, with_splits
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.source_layouts import add, as_csv, opened


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data")


def written(folder: Path, text: str) -> Path:
    """A table beside three pictures."""
    for number in range(3):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
    (folder / "t.csv").write_text(text, newline="")
    return folder / "t.csv"


def test_splits_of_few_images_are_drawn_with_exact_shares(data: Path) -> None:
    few = [f"{number}" for number in range(40)]
    drawn = drawn_splits(few, 0.1, 0.2)
    assert Counter(drawn.values()) == {"train": 28, "val": 4, "test": 8}
    assert drawn_splits(few[::-1], 0.1, 0.2) == drawn
    for place in ("a/{}.png", "shard-0.tar/b/{}", "x.arrow/9/{}.JPG"):  # the same images in another layout
        assert drawn_splits([place.format(name) for name in few], 0.1, 0.2) == {
            place.format(name): split for name, split in drawn.items()
        }
    assert Counter(drawn_splits(["1", "2", "3"], 0.1, 0.1).values()) == {"train": 1, "val": 1, "test": 1}
    table = as_csv(data)
    table.write_text("\n".join(line.rpartition(",")[0] for line in table.read_text().splitlines()) + "\n")
    (data / "pictures/0002.png").write_bytes((data / "pictures/0001.png").read_bytes())
    dataset = opened(table, val_share=0.3, test_share=0.3)
    assert {name: split.num_images for name, split in dataset.splits.items()} == {"train": 6, "val": 4, "test": 4}
    assert dataset.notes[0].startswith(
        "split drawn: 6 train, 4 val, 4 test images; to choose it yourself, give each image a split"
    )
    assert "captions of one picture belong in one row" in dataset.notes[1]


def test_splits_of_many_images_are_drawn_by_name_for_ever() -> None:
    many = [f"{number}" for number in range(20_000)]
    drawn = drawn_splits(many, 0.1, 0.2)
    assert [drawn[name] for name in many[:12]] == [
        *4 * ["train"],
        "val",
        *3 * ["train"],
        "test",
        "test",
        "val",
        "train",
    ]
    assert Counter(drawn.values())["val"] / 20_000 == pytest.approx(0.1, abs=0.01)
    assert Counter(drawn.values())["test"] / 20_000 == pytest.approx(0.2, abs=0.01)
    assert drawn_splits(many[:10_000], 0.1, 0.2).items() <= drawn.items()


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (["train2014/{}.png", "val2014/{}.png", "test2014/{}.png"], "read from the names"),
        (["images/train/a/{}.png", "images/dev/{}.png", "images/test/{}.png"], "read from the names"),
        (["coco-train-0.tar/{}", "coco-val-0.tar/{}", "coco-test-0.tar/{}"], "read from the names"),
        (["f30k_Train2.tar/{}", "f30k_validation2.tar/{}", "f30k_test2.tar/{}"], "read from the names"),
        (["mine/train/{}.png", "mine/val/{}.png", "mine/other/{}.png"], "drawn: 4 train, 1 val, 1 test.* as some are"),
        (["coach/{}.png", "latest/{}.png", "contest/{}.png"], "drawn: 4 train, 1 val, 1 test images; to choose"),
    ],
)
def test_folders_and_shards_that_name_splits_give_them_or_it_is_said(places: list[str], said: str) -> None:
    given, says = with_splits([Row(place.format(item), ["x"]) for place in places for item in range(2)], 0.2, 0.2)
    assert re.match(f"split {said}", says)
    assert "read" not in said or [row.split for row in given] == ["train", "train", "val", "val", "test", "test"]


@pytest.mark.parametrize(
    ("given", "said", "counts"),
    [
        (["train"] * 20, "val and test drawn from train: 14 train, 2 val, 4 test", [14, 2, 4]),
        (["train"] * 20 + ["test"] * 3, "val drawn from train: 18 train, 2 val, 3 test", [18, 2, 3]),
        (["train"] * 20 + ["val"] * 3, "test drawn from train: 16 train, 3 val, 4 test", [16, 3, 4]),
        (["train", "val", "test"], "", [1, 1, 1]),
    ],
)
def test_a_split_that_is_missing_is_drawn_from_train(given: list[str], said: str, counts: list[int]) -> None:
    rows = [Row(f"{number}.png", ["x"], split) for number, split in enumerate(given)]
    for order in (rows, rows[::-1]):
        placed, says = with_splits(order, 0.1, 0.2)
        assert says.removeprefix("split ").startswith(said)
        assert [sum(row.split == split for row in placed) for split in SPLIT_NAMES] == counts
        assert all(row in placed for row in rows if row.split != "train")
    assert with_splits(rows, 0.0, 1.0) == (rows, "")  # of data to evaluate on


@pytest.mark.parametrize(
    "places", [("train", "Test"), ("a/train2014", "a/test2014"), ("x-train-0.tar", "x-test-0.tar")]
)
def test_a_split_that_no_folder_names_is_drawn_from_train(places: tuple[str, str]) -> None:
    rows = [Row(f"{place}/{number}", ["x"], place * (place == "train")) for place in places for number in range(20)]
    placed, says = with_splits(rows, 0.1, 0.2)
    assert says.startswith("split val drawn from train: 18 train, 2 val, 20 test images")
    assert {row.split for row in placed[20:]} == {"test"}
    alone, says = with_splits(rows, 0.0, 1.0)  # of data to evaluate on
    assert [row.split for row in alone] == ["train"] * 20 + ["test"] * 20
    assert says in ("", "split read from the names of folders or shards: 20 train, 0 val, 20 test images")


@pytest.mark.parametrize("name", ["subset", "fold"])
def test_a_column_of_splits_is_read_whatever_its_name(data: Path, name: str) -> None:
    table = as_csv(data)
    expected, text = opened(table).fingerprint, table.read_text().replace("split\n", f"{name}\n")
    for word, other in (("restval", "train"), ("train", "Train "), ("val", "VALID"), ("test", "test2014")):
        text = text.replace(f",{word}\n", f",{other}\n")
    table.write_text(text)
    assert (opened(table).fingerprint, opened(table).notes[0]) == (expected, f"split read from column {name!r}")


@pytest.mark.parametrize("place", ["item-{}/main.png", "{}/a/photo.jpg", "shard.tar/{}/image"])
def test_images_that_share_their_names_are_drawn_by_their_paths(place: str) -> None:
    for count in (40, 4000):
        drawn = Counter(drawn_splits([place.format(number) for number in range(count)], 0.1, 0.1).values())
        assert drawn["val"] == pytest.approx(count / 10, rel=0.2)
        assert drawn["test"] == pytest.approx(count / 10, rel=0.2)


@pytest.mark.parametrize(
    ("cell", "captions"),
    [
        ('["a cup", "one more"]', ["a cup", "one more"]),
        ("['a hat', \"a man's hat\"]", ["a hat", "a man's hat"]),
        ('("Stop" sign)', ['("Stop" sign)']),
        ('["a hat", "b', "row 1: words looks like a list"),
        ('["a hat", null]', "row 1: words[1] must be a caption"),
        ("[]", "row 1: words holds no caption"),
        ("[['a hat'], ['b']]", "row 1: words[0] must be a caption"),
        ("{'a hat', 'b'}", "row 1: words looks like a list"),
        ('{"raw": "a hat", "id": 3}', ["a hat"]),
        ("[" * 9999 + "'a'", "row 1: words looks like a list"),
        ("{a} hat", ["{a} hat"]),
        ("[b'a hat']", "row 1: words[0] must be a caption"),
        ("array of [hats]", ["array of [hats]"]),
    ],
)
def test_a_cell_may_hold_a_list_of_captions(tmp_path: Path, cell: str, captions: list[str] | str) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"image": ["0.png", "1.png", "2.png"], "words": [cell, "b", "c"], "split": SPLIT_NAMES})
    path = written(tmp_path, frame.to_csv(index=False))
    if isinstance(captions, str):
        with pytest.raises(DataError, match=re.escape(captions)):
            opened(path, caption_column="words")
    else:
        assert list(opened(path, caption_column="words").splits["train"].captions) == captions


@pytest.mark.parametrize(
    ("text", "captions"),
    [
        ("image,caption,split\r0.png,a hat,train\r1.png,b,val\r2.png,c,test\r", "a hat"),
        ('image, caption, split\n0.png, "a ""big"", hat", train\n1.png, b, val\n2.png, c, test\n', 'a "big", hat'),
        ('image|caption|split\n0.png| "a" hat |train\n1.png|b|val\n2.png|c|test\n', '"a" hat'),
        ('image,caption,split\n0.png,"a hat,\non a head",train\n1.png,b,val\n2.png,c,test\n', "a hat,\non a head"),
    ],
)
def test_quotes_and_line_ends_are_those_of_a_table(tmp_path: Path, text: str, captions: str) -> None:
    assert list(opened(written(tmp_path, text)).splits["train"].captions) == [captions]


@pytest.mark.parametrize("separator", [";", "\t", "|", "| "])
def test_a_table_may_have_another_separator(data: Path, separator: str) -> None:
    table = as_csv(data)
    expected = opened(table).fingerprint
    rows = list(csv.reader(table.read_text().splitlines()))
    with table.open("w") as file:
        csv.writer(file, delimiter=separator[0]).writerows([[field + separator[1:] for field in row] for row in rows])
    if len(separator) == 1:
        assert opened(table).fingerprint == expected
    table.write_text(table.read_text().replace("caption", "legend", 1))
    with pytest.raises(DataError, match=re.escape(f"its separator is {separator[0]!r}, not ','")):
        opened(table)


def test_paths_below_the_table_may_be_absolute(data: Path) -> None:
    table = as_csv(data)
    expected = opened(table).fingerprint
    rows = list(csv.reader(table.read_text().splitlines()))
    place = rows[0].index("image")
    with table.open("w") as file:
        whole = ([*row[:place], str(table.parent / row[place]), *row[place + 1 :]] for row in rows[1:-2])
        csv.writer(file).writerows([rows[0], *whole])
    assert opened(table).fingerprint == expected


def _shard(path: Path, text: bytes | None, stored: object) -> Path:
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    parts = {"png": picture.getvalue(), "txt": text, "json": json.dumps(stored).encode()}
    for split in SPLIT_NAMES:
        with tarfile.open(path / f"{split}-0.tar", "w") as shard:
            for ending, content in parts.items():
                if content is not None:
                    add(shard, f"{split}7.{ending}", content)
    return path


@pytest.mark.parametrize(
    ("text", "stored", "column", "captions"),
    [
        (b"a cup", {"caption": "a cup", "width": 8}, "", ["a cup"]),
        (b"a cup\rtwo\r\n", {"caption": "a hat"}, "", ["a cup", "two"]),
        (b"a cup", {"caption": None}, "", ["a cup"]),
        (b"", {"caption": "a hat"}, "", ["a hat"]),
        (b"a cup", {"caption": "a hat", "alt": "an alt"}, "alt", ["an alt"]),
        (b"a cup", {"alt": None}, "alt", "needs a .json with 'alt'"),
        (None, {"caption": None}, "", "has no caption"),
    ],
)
def test_the_text_of_a_sample_counts_unless_a_column_is_named(
    tmp_path: Path, text: bytes | None, stored: object, column: str, captions: list[str] | str
) -> None:
    _shard(tmp_path, text, stored)
    if isinstance(captions, str):
        with pytest.raises(DataError, match=captions):
            opened(tmp_path, caption_column=column)
    else:
        assert list(opened(tmp_path, caption_column=column).splits["test"].captions) == captions


def test_a_script_without_spaces_is_said(tmp_path: Path) -> None:
    captions = ["一只狗，在跑。", "a black cat on a 红垫子", "แมวดำ", "ラーメン", "红 猫 坐 在 垫 子 上", "a mat"]
    rows = [f"0.png,{caption},train" for caption in captions] + ["1.png,a,val", "2.png,b,test"]
    notes = opened(written(tmp_path, "\n".join(["image,caption,split", *rows]))).word_notes
    assert any(note.startswith("3 of 7 captions") and "text.encoder" in note for note in notes)
