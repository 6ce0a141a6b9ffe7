"""What is right in form but seldom meant is said, with an example: captions, pictures and features."""

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from goal_sweep.goal_core.data.config import PrecompConfig, RegionsConfig, SourceConfig
from goal_sweep.goal_core.data.dataset import SPLIT_NAMES
from goal_sweep.goal_core.data.formats.opening import check_data, open_dataset
from goal_sweep.goal_core.data.formats.pictures import DARK, WHITE, examined

FINE = (
    *("a red hat", "a São Paulo sign & more", "a < b > c", "SÃO PAULO", "the <person> waves", "two cats, a dog"),
    *("AT&T; R&D; a phone", "«LÃ» on a sign", "İstanbul’da bir kedi", "кот на столе", "a :) face"),
)


def notes_of(folder: Path, captions: list[str]) -> list[str]:
    rows = ["image\tcaption\tsplit"]
    for number, caption in enumerate(captions):
        Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(folder / f"{number}.png")
        rows.append(f"{number}.png\t{caption}\t{SPLIT_NAMES[number % 3]}")
    (folder / "t.tsv").write_text("\n".join(rows))
    report = check_data(SourceConfig(name="mine", root=str(folder / "t.tsv"), min_word_count=1), words=False)
    return [one.found for one in report.findings if one.state == "note"]


@pytest.mark.parametrize(
    ("captions", "says"),
    [
        (FINE, ""),
        (("cat", "dog", "cow", "hat", "cup", "sun"), ""),
        (tuple(f"['{one}', 'man', 'rides']" for one in "abc"), "9 of 9 .* are one word, such as 'a'"),
        (("['a man', 'rides', 'on']", "['b cat', 'runs', 'off']", "['c', 'd', 'e']"), ""),
        (("一隻狗在草地上", "红旗", "一隻狗在路上跑", "狗"), ""),
        (("a cat &amp; dog", *FINE[1:]), "1 of 11 .* are HTML .* such as 'a cat &amp; dog'"),
        (("a <b>red</b> hat", "it&#39;s", *FINE[2:]), "2 of 11 .* such as '<b>'"),
        (("a cafÃ©", *FINE[1:]), "1 of 11 .* such as 'a cafÃ©'"),
        (("itâ€™s a cat", *FINE[1:]), "1 of 11 .* such as 'itâ€™s a cat'"),
        (("ÐºÐ¾Ñ‚".replace("Ñ‚", "Ñ\x82"), *FINE[1:]), "1 of 11 .* such as "),
        (("a caf\ufffd", *FINE[1:]), "1 of 11 .* such as '\ufffd'"),
        ((r"a caf\u00e9", r"a \"stop\" sign", *FINE[2:]), "2 of 11 .* such as "),
        (
            (r"caf<U+00E9>", r"b'caf\xc3\xa9", r"caf\303\251", "a%20red%20hat", "êðàñíûé", *FINE[5:]),
            "5 of 11 .* such as ",
        ),
        (("captions/01.txt", "https://a.org/b", *FINE[2:]), "2 of 11 .* paths, .* such as 'captions/01.txt'"),
        (("a cat", '"""a red hat"""', '"""a dog"""'), "2 of 3 .* stand in quotes"),
        (("the cup says чай", "a cup", "þjóðþýðing", "STÓŁ", "töööö", "L’Étoile"), ""),
        (('="a cat"', "a hat_x000D_", *FINE[2:]), "2 of 11 .* of Excel .* such as '=\"a cat\"'"),
        (("a cat | a dog", "a hat|a cup", "a cow|b"), r"3 of 3 .* hold '\|'; if it stands between captions"),
        (("a cat;a dog", *FINE[1:]), ""),
        ((*(rf"a cat\na dog{number}" for number in range(3)), *FINE[3:]), r"3 of 11 .* hold '\\\\n'; if"),
        ((*(f"a cat [SEP] a dog{number}" for number in range(3)), *FINE[3:]), r"3 of 11 .* hold '\[SEP\]'"),
        (("a cat / a dog", "a cat • a dog", '"""a cat"", ""a dog"""', *FINE[3:]), ""),
        (("see it.txt", "a b.jpg", *FINE[2:]), ""),
        (("a hat", "a cat", "a red hat", "a dog", "a cow", "a red hat"), "50 % of the test captions repeat another"),
    ],
)
def test_captions_that_look_like_something_else_are_counted(tmp_path: Path, captions: list[str], says: str) -> None:
    found = notes_of(tmp_path, list(captions))
    assert [bool(re.match(says, line)) for line in found] == [True] * bool(says), found


