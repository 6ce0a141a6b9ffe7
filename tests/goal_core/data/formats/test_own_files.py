"""Files as people have them: what could be read in two ways is refused, or the way that is taken is said."""

import gzip
import io
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data import config as kinds_of_data
from goal_sweep.goal_core.data.config import EmbeddingsConfig, KarpathyConfig, PrecompConfig, SourceConfig
from goal_sweep.goal_core.data.dataset import SPLIT_NAMES, Dataset
from goal_sweep.goal_core.data.formats.opening import check_data, open_dataset
from tests.helpers.source_layouts import add, write_arrow

pa = pytest.importorskip("pyarrow")
ROWS = "".join(f"{number}.png,a {split},{split}\n" for number, split in enumerate(SPLIT_NAMES))
TABLE = f"image,caption,split\n{ROWS}"
NOTHING = ("NA", "#N/A", "None", "-", "null ", "nan", r"\N")


def opened(root: Path, kind: Any = SourceConfig, **settings: Any) -> Dataset:
    return open_dataset(kind(name="mine", root=str(root), **settings))


def refuse(root: Path, says: str, kind: Any = SourceConfig, **settings: Any) -> None:
    with pytest.raises(DataError, match=says) as caught:
        opened(root, kind, **settings)
    assert "\n" not in str(caught.value)


def encoded(pixels: Any, kind: str, **how: Any) -> bytes:
    Image.fromarray(pixels).save(content := io.BytesIO(), kind, **how)
    return content.getvalue()


def picture(number: int = 0) -> bytes:
    return encoded(np.full((8, 8, 3), 60 * number, np.uint8), "PNG")


def table(folder: Path, text: str = TABLE) -> Path:
    for number in range(3):
        (folder / f"{number}.png").write_bytes(picture(number))
    (folder / "t.csv").write_text(text)
    return folder / "t.csv"


def shards(folder: Path, members: Mapping[str, str]) -> Path:
    for split in SPLIT_NAMES:
        with tarfile.open(folder / f"{split}-0.tar", "w") as shard:
            for name, content in (("0.png", picture()), *((name, text.encode()) for name, text in members.items())):
                add(shard, name.rstrip("*"), content)
    return folder


def hugging_face(folder: Path, names: list[str], rows: list[list[str]]) -> None:
    folder.mkdir()
    held = [dict(zip(names, [picture(number), *row[1:]], strict=True)) for number, row in enumerate(rows)]
    write_arrow(folder / "0.arrow", pa.Table.from_pylist(held))
    (folder / "state.json").write_text('{"_data_files": [{"filename": "0.arrow"}]}')


@pytest.mark.parametrize(
    ("members", "captions"),
    [
        ({"0.ocr.txt": "STOP", "0.txt": "a sign"}, ["a sign"]),
        ({"0.json": '{"caption": "a sign"}', "0.ocr.txt": "STOP"}, ["a sign"]),
        ({"0.boxes.json": '{"boxes": []}', "0.text.json": '{"caption": "a sign"}'}, ["a sign"]),
        ({"0.caption.txt": "a sign"}, ["a sign"]),
        ({"0.0.txt": "a sign", "0.1.txt": "a post"}, r"0\.[01]\.txt and 0\.[01]\.txt .*data\.caption_column"),
        ({"0.en.txt": "a sign", "0.de.txt": "ein Schild"}, r"0\.(en|de)\.txt and 0\.(en|de)\.txt"),
        ({"0.a.json": '{"text": "a"}', "0.b.json": '{"caption": "b"}'}, r"0\.[ab]\.json and 0\.[ab]\.json"),
        ({"0.txt": "a\0d"}, r"0\.txt:1 holds NUL"),
        ({"0.txt": "a sign", "0.txt*": "a post"}, r"0\.txt and 0\.txt both hold"),
    ],
)
@pytest.mark.parametrize("turn", [iter, reversed])
def test_the_plain_name_of_a_sample_counts_and_others_are_no_choice(
    tmp_path: Path, turn: Any, members: dict[str, str], captions: list[str] | str
) -> None:
    shards(tmp_path, dict(turn(members.items())))
    if isinstance(captions, list):
        assert list(opened(tmp_path).splits["val"].captions) == captions
    else:
        refuse(tmp_path, captions)


