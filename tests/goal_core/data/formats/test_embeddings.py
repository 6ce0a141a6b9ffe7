"""Vectors of images and texts: both layouts give the same data, every vector is verified, and mistakes are named."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from goal_sweep.goal_core.basics.errors import ChangedDataError, DataError
from goal_sweep.goal_core.data.config import EmbeddingsConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.inputs import captions_of
from goal_sweep.goal_core.data.text import TextVectors

OWNERS = np.array([0, 0, 1, 2, 2, 2, 3, 3, 4, 5])


def write(root: Path, *, whole: bool = False, owners: bool = True) -> EmbeddingsConfig:
    root.mkdir(parents=True, exist_ok=True)
    for number, split in enumerate(("train", "val", "test")):
        draws = np.random.default_rng(number)
        arrays = {"images": draws.normal(size=(6, 7)), "texts": draws.normal(size=(len(OWNERS) if owners else 12, 5))}
        parts: dict[str, np.ndarray] = {name: array.astype(np.float32) for name, array in arrays.items()}
        parts |= {"owners": OWNERS} if owners else {}
        if whole:
            save_file(parts, root / f"{split}.safetensors")
        else:
            for name, array in parts.items():
                np.save(root / f"{split}_{name}.npy", array)
    return EmbeddingsConfig(name="mine", root=str(root))


def as_parquet(root: Path) -> EmbeddingsConfig:
    """The same as columns of tables."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    config = write(root)
    for split in ("train", "val", "test"):
        images, texts = (np.load(root / f"{split}_{part}.npy") for part in ("images", "texts"))
        several = [[text.tolist() for text in texts[image == OWNERS]] for image in range(6)]
        columns = {"image": pa.array(images.tolist(), pa.list_(pa.float32()))}
        columns["texts"] = pa.array(several, pa.list_(pa.list_(pa.float32())))
        parquet.write_table(pa.table(columns), root / f"{split}.parquet", row_group_size=2)
        for part in ("images", "texts", "owners"):
            (root / f"{split}_{part}.npy").unlink()
    return config


def test_columns_of_parquet_files_are_the_same_data_and_verified(tmp_path: Path) -> None:
    ours = open_dataset(write(tmp_path / "plain"))
    config = as_parquet(tmp_path / "table")
    theirs = open_dataset(config, tmp_path / "indexes")
    assert theirs.fingerprint == ours.fingerprint
    for one in (theirs, open_dataset(config, tmp_path / "indexes", renew=False)):
        train = one.splits["train"]
        assert (train.load_regions(np.array([5, 0])) == ours.splits["train"].load_regions(np.array([5, 0]))).all()
        assert train.caption_image.tolist() == OWNERS.tolist()
    path = tmp_path / "table/train.parquet"
    (tmp_path / "table/val.parquet").replace(path)
    with pytest.raises(ChangedDataError, match=r"image 0 \(row 0 of .*train\.parquet\)"):
        theirs.splits["train"].load_regions(np.array([0]))
    path.write_bytes(b"no table")
    with pytest.raises(DataError, match=r"train\.parquet: column 'image'"):
        open_dataset(config)
    path.unlink()
    with pytest.raises(ChangedDataError, match=r"train\.parquet is missing"):
        theirs.splits["train"].load_regions(np.array([0]))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"image": [[1.0, 2.0], [3.0]]}, "column 'image' must hold vectors .*: they have 1, 2 numbers"),
        ({"image": [[[1.0]], [[1.0], [2.0]]], "texts": [[[1.0]]] * 2}, "row 1: image must be one vector, but holds 2"),
        ({"img": [[1.0, 2.0]], "text": [[1.0]]}, "has no column 'image'; it has img, text"),
    ],
)
def test_a_parquet_file_of_other_columns_is_named(tmp_path: Path, columns: dict[str, Any], said: str) -> None:
    config = as_parquet(tmp_path)
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table(columns), tmp_path / "val.parquet")
    with pytest.raises(DataError, match=rf"val\.parquet.* {said}"):
        open_dataset(config)


