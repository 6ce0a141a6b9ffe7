from pathlib import Path

import pytest

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.store import Store
from tests.helpers.karpathy_fixture import write_dataset

SWEEP = """
name: tiny
data: {format: karpathy, name: tiny, root: ROOT, image: {size: 32, resize: 32, augment: crop_flip}}
model:
  backbones: [{name: test_resnet, weights: random}]
seeds: [1]
stages: [{name: frozen, epochs: 1, lr: 1e-3, batch_size: 8}]
store: STORE
"""


@pytest.fixture
def sweep(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    root = str(write_dataset(tmp_path / "images"))
    path.write_text(SWEEP.replace("ROOT", root).replace("STORE", str(tmp_path / "store")))
    return str(path)


def test_a_pack_is_written_once_and_mended(sweep: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "pack", sweep]) == 0
    printed, notes = capfd.readouterr()
    assert notes == ""
    assert "train 8 images, val 3 squares, test 3 squares: about 0.00 GB in all" in printed
    assert "14 images" in printed
    (folder,) = (tmp_path / "store" / "packs").iterdir()
    written = {path: path.stat().st_mtime_ns for path in folder.glob("*.zip")}
    shard = next(iter(written))
    assert run(["data", "pack", sweep]) == 0
    assert written == {path: path.stat().st_mtime_ns for path in folder.glob("*.zip")}
    whole = shard.read_bytes()
    shard.unlink()
    assert run(["data", "pack", sweep]) == 0
    assert shard.read_bytes() == whole


def test_a_broken_image_is_named_and_ends_with_2(sweep: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "images/pictures/0005.png").write_bytes(b"no picture")
    assert run(["data", "pack", sweep]) == 2
    assert len([line for line in capsys.readouterr().err.splitlines() if "0005.png" in line]) == 1
    assert not list((tmp_path / "store" / "packs").glob("*/pack.json"))


def test_another_folder_can_hold_the_packs(sweep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOAL_SWEEP_PACKS", str(tmp_path / "fast"))
    assert run(["data", "pack", sweep]) == 0
    assert Store(tmp_path / "store").packs == tmp_path / "fast"
    assert len(list((tmp_path / "fast").iterdir())) == 1