@pytest.mark.parametrize("ids", ["2 0 1", "3 1 2", "02 00 01", "2 2 0 0 1 1"])
def test_ids_that_number_the_rows_in_another_order_are_refused(tmp_path: Path, ids: str) -> None:
    for split in ("train", "dev", "test"):
        np.save(tmp_path / f"{split}_ims.npy", np.random.default_rng().random((3, 4), np.float32))
        (tmp_path / f"{split}_caps.txt").write_text("".join(f"caption {row}\n" for row in range(len(ids.split()))))
        (tmp_path / f"{split}_ids.txt").write_text("\n".join(f"x{one}" for one in ids.split()))
    for own in (sorted(ids.split()), ids.split()):
        assert opened(tmp_path, PrecompConfig).splits["val"].num_images == 3
        (tmp_path / "dev_ids.txt").write_text("\n".join(own))
    refuse(tmp_path, "are the numbers from [01] to [23] in another order", PrecompConfig)
    (tmp_path / "dev_ids.txt").unlink()
    (tmp_path / "dev_caps.txt.gz").write_bytes(gzip.compress(b"other\n" * len(own)))
    refuse(tmp_path, r"dev_caps\.txt and .*dev_caps\.txt\.gz differ", PrecompConfig)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train/9.txt": b"lost"}, r"^text files not used: 1, .*9\.txt"),
        ({"train/0.TXT": b"another dog"}, r"^text files not used: 1, .*0\.TXT"),
        ({"metadata.csv": b"file_name,text\n"}, r"^not read, .*: .*metadata\.csv, of 1"),
        ({"metadata.jsonl": b"{}"}, r"^not read, .*: .*metadata\.jsonl, of 1"),
        ({"train/a.json": b"{}", "val/b.JSON": b"{}"}, r"^not read, .*: .*a\.json, of 2"),
        ({"val/8.txt": b"lost", "val/9.txt": b"too"}, r"^text files not used: 2, .*8\.txt"),
        ({"readme.txt": b"of whom"}, r"^text files not used: 1, .*readme\.txt"),
        ({"train/0.txt": b"0 0.5 0.5 0.1 0.1"}, "^1 of 3 captions contain no letter"),
        ({"train/0.txt": b"0.png#0\ta dog\n"}, "name and number of a picture"),
        ({"train/0.jpg": picture()}, r"0\.(jpg|png) and .*0\.(jpg|png) share .*0\.txt"),
        ({"test/0.tiff": picture()}, "share the captions"),
        ({"val/0.PNG": picture()}, "share the captions"),
    ],
)
def test_pictures_and_texts_in_a_folder_belong_together(tmp_path: Path, change: dict[str, bytes], says: str) -> None:
    for number, split in enumerate(SPLIT_NAMES):
        (tmp_path / split).mkdir()
        (tmp_path / split / "0.png").write_bytes(picture(number))
        (tmp_path / split / "0.txt").write_text(f"a {split}")
    for name, content in change.items():
        (tmp_path / name).write_bytes(content)
    if says.startswith("^"):
        assert re.search(says, opened(tmp_path).notes[0])
        refuse(tmp_path, "data.caption_column has no meaning for .* folder of pictures", caption_column="x")
    else:
        refuse(tmp_path, says)


@pytest.mark.parametrize("ending", ["TXT", "caption", "txt"])
def test_the_captions_of_pictures_have_one_of_these_endings(tmp_path: Path, ending: str) -> None:
    for number, split in enumerate(SPLIT_NAMES):
        (tmp_path / split).mkdir()
        (tmp_path / split / "0.JPG").write_bytes(picture(number))
        (tmp_path / split / f"0.{ending}").write_text(f"a {split}")
    assert list(opened(tmp_path).splits["val"].captions) == ["a val"]
    (tmp_path / "val" / "0.txt").write_text("other")
    assert list(opened(tmp_path).splits["val"].captions) == ["other"]