def test_both_layouts_are_the_same_data(tmp_path: Path) -> None:
    first, second = (open_dataset(write(tmp_path / str(whole), whole=whole), tmp_path / "i") for whole in (False, True))
    assert first.fingerprint == second.fingerprint
    train = second.splits["train"]
    assert (train.num_images, train.num_captions, train.region_shape) == (6, 10, (7,))
    assert train.caption_image.tolist() == OWNERS.tolist()
    texts = captions_of(train, TextVectors(5))
    tokens, lengths = texts.batch(np.array([3, 0]))
    expected = np.load(tmp_path / "False/train_texts.npy")[[3, 0]]
    assert (tokens.numpy() == expected).all()
    assert lengths.tolist() == [1, 1]
    assert len(captions_of(train.first(2), TextVectors(5))) == 3
    assert open_dataset(write(tmp_path / "equal", owners=False)).splits["val"].caption_image.tolist() == [
        image for image in range(6) for _ in range(2)
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shape": ["6", "7"]}, r"images has the shape \['6', '7'\]"),
        ({"shape": [True, 42]}, "images has the shape"),
        ({"shape": [6, 2**40]}, r"images must lie at \[\d+, \d+\]"),
        ({"data_offsets": [-8, 160]}, "images must lie at"),
        ({"data_offsets": [10**6, 10**6 + 168]}, "must lie at"),
        ({"dtype": "BF16"}, "images has numbers of type BF16; save them as float32"),
        ({"dtype": ["F32"]}, "no whole safetensors file"),
    ],
)
def test_a_header_that_is_not_true_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    config, path = write(tmp_path, whole=True), tmp_path / "val.safetensors"
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["images"] |= change
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + content[8 + size :])
    with pytest.raises(DataError, match=rf"val\.safetensors: .*{said}"):
        open_dataset(config)


@pytest.mark.parametrize("header", [b"[" * 100_000, b'{"a":' * 100_000, b"{}"])
def test_a_header_that_is_deep_or_not_of_the_files_size_is_refused(tmp_path: Path, header: bytes) -> None:
    config, path = write(tmp_path, whole=True), tmp_path / "val.safetensors"
    for size, more in ((len(header), b"more"), (2**62, b"")):
        path.write_bytes(size.to_bytes(8, "little") + header + more)
        with pytest.raises(DataError, match=r"val\.safetensors: it is no whole safetensors file"):
            open_dataset(config)


def lose(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


def save(name: str, array: np.ndarray) -> Callable[[Path], None]:
    return lambda root: np.save(root / name, array)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lose("val_texts.npy"), r"val_texts.npy is missing"),
        (lose("val_owners.npy"), "10 captions, not a multiple of the 6 images"),
        (save("val_owners.npy", OWNERS[::-1].copy()), "owners must ascend"),
        (save("val_owners.npy", OWNERS[:-1]), "owners must be 10 whole numbers"),
        (save("val_owners.npy", OWNERS * 1.0), "val_owners.npy must contain whole numbers"),
        (save("val_owners.npy", OWNERS[[1, 2, 0, *range(3, 10)]].astype(np.uint8)), "owners must ascend"),
        (save("val_owners.npy", OWNERS.astype(object)), "val_owners.npy must contain whole numbers"),
        (lambda root: (root / "val_owners.npy").write_bytes(pickle.dumps([0, 1])), "val_owners.npy is not an .npy"),
        (lambda root: (root / "val_texts.npy").write_bytes(b"version https://git-lfs"), "npy is a Git LFS pointer"),
        (save("val_owners.npy", np.minimum(OWNERS, 4)), "image 5 of split 'val' has no captions"),
        (save("val_texts.npy", np.zeros((10, 5), int)), "floating point"),
        (save("val_texts.npy", np.zeros((0, 5))), r"val_texts\.npy must have shape .* got \(0, 5\)"),
        (save("test_images.npy", np.ones((6, 8), np.float32)), "features of 8 numbers"),
        (save("test_texts.npy", np.ones((10, 6), np.float32)), r"test_texts\.npy has features of 6 numbers"),
        (save("val_texts.npy", np.eye(10, 5)), r"row 5 of .*val_texts\.npy\) are all 0"),
        (save("val_texts.npy", np.full((10, 5), 1e300)), r"row 0 of .*val_texts\.npy\) are not finite"),
        (save("val_texts.npy", np.ones((10, 5), np.longdouble)), "at most 64 bits, got float128"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    config = write(tmp_path)
    damage(tmp_path)
    with pytest.raises(DataError, match=said) as caught:
        open_dataset(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ends", [("safetensors", "npy"), ("parquet", "npy"), ("parquet", "safetensors")])
def test_vectors_in_two_containers_are_refused(tmp_path: Path, ends: tuple[str, str]) -> None:
    as_parquet(tmp_path)
    write(tmp_path, whole=True)
    config = write(tmp_path)
    for path in tmp_path.iterdir():
        if not path.name.endswith(ends):
            path.unlink()
    with pytest.raises(DataError, match=rf"train\.{ends[0]} and .*train.*\.{ends[1]} both hold .* delete or move one"):
        open_dataset(config)
