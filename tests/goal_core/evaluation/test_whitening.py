"""Whitened vectors, and the vectors that ship with goal-sweep."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from goal_core.basics.errors import ConfigError, DataError
from goal_core.data import Dataset, ImageConfig, KarpathyConfig, PrecompConfig, open_dataset
from goal_core.data.formats.layout import dataset_folder
from goal_core.evaluation.extract import extract_features
from goal_core.evaluation.whitening import whiten_features, whitening
from goal_core.models import BackboneConfig, weights_id
from tests.helpers.paths import EMOJI, WEIGHTS
from tests.helpers.vector_files import COUNTS, write_vectors

IMAGE = ImageConfig(size=112, resize=112, augment="none")
LITE0 = BackboneConfig(name="tf_efficientnet_lite0", weights=str(WEIGHTS))
SHIPPED = PrecompConfig(name="emoji", root="shipped:emoji_precomp")


def test_whitened_vectors_have_unit_variance_and_are_sorted_by_it() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((500, 6)) * [9, 1, 5, 3, 0.1, 7] @ rng.standard_normal((6, 6)) + 4
    mean, projection = whitening(vectors, 4)
    white = (vectors - mean) @ projection
    assert np.allclose(white.mean(axis=0), 0, atol=1e-9)
    assert np.allclose(np.cov(white, rowvar=False), np.eye(4))
    kept = 1 / (projection**2).sum(axis=0)
    assert (np.diff(kept) < 0).all()
    assert np.allclose(sorted(np.linalg.eigvalsh(np.cov(vectors, rowvar=False)))[:1:-1], kept)
    assert (projection[np.abs(projection).argmax(axis=0), np.arange(4)] > 0).all()


@pytest.mark.parametrize(("dims", "said"), [(0, "at least 1"), (7, "at most the 6 features"), (4, "fewer than 4")])
def test_dimensions_that_the_vectors_do_not_have_are_refused(dims: int, said: str) -> None:
    flat = np.random.default_rng(0).standard_normal((50, 3)) @ np.ones((3, 6)) * np.arange(1, 7)
    with pytest.raises(ConfigError, match=said):
        whitening(flat, dims)


def test_a_folder_is_whitened_with_its_captions_and_written_the_same_each_time(tmp_path: Path) -> None:
    source = write_vectors(tmp_path / "raw")
    with pytest.raises(DataError, match=r"has no features\.json"):
        whiten_features(source, tmp_path / "white", dims=2)
    (source / "features.json").write_text('{"kind": "vectors"}')
    for word, count in COUNTS.items():
        (source / f"{word}_ids.txt").write_text("".join(f"{word}{image}\n" for image in range(count)))
    written = whiten_features(source, tmp_path / "white", dims=2, half=True)
    assert written == {word: (count, 2) for word, count in COUNTS.items()}
    first = {path.name: path.read_bytes() for path in (tmp_path / "white").iterdir()}
    whiten_features(source, tmp_path / "white", dims=2, half=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "white").iterdir()} == first
    dataset = open_dataset(PrecompConfig(name="tiny", root=str(tmp_path / "white"), min_word_count=1))
    raw = open_dataset(PrecompConfig(name="tiny", root=str(source), min_word_count=1))
    for name, split in dataset.splits.items():
        assert split.captions == raw.splits[name].captions
        assert split.reader.label(1).split()[1] == {"val": "dev"}.get(name, name) + "1"
    assert np.load(tmp_path / "white/dev_ims.npy").dtype == np.float16
    mean, projection = whitening(np.load(source / "train_ims.npy"), 2)
    expected = (np.load(source / "test_ims.npy") - mean) @ projection
    assert np.allclose(dataset.splits["test"].load_regions(np.arange(3)), expected, atol=2e-3)


@pytest.fixture
def drawings() -> Dataset:
    if not (EMOJI.is_dir() and WEIGHTS.is_file()):
        pytest.skip("the drawings and the weights are not beside the repository")
    return open_dataset(KarpathyConfig(name="emoji", root=str(EMOJI), image=IMAGE))


def test_the_shipped_captions_and_their_description_are_those_of_the_drawings(drawings: Dataset) -> None:
    shipped = open_dataset(SHIPPED)
    for name, split in drawings.splits.items():
        assert shipped.splits[name].captions == [" ".join(caption.split()) for caption in split.captions]
        assert shipped.splits[name].caption_image.tolist() == split.caption_image.tolist()
        ids = [f"{EMOJI}/images/{name}" for name in shipped.splits[name].reader.ids]  # type: ignore[union-attr]
        assert ids == [split.reader.label(index) for index in range(split.num_images)]
    described = json.loads((dataset_folder(SHIPPED.root) / "features.json").read_text())
    assert described["data_fingerprint"] == drawings.fingerprint
    assert described["weights"] == weights_id(LITE0)


@pytest.mark.exhaustive
def test_the_shipped_vectors_are_what_the_documented_commands_write(drawings: Dataset, tmp_path: Path) -> None:
    extract_features(drawings, IMAGE, LITE0, tmp_path / "raw", kind="vectors")
    whiten_features(tmp_path / "raw", tmp_path / "white", dims=128, half=True)
    folder = dataset_folder(SHIPPED.root)
    for path in (tmp_path / "white").iterdir():
        if path.suffix == ".npy":
            # Another processor may round the last bit of a half otherwise.
            assert np.allclose(np.load(path), np.load(folder / path.name), rtol=2e-3, atol=2e-3)
        elif path.suffix == ".gz":
            assert gzip.decompress(path.read_bytes()) == gzip.decompress((folder / path.name).read_bytes())
        else:
            assert path.read_bytes() == (folder / path.name).read_bytes()