@pytest.mark.parametrize("page", ["mac_roman", "cp1251", "cp866", "koi8-r", "iso8859-2", "cp850", "cp1256"])
def test_captions_that_were_read_in_another_encoding_are_counted(tmp_path: Path, page: str) -> None:
    texts = ("a café", "un niño", "кот на столе", "żółw", "ein grüner Vogel", "a cat", "мост", "قطة على طاولة")
    broken = []
    for text in texts:
        with suppress(UnicodeError):
            broken.append(text.encode().decode(page))
    assert len(broken) > 4
    assert [line.split(" are ")[0] for line in notes_of(tmp_path, broken)] == [
        f"{len(broken) - 1} of {len(broken)} captions"
    ]


def test_test_captions_are_compared_where_there_are_no_others(tmp_path: Path) -> None:
    for number, captions in enumerate((("a hat", "a cap"), ("a hat", "a hat"))):
        for place, caption in enumerate(captions):
            (tmp_path / f"{number}").mkdir(exist_ok=True)
            Image.fromarray(np.full((8, 8, 3), place, np.uint8)).save(tmp_path / f"{number}/{place}.png")
            (tmp_path / f"{number}/{place}.txt").write_text(caption)
        config = SourceConfig(name="mine", root=str(tmp_path / f"{number}"), val_share=0.0, test_share=1.0)
        notes = open_dataset(config, needed=("test",)).notes
        assert [bool("another image's" in note) for note in notes] == [False] + [True] * number, notes


def icon(colour: int) -> np.ndarray:
    pixels = np.full((16, 16, 4), 255, np.uint8)
    pixels[..., 3], pixels[4:9, 4:9, :3] = 0, colour
    pixels[4:9, 4:9, 3] = 255
    return pixels


def wide(bright: int) -> np.ndarray:
    """Twelve bits in sixteen, with some of 400 numbers at the top."""
    pixels = np.arange(0, 4000, 10, dtype=np.uint16).reshape(20, 20)
    pixels.flat[:bright] = 65535
    return pixels


@pytest.mark.parametrize(
    ("pixels", "remarks"),
    [
        (icon(255), [WHITE]),
        (icon(250), []),
        (np.full((8, 8, 4), 255, np.uint8), []),
        (icon(0), []),
        (wide(0), [DARK]),
        (wide(2), [DARK]),
        (wide(30), []),
    ],
)
def test_pictures_of_which_little_is_left_are_said(tmp_path: Path, pixels: np.ndarray, remarks: list[str]) -> None:
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert examined((tmp_path / "a.png").read_bytes(), "a.png")[1] == remarks


@pytest.mark.parametrize(("noise", "is_said"), [(1e-7, True), (1e-5, True), (1e-1, False)])
def test_rows_that_are_nearly_repeated_are_said(tmp_path: Path, noise: float, is_said: bool) -> None:
    draws = np.random.default_rng(1)
    for split in ("train", "dev", "test"):
        rows = np.repeat(draws.normal(size=(4, 32)), 5, axis=0) * (1 + noise * draws.normal(size=(20, 32)))
        rows[:, 0] += 300  # as of a network's bias
        np.save(tmp_path / f"{split}_ims.npy", rows.astype(np.float32))
        (tmp_path / f"{split}_caps.txt").write_text("".join(f"a {split} {row}\n" for row in range(20)))
    report = check_data(PrecompConfig(name="mine", root=str(tmp_path), min_word_count=1))
    found = [one.found for one in report.findings if "the row before" in one.found]
    assert len(found) == is_said, found
    assert all(line.startswith("48 images have nearly the features of the row before") for line in found)


@pytest.mark.parametrize("padded", [0, 1, 5])
def test_regions_that_look_like_padding_are_said(tmp_path: Path, padded: int) -> None:
    for split in ("train", "dev", "test"):
        rows = np.random.default_rng(1).normal(size=(6, 3, 8)).astype(np.float32)
        rows[:padded, 2] = 0
        np.save(tmp_path / f"{split}_ims.npy", rows)
        (tmp_path / f"{split}_caps.txt").write_text("".join(f"a {split} {row}\n" for row in range(6)))
        (tmp_path / f"{split}_ids.txt").write_text("".join(f"{split}{row}\n" for row in range(6)))
    found = [one.found for one in check_data(RegionsConfig(name="mine", root=str(tmp_path), min_word_count=1)).findings]
    said = [line.partition(" of")[0] for line in found if "nothing but 0" in line]
    assert said == [f"{3 * padded} images have regions"] * bool(padded)
