"""A checkpoint encodes pictures and sentences by itself, as evaluation does, with its training data out of reach."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from goal_sweep.goal_core.basics.errors import ConfigError, DataError, WeightsError, listening
from goal_sweep.goal_core.checkpoints.file import read_checkpoint, write_checkpoint
from goal_sweep.goal_core.data.config import PrecompConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.evaluation.evaluate import open_checkpoint
from goal_sweep.goal_core.evaluation.recalls import embed_split, recalls_between
from goal_sweep.goal_core.evaluation.trained_model import load_model
from tests.helpers.training_cases import DATA, trained_cell


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_cell(tmp_path_factory.mktemp("trained"), 1)


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if anything opens a dataset."""
    for module in ("goal_sweep.goal_core.evaluation.evaluate", "goal_sweep.goal_core.training.train"):
        monkeypatch.setattr(f"{module}.open_dataset", lambda *_: pytest.fail("a dataset was opened"))


def test_pictures_and_sentences_are_embedded_as_evaluation_embeds_them(folder: Path, without_data: None) -> None:
    split = open_dataset(DATA).splits["test"]
    model = load_model(folder)
    images = model.encode_images([split.load_image(index) for index in range(split.num_images)])
    texts = model.encode_texts(split.captions)
    assert images.dtype == texts.dtype == np.float32
    owners = torch.tensor(split.caption_image)
    metrics, _ = recalls_between(torch.from_numpy(images), torch.from_numpy(texts), owners, "test")
    with pytest.MonkeyPatch.context() as patch:
        patch.undo()
        patch.setattr("goal_sweep.goal_core.evaluation.evaluate.open_dataset", lambda *_, **__: open_dataset(DATA))
        opened = open_checkpoint(folder)
        expected_images, expected_texts = embed_split(opened.encoder, opened.prepared("test"))
        assert np.array_equal(images, expected_images.numpy())
        assert np.array_equal(texts, expected_texts.numpy())
        expected = open_checkpoint(folder).evaluate()["metrics"]
    assert {name: expected[name] for name in metrics} == metrics


def test_a_search_gives_the_nearest_first_and_ties_in_order(folder: Path) -> None:
    model = load_model(folder)
    query = model.encode_texts(["a red square"])[0]
    images = np.stack([-query, query, query * 0, query])
    assert [index for index, _ in model.search("a red square", images, top=3)] == [1, 3, 2]
    assert model.search("a red square", images, top=1)[0][1] == pytest.approx(1.0)
    assert len(model.search("a red square", images, top=50)) == 4
    for rows in (300 * images.astype(np.float16), 1e30 * images):  # of any length
        assert model.search("a red square", rows, top=1)[0][1] == pytest.approx(1.0, abs=1e-3)
    for rows, top in ((images[:, 1:], 5), (images[0], 5), (images, 0)):
        with pytest.raises(DataError, match=r"images must be|at least 1"):
            model.search("a red square", rows, top=top)


def test_a_file_of_others_is_written_over_only_if_forced(folder: Path, tmp_path: Path) -> None:
    model, own = load_model(folder), tmp_path / "README.txt"
    own.write_text("mine")
    for write in (partial(model.save, own), partial(model.export, tmp_path, "torch", longest=8)):
        with pytest.raises(ConfigError, match=r"README\.txt is there already"):
            write()
    assert [path.name for path in tmp_path.iterdir()] == ["README.txt"]
    assert own.read_text() == "mine"
    model.save(own, force=True)
    assert load_model(own).encode_texts(["a red square"]).shape[0] == 1


def test_what_cannot_be_embedded_is_refused(folder: Path, tmp_path: Path) -> None:
    model = load_model(folder)
    with pytest.raises(DataError, match="no sentence"):
        model.encode_texts([])
    with pytest.raises(DataError, match="no picture"):
        model.encode_images([])
    with pytest.raises(DataError, match="pixels must be"):
        model.encode_images([np.zeros((4, 4, 1), np.uint8)])
    with pytest.raises(DataError, match="got Tensor"):
        model.encode_images([torch.zeros(3, 4, 4)])  # type: ignore[list-item]  # which is what it refuses
    for alone in (str(tmp_path), tmp_path, Image.new("RGB", (4, 4))):
        with pytest.raises(DataError, match="a list"):
            model.encode_images(alone)  # type: ignore[arg-type]  # which is what it refuses
    with pytest.raises(DataError, match="a list, not one str"):
        model.encode_texts("a red flag")
    with pytest.raises(DataError, match="NoneType"):
        model.encode_texts(["a flag", None])  # type: ignore[list-item]  # which is what it refuses
    with pytest.raises(DataError, match="sentence 1 is empty"):
        model.encode_texts(["a flag", " \n"])
    with pytest.raises(DataError, match=r"none\.png"):
        model.encode_images([tmp_path / "none.png"])
    Image.fromarray(np.full((8, 8), 4_000, np.uint16)).save(dark := tmp_path / "dark.png")
    with listening((lines := list[str]()).append):
        model.encode_images([dark, dark])
    assert [line.startswith("2 images of 16 bits") for line in lines if "16 bits" in line] == [True]
    Image.effect_noise((64, 64), 90).save(torn := tmp_path / "torn.jpg")
    torn.write_bytes(torn.read_bytes()[:900] + bytes(900))
    with pytest.raises(DataError, match=r"torn\.jpg"):
        model.encode_images([torn])
    with pytest.raises(ConfigError, match="encode_images"):
        model.encode_features(np.zeros((2, 8)))


@pytest.mark.parametrize("value", [30_000, 10**12, -1, "x", None, []])
def test_a_header_that_lies_is_one_error_that_names_the_file(folder: Path, tmp_path: Path, value: object) -> None:
    """Sizes take no memory before they are known to fit the file's tensors."""
    (best,), forged = folder.glob("best-*.safetensors"), tmp_path / "forged.safetensors"
    tensors, state = read_checkpoint(best)
    card = state["card"]
    for key in ("embed_dim", "framework", "backbone"):
        write_checkpoint(forged, tensors, state | {"card": card | {"model": card["model"] | {key: value}}})
        with pytest.raises(WeightsError, match=r"forged\.safetensors"):
            load_model(forged)
    for key in ("data", "vocabulary"):
        write_checkpoint(forged, tensors, state | {"card": card | {key: value}})
        with pytest.raises(WeightsError, match=r"forged\.safetensors"):
            load_model(forged)


def test_a_cell_is_evaluated_on_other_data_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(DATA, num_test=5)
    with monkeypatch.context() as patch:
        patch.setattr("goal_sweep.goal_core.evaluation.evaluate.open_dataset", lambda *_, **__: open_dataset(other))
        with pytest.raises(DataError, match="not what the cell was trained on"):
            open_checkpoint(folder)
    result = open_checkpoint(folder, data=replace(other, name="elsewhere")).evaluate()
    assert (result["trained_on"], result["data"]) == (DATA.name, "elsewhere")
    assert result["images"] == 5
    with pytest.raises(ConfigError, match="pictures"):
        open_checkpoint(folder, data=PrecompConfig(name="x", root="nowhere")).evaluate()