@pytest.mark.parametrize("place", ["p", "p/q", "images/p"])
def test_a_file_that_is_called_like_a_path_is_no_other_file(tmp_path: Path, place: str) -> None:
    windows = f"{place}/9.png".replace("/", "\\")
    path = table(tmp_path, f"{TABLE}{windows},x,train\n")
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "9.png").write_bytes(picture())
    assert opened(path).splits["train"].num_images == 2
    (tmp_path / windows).write_bytes(picture(4))
    refuse(path, "a backslash in a path means a folder")


@pytest.mark.parametrize("caption", ["\u200b", "\u200e\u202a", "\ufeff \u00ad", "\ufe0f", "\u3164", "\u2800"])
def test_a_caption_without_anything_to_see_is_none(tmp_path: Path, caption: str) -> None:
    refuse(table(tmp_path, TABLE.replace("a val", caption)), "row 2: caption must be a caption")
    np.save(tmp_path / "train_ims.npy", np.ones((1, 2), np.float32))
    (tmp_path / "train_caps.txt").write_text(f"a\n{caption}\n")
    refuse(tmp_path, r"line 2 of .*train_caps\.txt is empty", PrecompConfig)
    for seen in ("❤️", "👩‍🚀", "क्‍ष", "!", f"{caption}שלום"):
        assert list(opened(table(tmp_path, TABLE.replace("a val", seen))).splits["val"].captions) == [seen.strip()]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("image,caption,split,file_name", "images read from column 'image', not 'file_name' (data.image_column)"),
        ("filepath,caption,split,Path", "images read from column 'filepath', not 'Path' (data.image_column)"),
        ("image,caption,split,set", "splits read from column 'split', not 'set' (data.split_column)"),
        ("image,caption,split,phase", "splits read from column 'split', not 'phase' (data.split_column)"),
        ("image,caption,fold,subset", ""),
        ("image,caption,set,part", ""),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "arrow"])
def test_of_two_columns_for_one_thing_the_one_that_is_read_is_said(
    tmp_path: Path, kind: str, header: str, says: str
) -> None:
    names, last = header.split(","), ["2.png", "0.png", "1.png"] if "images" in says else ["val", "train", "test"]
    rows = [[*row.split(","), other] for row, other in zip(ROWS.splitlines(), last, strict=True)]
    path = table(tmp_path, "\n".join(map(",".join, [names, *rows])))
    if kind == "arrow":
        hugging_face(path := tmp_path / "saved", names, rows)
    if says:
        assert says in opened(path).notes
    else:
        refuse(path, f"columns '{names[2]}' and '{names[3]}' name splits.*data.split_column")
    asked = {"image_column": names[0]} if "images" in says else {"split_column": names[2]}
    assert says not in (found := opened(path, **asked)).notes
    assert found.splits["val"].captions[0] == "a val"
    for picture in tmp_path.glob("*.png"):
        picture.unlink()  # perhaps the other column names those that are there
        report = check_data(SourceConfig(name="mine", root=str(path)))
        assert kind == "arrow" or "images" not in says or says in [one.found for one in report.findings]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('image,caption\n0.png,a\n1.png,"a "big" hat"\n2.png,b\n', r"t\.csv:3: .*write a double quote twice"),
        ('image,caption\n"0"x.png,a\n', r"t\.csv:2: "),
        ('sep=,\nimage,caption\n"0"x.png,a\n', r"t\.csv:3: "),
        ('image,caption\n0.png,a\n1.png,"b\n2.png;c\n', r"t\.csv:3: .*end of data"),
        ("image,caption\nhttps://example.org/0.png,a\n", "row 1: image is a URL.*download"),
        (f"\n{TABLE}", "is empty, or its first line is"),
        ("image,caption,split\n0.png,a,0\n1.png,b,1\n", "row 1: split must be one of .* got '?0"),
        ("image,caption\ns3://bucket/0.png,a\n", "row 1: image is a URL"),
        *((TABLE.replace("1.png", one), "is '1.png'") for one in ('" 1.png"', "1", "%31.png", "1.PNG", "1.jpg")),
    ],
)
def test_a_table_that_cannot_be_read_says_where_and_what_is_near(tmp_path: Path, text: str, says: str) -> None:
    refuse(table(tmp_path, text), says)


