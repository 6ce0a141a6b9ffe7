from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from goal_sweep.goal_core.basics.errors import DataError, WeightsError
from goal_sweep.goal_core.data import ImageConfig
from goal_sweep.goal_core.data.config import KarpathyConfig, RegionsConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.transforms import transform_of
from goal_sweep.goal_core.evaluation import extract
from goal_sweep.goal_core.evaluation.extract import extract_features
from goal_sweep.goal_core.models import BackboneConfig
from goal_sweep.goal_core.models.backbones import build_backbone
from tests.helpers.karpathy_fixture import write_dataset

IMAGE = ImageConfig(size=32, resize=32, augment="none")
BACKBONE = BackboneConfig(name="test_resnet", weights="random")


def features(root: Path, out: Path, **settings: Any) -> tuple[int, int, int]:
    dataset = open_dataset(KarpathyConfig(name="tiny", root=str(root), image=IMAGE))
    return extract_features(dataset, IMAGE, BACKBONE, out, seed=3, **settings)


def content(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def test_grid_features_are_the_cells_of_each_image_with_its_captions(tmp_path: Path) -> None:
    shape = features(write_dataset(tmp_path / "images"), tmp_path / "out")
    assert shape == (14, 1, 96)
    net = build_backbone(BACKBONE, image_size=32, seed=3, cells=True)
    images = open_dataset(KarpathyConfig(name="tiny", root=str(tmp_path / "images"), image=IMAGE))
    regions = open_dataset(RegionsConfig(name="tiny", root=str(tmp_path / "out")))
    for name, split in images.splits.items():
        assert list(regions.splits[name].captions) == list(split.captions)
        assert regions.splits[name].caption_image.tolist() == split.caption_image.tolist()
        pixels = torch.stack(
            [transform_of(IMAGE).for_evaluation(split.load_image(index)) for index in range(split.num_images)]
        )
        with torch.inference_mode():
            expected = net(pixels).numpy()
        taken = regions.splits[name].load_regions(np.arange(split.num_images))
        assert np.allclose(taken, expected, rtol=1e-4, atol=1e-5)
    assert (tmp_path / "out" / "dev_ids.txt").read_text() == "0008.png\n0009.png\n0010.png\n"


class KilledError(Exception):
    pass


@pytest.mark.parametrize("killed_after", [1, 3, 4])
def test_killed_and_started_again_it_writes_the_same_bytes(tmp_path: Path, monkeypatch, killed_after: int):
    monkeypatch.setattr(extract, "CHUNK", 3)
    root = write_dataset(tmp_path / "images")
    features(root, tmp_path / "unbroken")
    calls = []

    def die(split: str, done: int, total: int) -> None:
        calls.append(split)
        if len(calls) == killed_after:
            raise KilledError

    out = tmp_path / "out"
    with pytest.raises(KilledError):
        features(root, out, progress=die)
    assert len(list(out.glob("*_ims.npy"))) == {1: 0, 3: 0, 4: 1}[killed_after]
    with pytest.raises(DataError, match=r"_ims\.npy is missing"):
        open_dataset(RegionsConfig(name="tiny", root=str(out)))
    resumed = []
    features(root, out, progress=lambda split, done, total: resumed.append((split, done)))
    assert content(out) == content(tmp_path / "unbroken")
    assert (("train", 3) in resumed) is (killed_after < 4)  # of three chunks


def test_a_folder_of_other_features_is_refused(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "images")
    features(root, tmp_path / "out")
    with pytest.raises(DataError, match=r"contains other features: kind is grid, not vectors; choose another folder"):
        features(root, tmp_path / "out", kind="vectors")
    (tmp_path / "out" / "features.json").unlink()
    with pytest.raises(DataError, match=r"contains dev_.* but no features\.json; choose another folder"):
        features(root, tmp_path / "out")
    for name in ("dev_ims.npy", "train_caps.txt", "test_ids.txt"):
        (own := tmp_path / name / name).parent.mkdir()
        own.write_text("mine")
        with pytest.raises(DataError, match=rf"contains {name} but no features\.json"):
            features(root, own.parent)
        assert own.read_text() == "mine"


def test_features_that_are_not_finite_are_refused_with_the_image_and_the_weights(tmp_path: Path) -> None:
    state = build_backbone(BACKBONE, image_size=32, seed=3).net.state_dict()
    huge = {name: torch.full_like(one, 3e38) if name.endswith("conv1.weight") else one for name, one in state.items()}
    torch.save(huge, path := tmp_path / "huge.pth")
    images = open_dataset(KarpathyConfig(name="tiny", root=str(write_dataset(tmp_path / "images")), image=IMAGE))
    backbone = BackboneConfig(name="test_resnet", weights=str(path))
    with pytest.raises(WeightsError, match=rf"features of .*\.png are not finite, computed by .* {path}"):
        extract_features(images, IMAGE, backbone, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*_ims.npy"))


def test_features_that_a_full_disk_cannot_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_dataset(tmp_path / "images")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=0))
        with pytest.raises(DataError, match=r"has 0\.0 GB free and needs 0\.0 GB more"):
            features(root, tmp_path / "out")
