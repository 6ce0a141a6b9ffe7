"""A trained cell at the command line: pictures embedded and searched, and other data evaluated."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from goal_sweep.goal_core.basics.errors import listening
from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.goal_core.data.config import PrecompConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.evaluation.trained_model import load_model
from goal_sweep.runners.cli.app import run
from tests.helpers.training_cases import DATA, VECTORS, trained_cell
from tests.helpers.vector_files import write_vectors


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_cell(tmp_path_factory.mktemp("cell"), 1)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, split = tmp_path_factory.mktemp("pictures"), open_dataset(DATA).splits["test"]
    (folder / "below").mkdir()
    for index in range(4):
        place = folder / "below" if index == 3 else folder
        Image.fromarray(split.load_image(index)).save(place / f"{'<b>' if index == 1 else ''}{index}.png")
    (folder / "notes.txt").write_text("no picture")
    (folder / "store" / "report").mkdir(parents=True)
    (folder / "store" / "store.json").write_bytes(json_bytes({"version": 6}))
    (folder / "store" / "report" / "heatmap.png").write_bytes(b"a figure, which is none of them")
    return folder


def test_pictures_are_searched_and_shown(
    cell: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "found.html"
    where = ["--images", str(pictures), "--page", str(page)]
    assert run(["search", str(cell), "a <red> square", *where, "--top", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    similarities = [float(line.split()[0]) for line in lines]
    assert similarities == sorted(similarities, reverse=True)
    assert len(lines) == 3
    text = page.read_text()
    assert text.count("<img ") == 3
    assert "a &lt;red&gt; square" in text
    assert "<red>" not in text
    said: list[str] = []
    with listening(said.append):
        assert run(["search", str(cell), "qqq square, red/zzz's", *where[:2]]) == 0
    assert said == ["words that the model does not know: 'qqq', \"zzz's\""]
    for query in ("qqq, zzz", "qqq/zzz", "红旗，绿旗", "!!!"):
        assert run(["search", str(cell), query, *where[:2]]) == 2
        assert f"knows no word of {query!r}" in capsys.readouterr().err
    assert "<b>" not in text


def test_embeddings_are_written_with_their_names(cell: Path, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a red square\na dog\n")
    assert run(["embed", str(cell), "--texts", str(tmp_path / "lines.txt"), "--out", str(tmp_path / "t.npy")]) == 0
    assert run(["embed", str(cell), "--images", str(pictures), "--out", str(tmp_path / "i.npy")]) == 0
    model = load_model(cell)
    assert np.array_equal(np.load(tmp_path / "t.npy"), model.encode_texts(["a red square", "a dog"]))
    assert (tmp_path / "t.npy.txt").read_text().splitlines() == ["a red square", "a dog"]
    names = (tmp_path / "i.npy.txt").read_text().splitlines()
    assert len(names) == 4
    assert np.array_equal(np.load(tmp_path / "i.npy"), model.encode_images(names))


@pytest.mark.parametrize("name", ["a.heic", "a.avif", "a"])
def test_files_of_other_formats_are_said(cell: Path, pictures: Path, tmp_path: Path, name: str) -> None:
    for other in ("a.png", ".git/a.png"):
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).write_bytes((pictures / "0.png").read_bytes())
    (tmp_path / name).write_bytes(b"")
    said: list[str] = []
    with listening(said.append):
        assert run(["embed", str(cell), "--images", str(tmp_path), "--out", str(tmp_path / "i.npy")]) == 0
    assert said == [f"1 files left out, of another format, such as {tmp_path / name}"]
    assert (tmp_path / "i.npy.txt").read_text() == f"{tmp_path / 'a.png'}\n"


@pytest.mark.parametrize("kind", ["texts", "images"])
def test_nothing_is_written_over_that_is_there(
    cell: Path, pictures: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (given := tmp_path / "captions.txt").write_text("a cup\na hat\n")
    embed = ["embed", str(cell), f"--{kind}", str(given if kind == "texts" else pictures), "--out"]
    assert run([*embed, str(tmp_path / "captions.npy")]) == 0
    assert given.read_text() == "a cup\na hat\n"
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for out in ("captions.npy", "captions"):
        assert run([*embed, str(tmp_path / out)]) == 2
        assert "is there already" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before
    assert run([*embed, str(tmp_path / "captions.npy"), "--force"]) == 0
    for name in ("a.v1", "a.v2"):
        assert run([*embed, str(tmp_path / name)]) == 0
        assert {f"{name}.npy", f"{name}.npy.txt"} <= {path.name for path in tmp_path.iterdir()}
    search = ["search", str(cell), "x", "--images", str(pictures), "--page"]
    for name in ("new.png", "x.jpeg", "found", "captions.txt"):
        assert run([*search, str(tmp_path / name), "--force"]) == 2
        assert name == given.name or not (tmp_path / name).exists()
    assert run([*search, str(given)]) == 2
    assert given.read_text() == "a cup\na hat\n"


def test_nothing_is_written_over_what_the_command_reads(
    cell: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lines := tmp_path / "t.npy.txt").write_text("a hat\n")
    for given, words in (
        (pictures / "0.png", ["search", str(cell), "x", "--images", str(pictures), "--page"]),
        (pictures / "0.png", ["search", str(cell), "x", "--images", str(pictures / "0.png"), "--page"]),
        (lines, ["embed", str(cell), "--texts", str(lines), "--out"]),
        (lines, ["convert", str(lines), "--vocabulary", "v.pkl", "--sweep", "coco_vsepp", "--out"]),
        (lines, ["convert", "c.pth", "--vocabulary", str(lines), "--sweep", "coco_vsepp", "--out"]),
    ):
        before = given.read_bytes()
        out = tmp_path / "t.npy" if words[0] == "embed" else given.parent / "." / given.name
        assert run([*words, str(out), "--force"]) == 2
        assert capsys.readouterr().err == f"error: {given} is read by this command; give another name\n"
        assert given.read_bytes() == before


def test_mistakes_are_one_line(cell: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank.txt").write_text("a hat\n\na cup\n")
    for words, what in (
        (["embed", str(cell), "--texts", str(tmp_path / "blank.txt"), "--out", str(tmp_path / "x.npy")], "line 2 of"),
        (["search", str(cell), "x", "--images", str(tmp_path / "empty")], "no pictures"),
        (["search", str(cell), "x", "--images", str(tmp_path / "none")], "no pictures"),
        (["search", str(cell), " ", "--images", str(tmp_path)], "give a sentence"),
        (["embed", str(cell), "--out", str(tmp_path / "x.npy")], "--images or --texts"),
        (["embed", str(tmp_path / "none"), "--texts", "t", "--out", str(tmp_path / "x.npy")], "none"),
        (["evaluate", str(cell), "--data", "quickstart", "--root", "x"], "--data or --root"),
        (["evaluate", str(cell), str(cell), "--weights", "w.pth"], "--weights needs a single checkpoint"),
    ):
        assert run(words) == 2, words
        said = capsys.readouterr().err
        assert what in said
        assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"a hat\rzzz qqq\r", "a.txt:2: .* knows no word of 'zzz qqq'"),
        ("a.txt", b"a hat\r\ra cup\r", "line 2 of .*a.txt is empty"),
        ("a.txt", b"0.jpg#0\ta red hat\n", "a.txt:1 has the name and number of a picture"),
        ("a.txt", b"a hat\n0.jpg#1\ta red hat\n", "a.txt:2 has the name and number of a picture"),
        ("a.txt", b"id,text\n1,a hat\n", "a.txt begins as a table"),
        ("a.txt", b"0.png,a hat,test\n", "a.txt begins as a table"),
        ("a.txt", b'[\n"a hat",\n"a cup"\n]\n', "a.txt begins as a table"),
        ("a.txt", b'{"caption": "a hat"}\n', "a.txt:1.0. must be a caption"),
        ("a.txt", b'["a hat", "a cup"]\n', "a.txt:1 is a list or an object"),
        ("a.json", b'["a hat"]', "a.json: --texts takes a text file with a sentence on each line"),
    ],
)
def test_texts_that_are_none_are_refused(
    cell: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert run(["embed", str(cell), "--texts", str(tmp_path / name), "--out", str(tmp_path / "t.npy")]) == 2
    assert re.search(said, capsys.readouterr().err)
    assert not (tmp_path / "t.npy").exists()


@pytest.mark.parametrize("line", ["Identical | a hat", "Text; on a hat", "Images, a hat", "a [red] hat", "idle\ta hat"])
def test_sentences_that_only_look_like_a_table_are_embedded(cell: Path, tmp_path: Path, line: str) -> None:
    (tmp_path / "a.txt").write_text(f"{line}\n")
    assert run(["embed", str(cell), "--texts", str(tmp_path / "a.txt"), "--out", str(tmp_path / "t.npy")]) == 0


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_texts_may_have_any_line_ends(cell: Path, tmp_path: Path, end: str) -> None:
    (tmp_path / "a.txt").write_bytes(f"a hat{end}a cup{end}".encode())
    assert run(["embed", str(cell), "--texts", str(tmp_path / "a.txt"), "--out", str(tmp_path / "t.npy")]) == 0
    assert (tmp_path / "t.npy.txt").read_text() == "a hat\na cup\n"


@pytest.mark.parametrize("name", [b"caf\xe9.png", b"\xff.jpg", "é.png".encode(), b"a  b.png", b"a\nb.png"])
def test_names_of_pictures_are_listed_in_any_encoding(cell: Path, pictures: Path, tmp_path: Path, name: bytes) -> None:
    path, out = tmp_path / os.fsdecode(name), tmp_path / "i.npy"
    path.write_bytes(next(pictures.glob("*.png")).read_bytes())
    out.write_bytes(b"older")
    assert run(["embed", str(cell), "--images", str(tmp_path), "--out", str(out), "--force"]) == 2 * (b"\n" in name)
    if b"\n" not in name:
        assert len(np.load(out)) == 1
        assert Path(f"{out}.txt").read_bytes() == os.fsencode(path) + b"\n"


def test_a_cell_of_features_says_that_it_takes_no_pictures(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = PrecompConfig(name="tiny", root=str(write_vectors(tmp_path / "data")), min_word_count=1)
    cell = trained_cell(tmp_path, 1, data, model=VECTORS)
    for words in (["search", str(cell), "x"], ["embed", str(cell), "--out", str(tmp_path / "x.npy")]):
        assert run([*words, "--images", str(pictures)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "takes features (precomp)" in line


def test_a_cell_is_evaluated_on_a_table_that_has_one_split(
    cell: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = sorted(one for one in pictures.rglob("*.png") if "store" not in one.parts)
    rows = "".join(f"{name.relative_to(pictures)},a red circle,test\n" for name in names)
    (pictures / "captions.csv").write_text(f"image,caption,split\n{rows}")
    (tmp_path / "only.yaml").write_text(
        f"name: only\ndata: {{format: source, name: only, root: {pictures}/captions.csv,"
        " image: {size: 32, resize: 32, augment: none}}\n"
        "model: {backbones: [{name: test_resnet, weights: random}]}\n"
        "stages: [{name: frozen, epochs: 1, lr: 1e-3, batch_size: 2}]\nseeds: [1]\n"
    )
    for _ in range(2):  # the second time from the index
        assert run(["evaluate", str(cell), "--data", str(tmp_path / "only.yaml")]) == 0
        said = f"{len(names)} images, {len(names)} captions of only; trained on {DATA.name}"
        assert said in capsys.readouterr().out
    assert run(["evaluate", str(cell), "--data", str(tmp_path / "only.yaml"), "--split", "val"]) == 2
    assert "split 'val' has no images" in capsys.readouterr().err
    (pictures / "captions.csv").write_text(f"image,caption\n{rows.replace(',test', '')}")
    (tmp_path / "data.yaml").write_text(
        f"data: {{format: source, name: bare, root: {pictures}/captions.csv, image: {{size: 32, resize: 32}}}}\n"
    )
    assert run(["evaluate", str(cell), "--data", str(tmp_path / "data.yaml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["data"] == "bare"
    assert "no split is given, so all images are test" in told["warnings"]
    table = (pictures / "captions.csv").read_text()
    (pictures / "captions.csv").write_text("image,caption\n" + "".join(f"{name},zzz qqq\n" for name in names))
    assert run(["evaluate", str(cell), "--data", str(tmp_path / "data.yaml"), "--json"]) == 0
    told, unknown, equal = json.loads(capsys.readouterr().out), "half of the words", "captions are equal"
    assert all(any(said in line for line in told["warnings"]) for said in (unknown, equal))
    (pictures / "captions.csv").write_text(table)
    assert run(["evaluate", str(cell), "--data", str(tmp_path / "data.yaml")]) == 0
    said = capsys.readouterr().out
    assert f"test: {len(names)} images" in said
    assert "no split is given" in said