@pytest.mark.parametrize(("words", "notes"), [("a dog runs", 1), ("ein Hund", 1), ("a val", 0), ("a train dog", 0)])
def test_captions_of_test_in_other_words_are_said(tmp_path: Path, words: str, notes: int) -> None:
    found = opened(table(tmp_path, TABLE.replace("a test", words)), min_word_count=1)
    assert len([line for line in found.word_notes if "words of the test captions" in line]) == notes


def test_other_layouts_are_named(tmp_path: Path) -> None:
    stored = {"images": [{"id": 1, "file_name": "0.jpg"}], "annotations": [{"image_id": 1, "caption": "a"}]}
    (tmp_path / "captions_val2014.json").write_text(json.dumps(stored))
    refuse(tmp_path, "COCO's own captions.*dataset_coco.json", KarpathyConfig, annotations="captions_val2014.json")
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist([{"image": picture(), "caption": "a"}]), tmp_path / "t.parquet")
    refuse(tmp_path / "t.parquet", "save_to_disk")
    parquet.write_table(pa.Table.from_pylist([{"image": [1.0], "texts": [[None]]}]), tmp_path / "train.parquet")
    refuse(tmp_path, r"1 numbers are missing \(null\)", EmbeddingsConfig)
    (tmp_path / "val-0.tar").write_bytes(gzip.compress(b"a shard"))
    refuse(tmp_path, r"val-0\.tar is compressed; unpack it")
    for key in ("_indices_files", "_indices_data_files"):
        (tmp_path / "state.json").write_text(json.dumps({"_data_files": [], key: [{"filename": "indices.arrow"}]}))
        refuse(tmp_path, "flatten_indices")


