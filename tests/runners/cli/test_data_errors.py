"""Missing or malformed data end a command with one clear line that names the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data.config import ImageConfig, KarpathyConfig
from goal_sweep.goal_core.training.train import train_unit
from goal_sweep.runners.cli.app import run
from tests.helpers.karpathy_fixture import tiny_annotations, write_dataset
from tests.helpers.region_files import write_regions
from tests.helpers.training_cases import FROZEN, folders_of, unit_of

NO_JPEG = b"\xff\xd8\xff\xe0 not really"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the store's default place is the current directory


def sweep(root: Path, layout: str) -> str:
    regions = layout == "regions"
    backbone = {"name": "butd", "weights": "precomputed"} if regions else {"name": "test_resnet", "weights": "random"}
    model: dict[str, Any] = {"framework": "vse_infty" if regions else "vsepp", "backbones": [backbone]}
    if regions:
        model["bert"] = {"weights": "random", "layers": 1, "width": 32, "heads": 2}
    content = {
        "name": "tiny",
        "data": {"format": layout, "name": "tiny", "root": str(root), "min_word_count": 1},
        "model": model,
        "seeds": [1],
        "stages": [{"name": "frozen", "epochs": 1, "lr": 1e-3, "batch_size": 4}],
    }
    path = root.parent / "tiny.yaml"
    path.write_text(json.dumps(content))
    return str(path)


def first_lines(name: str, count: int) -> Callable[[Path], Any]:
    return lambda root: (root / name).write_text("".join((root / name).read_text().splitlines(True)[:count]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "train_ims.npy").write_bytes((root / "train_ims.npy").read_bytes()[:-9]), "is cut short"),
        (first_lines("dev_caps.txt", 14), "dev_caps.txt has 14 captions, not a multiple of the 3 images"),
        (first_lines("test_ids.txt", 2), "test_caps.txt has 15 captions, not a multiple of the 2 images"),
        (lambda root: (root / "test_ids.txt").write_text("7\n7\n8\n"), "image 7 is listed twice in"),
        (lambda root: (root / "test_ims.npy").unlink(), "test_ims.npy is missing"),
    ],
)
def test_regions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], Any], message: str
) -> None:
    root = write_regions(tmp_path / "data")
    path = sweep(root, "regions")
    assert run(["validate", path]) == 0
    capsys.readouterr()
    damage(root)
    for command in ("validate", "launch"):
        assert run([command, path]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("error: ")
        assert message in lines[0]


@pytest.mark.parametrize("fault", ["val", "twice"])
def test_images(tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str) -> None:
    content = tiny_annotations()
    if fault == "twice":
        content["images"].append(content["images"][4])
    else:
        content["images"] = [image for image in content["images"] if image["split"] != "val"]
    path = sweep(write_dataset(tmp_path / "data", content), "karpathy")
    assert run(["validate", path]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    expected = "image pictures/0004.png is listed twice" if fault == "twice" else "split 'val' has no images"
    assert expected in line


def test_an_unreadable_jpeg_is_named_before_and_in_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_dataset(tmp_path / "data")
    (root / "pictures" / "0002.png").write_bytes(NO_JPEG)
    assert run(["data", "check", sweep(root, "karpathy")]) == 2
    assert "0002.png" in capsys.readouterr().out
    image = ImageConfig(size=32, resize=32, augment="crop_flip")
    data = KarpathyConfig(name="tiny", root=str(root), min_word_count=1, image=image)
    unit = unit_of("con/con", data=data, stage=FROZEN)
    with pytest.raises(DataError, match=r"cannot read image .*0002\.png: ") as caught:
        train_unit(unit, folders_of(unit, tmp_path / "cells"))
    assert "\n" not in str(caught.value)