@pytest.mark.parametrize("how", [{}, {"optimize": True}, {"progressive": True}, {"quality": 20}, {"subsampling": 0}])
def test_a_photo_that_the_decoder_fills_up_is_damaged(tmp_path: Path, how: dict[str, Any]) -> None:
    squares = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8).repeat(9, 0).repeat(9, 1)
    path, whole, end = table(tmp_path), encoded(squares, "JPEG", **how), b"\xff\xd9"
    middle = len(whole) // 2
    torn = [whole[:middle] + end, whole[: -len(whole) // 9] + end, whole[:middle] + bytes(9 * middle)]
    torn += [whole[:middle] + bytes(512) + whole[middle + 512 :]] * ("progressive" not in how)
    for content in (whole, whole + b"more", *torn):
        (tmp_path / "0.png").write_bytes(content)
        refuse(path, r"cannot read image .*0\.png: ") if content in torn else opened(path)


@pytest.mark.parametrize(
    ("header", "rows", "found"),
    [
        ("sep=,\nimage,caption", "{0}.png,a {0}", "a {0}"),
        (",image,caption", "7,{0}.png,a {0}", "a {0}"),
        ("image,caption,", "{0}.png,a {0},", "a {0}"),
        ("image,caption,", "{0}.png,a {0}, running", "row 1 has more fields"),
        ("image,text,caption_id", "{0}.png,a {0},7", "a {0}"),
        ("image,comment,caption_en", "{0}.png,no,a {0}", "a {0}"),
        ("image,caption_1,caption_2", "{0}.png,a,b", "'caption_1' and 'caption_2'; name one"),
        *(("image,caption", f"{{0}}.png,{word}", "row 1: caption") for word in NOTHING),
        ("image,caption", "{0}.png,a None {0}", "a None {0}"),
        ("image,caption,subset", "{0}.png,a {0},{1}", "a {0}"),
        ("image,caption", "{0}.png,a\0 {0}", "NUL"),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "captions.txt"])
def test_tables_as_programs_write_them(tmp_path: Path, name: str, header: str, rows: str, found: str) -> None:
    path = table(tmp_path).with_name(name)
    path.write_text("\n".join([header, *map(rows.format, range(3), ("training", "valid", "testing"))]))
    if "{0}" not in found:
        return refuse(path, found)
    captions = {one for split in opened(path).splits.values() for one in split.captions}
    assert captions == {found.format(number) for number in range(3)}


@pytest.mark.parametrize(
    ("other", "taken", "left"),
    [
        ({"caption": "a dog", "caption2": "a cat", "id": "a7"}, "caption", ["caption2"]),
        ({"title": "IMG", "about": "a dog runs", "url": "https://a b c"}, "title", ["about"]),
        ({"caption": "a dog", "captions": "a cat", "file": "a b c.jpg"}, "caption", ["captions"]),
        *(({"caption": "a dog", name: "a cat"}, "caption", [name]) for name in ("text", "title")),
        ({"caption": "a dog", "license": "MIT", "size": "7"}, "caption", []),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "arrow", "json"])
def test_texts_that_are_not_read_are_said_once(
    tmp_path: Path, kind: str, other: dict[str, str], taken: str, left: list[str]
) -> None:
    if kind == "csv":
        lines = [["image", *other], *([f"{number}.png", *other.values()] for number in range(3))]
        path = table(tmp_path, "\n".join(map(",".join, lines)))
    elif kind == "arrow":
        hugging_face(path := tmp_path / "saved", ["image", *other], [["", *other.values()]] * 3)
    else:
        path = shards(tmp_path, {"0.json": json.dumps(other)})
    found = opened(path)
    assert found.splits["val"].captions[0] == other[taken]
    said = f"captions read from column '{taken}', not '{''.join(left)}' (data.caption_column)"
    assert ";".join(found.notes).count("captions read") == len(left) == ";".join(found.notes).count(said)
    for name in left:
        assert opened(path, caption_column=name).splits["val"].captions[0] == other[name]


@pytest.mark.parametrize("value", ["val", "train"])
def test_a_folder_and_a_column_agree_about_the_split(tmp_path: Path, value: str) -> None:
    for split in SPLIT_NAMES:
        rows = [["", "a", value if split == "val" else split]] * 2
        hugging_face(tmp_path / split, ["image", "caption", "split"], rows)
    if value == "train":
        return refuse(tmp_path, r"val/0\.arrow, row 0: split is 'train', but its folder is val")
    assert opened(tmp_path).splits["val"].num_images == 2


@pytest.mark.parametrize(("name", "key", "asked"), [("x", "split", ""), ("train", "fold", "fold")])
def test_shards_may_say_splits_in_their_objects(tmp_path: Path, name: str, key: str, asked: str) -> None:
    with tarfile.open(tmp_path / f"{name}-0.tar", "w") as shard:
        for number, split in enumerate(("train", "train", "val", "val", "test", "test")):
            add(shard, f"{number}.png", picture(number % 3))
            add(shard, f"{number}.txt", split.encode())
            add(shard, f"{number}.json", json.dumps({key: split}).encode())
    found = opened(tmp_path, split_column=asked)
    assert all({*found.splits[split].captions} == {split} for split in SPLIT_NAMES)
    refuse(tmp_path, r"0: nonsense must be one of .* got None", split_column="nonsense")
    refuse(tmp_path, "data.image_column has no meaning for .* WebDataset", image_column="nonsense")


def test_an_object_that_cannot_be_read_says_no_split_unless_a_key_of_it_is_asked_for(tmp_path: Path) -> None:
    shards(tmp_path, {"0.txt": "a", "0.json": '{"id": 1, "id": 2}'})
    for split in SPLIT_NAMES:
        (tmp_path / f"{split}-0.tar").rename(tmp_path / f"{split[::-1]}.tar")
    assert sum(split.num_images for split in opened(tmp_path).splits.values()) == 3
    refuse(tmp_path, "tar: 0.json is not valid JSON: the key 'id' stands twice", split_column="split")


_REFUSED = """[np.str_('a dog'), np.str_('b')]|[nan, 'a dog']|[None, 'a dog']|b'a dog'|b"a man's dog"
[“a dog”, “a cat”]|Index(['a', 'b'], dtype='object')|deque(['a'])|frozenset({'a'})|dict_values(['a'])|list(['a'])
<StringArray> ['a', 'b'] Length: 2, dtype: string|{dog,"a brown dog"}|['a' 'b']|nan|None|[null]|[{'caption': 'a'}]
[np.str_('a')]|(np.str_('a'), np.str_('b'))|[OrderedDict([('raw', 'a')])]|"['a', 'b']"|character(0)|#NAME?
0.png#0 a dog|(null)|NaT|<blank>|[Missing]|n.a."""
_KEPT = """(a dog)|[music] a man plays|a dog [brown]|a dog (brown)|[music]|b'x|<unk> [bracket] man|<b> [x|[Photo, 1920]
smile("hi")|B'nai B'rith sign'|R'n'B singer on stage, '90s'
["The Four" of the Paris Peace Conference, 1919]|[ALT: A man, smiling.]|犬("柴")と猫("三毛")|Poster("Jaws")|{arrow}
<image> [dog] runs|<b>[bold]</b> text|B'day 'cake'|['Stop' sign on a pole]"""
_LISTS = """['a dog', "a cat"]|["a dog", "a cat"]|[u'a dog']|[r'a dog']|[{'raw': 'a dog'}]|('a dog',)|["a dog"]"""


@pytest.mark.parametrize("text", re.split("[|\n]", f"{_REFUSED}|{_KEPT}|{_LISTS}"))
def test_a_list_is_read_or_refused_in_every_layout(tmp_path: Path, text: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"image": f"{number}.png", "caption": text, "split": split} for number, split in enumerate(SPLIT_NAMES)]
    parquet.write_table(pa.Table.from_pylist(rows), table(tmp_path).with_name("t.parquet"))
    images = [{"filename": row["image"], "sentences": [{"raw": text}], **row} for row in rows]
    (tmp_path / "dataset_x.json").write_text(json.dumps({"images": images}))
    for row, word in zip(rows, ("train", "dev", "test"), strict=True):
        (tmp_path / f"{word}.json").write_text(json.dumps([row]))
        np.save(tmp_path / f"{word}_ims.npy", np.ones((1, 2), np.float32))
        (tmp_path / f"{word}_caps.txt").write_text(text)
    files = {"train_files": ("train.json",), "val_file": "dev.json", "test_file": "test.json", "image_root": "."}
    shards(tmp_path, {"0.txt": f"{text}\na bird"})
    kinds: Any = {SourceConfig: {}, KarpathyConfig: {}, PrecompConfig: {}, kinds_of_data.XvlmJsonConfig: files}
    for root, kind, how in ((tmp_path / "t.parquet", SourceConfig, {}), *((tmp_path, *one) for one in kinds.items())):
        if text in _REFUSED or (kind is PrecompConfig and "cat" in text):
            said = "looks like a list|Flickr8k|which programs write|must be a caption|holds a list|there is no caption"
            refuse(root, said, kind, **how)
        else:
            captions = [text] if text in _KEPT else ["a dog", "a cat"][: 1 + ("cat" in text)]
            assert list(opened(root, kind, **how).splits["val"].captions)[: len(captions)] == captions


_GREY, _FOUR = np.full((8, 8), 9_000, np.uint16), np.full((8, 8, 4), 90, np.uint8)
_APART = encoded(_FOUR[..., :3], "TIFF").replace(b"\x08\0" * 3, b"\x10\0" * 3)  # of 16 bits
_APART = _APART.replace(b"\x1c\1\3\0\1\0\0\0\1", b"\x1c\1\3\0\1\0\0\0\2")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (encoded(_GREY, "TIFF").replace(b"\x06\x01\x03\0\x01\0\0\0\x01", b"\x06\x01\x03\0\x01\0\0\0\0"), "MinIsWhite"),
        (encoded(_FOUR, "TIFF").replace(b"\x52\x01\x03\0", b"\x52\xf1\x03\0"), "ExtraSamples"),
        (encoded(_GREY, "PNG", transparency=9_000), "tRNS"),
        (encoded(_FOUR[..., 0], "TIFF", tiffinfo={339: 2}), "signed"),
        (_APART, "PlanarConfiguration"),
        (encoded(_FOUR[..., :2], "TIFF").replace(b"\x52\1\3\0\1\0\0\0\2", b"\x52\1\3\0\1\0\0\0\0"), "two bands"),
        (b"II*\0\x08", "is a TIFF"),
        (encoded(_GREY, "TIFF"), "dark"),
        (encoded(0 * _FOUR, "PNG"), "transparent"),
        (encoded(_FOUR, "TIFF"), "infrared"),
        (encoded(_GREY, "TIFF", save_all=True, append_images=[Image.fromarray(_GREY)]), "several pages"),
        (encoded(_FOUR, "WEBP", save_all=True, append_images=[Image.fromarray(255 - _FOUR)]), "several pages"),
        (b"x", r"test-0\.tar: 0\.png: it is damaged"),
    ],
)
def test_pictures_of_a_shard_that_would_be_read_as_others_are_named(tmp_path: Path, content: bytes, says: str) -> None:
    shards(tmp_path, {"0.txt": "a"})
    with tarfile.open(tmp_path / "test-0.tar", "w") as shard:
        add(shard, "0.png", content)
        add(shard, "0.txt", b"a")
    if says not in ("dark", "transparent", "infrared", "several pages"):
        return refuse(tmp_path, says)
    found = check_data(SourceConfig(name="mine", root=str(tmp_path), min_word_count=1))
    assert [one.found for one in found.findings if "test-0.tar: 0.png" in one.found and says in one.found]


def test_files_that_lie_elsewhere_or_are_not_read_are_named(tmp_path: Path) -> None:
    path = table(tmp_path, "image,caption\n0.png,a\n1.png,b\n2.png,b\n")
    (tmp_path / "Images").mkdir()
    for picture_file in tmp_path.glob("*.png"):
        picture_file.rename(tmp_path / "Images" / picture_file.name)
    refuse(path, r"3 of 3 images are missing.*Images/[012]\.png: rename the folder Images to images")
    path.write_text("image,caption\nIMAGES/0.png,a\nIMAGES/1.png,b\nIMAGES/2.png,b\n")
    refuse(path, "image folder not found; .*; there is .*/Images")
    path.write_text("image,caption\nImages/0.png#0,a\nImages/1.png#0,b\nImages/2.png#0,b\n")
    refuse(path, "3 of 3 images are missing .*; there is '[012].png', which differs")
    path.write_text("image,caption\np/0.png,c\np/1.png,a\np/2.png,b\n")
    for number, place in enumerate(("p", "p", "images/p")):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / f"{number}.png").write_bytes(picture(number))
    refuse(path, r"there is .*p/[012]\.png, while others are elsewhere")
    for name, says in (("t.jsonl", "pandas"), ("t.json", "karpathy"), ("t.xlsx", "CSV"), ("t.csv.gz", "unpack")):
        (tmp_path / name).touch()
        refuse(tmp_path / name, says)
    for split in SPLIT_NAMES:
        for part in ("images", "texts", "ids"):
            np.save(tmp_path / f"{split}_{part}.npy", np.random.default_rng().random((3, 4), np.float32))
    (tmp_path / "test_owners.csv").touch()
    assert "not read: test_ids.npy, test_owners.csv, train_ids.npy" in opened(tmp_path, EmbeddingsConfig).notes[0]
