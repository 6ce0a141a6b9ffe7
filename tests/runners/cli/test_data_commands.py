import json
from pathlib import Path

import pytest

from goal_sweep.goal_core.data.config import PrecompConfig, RegionsConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.evaluation.evaluate import evaluate_ensemble, open_checkpoint
from goal_sweep.runners.cli.app import run
from goal_sweep.runners.store import Store
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.training_cases import trained_cell
from tests.helpers.vector_files import write_vectors

SWEEP = """
name: tiny
data: {format: karpathy, name: tiny, root: ROOT, image: {size: 32, resize: 32, augment: none}}
model:
  backbones: [{name: test_resnet, weights: random}]
seeds: [1]
stages: [{name: frozen, epochs: 1, lr: 1e-3, batch_size: 8}]
"""
PACKS = "goal-sweep-store/packs"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Indexes are written into the store, which is in the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sweep(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(SWEEP.replace("ROOT", str(write_dataset(tmp_path / "images"))))
    return str(path)


def test_check_exits_with_0_when_complete_and_with_2_otherwise(
    sweep: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "check", sweep]) == 0
    assert "tiny: complete" in capsys.readouterr().out
    (tmp_path / "images/pictures/0005.png").write_bytes(b"no picture")
    assert run(["data", "check", sweep, "--quick"]) == 0
    capsys.readouterr()
    assert run(["data", "check", sweep, "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["name"], report["complete"]) == ("tiny", False)
    wrong = [finding for finding in report["findings"] if finding["state"] != "ok"]
    assert len(wrong) == 1
    assert "0005.png" in wrong[0]["found"]
    assert run(["data", "check", sweep, "--set", f"data.root={tmp_path}/gone", "--set", "data.name=f30k"]) == 2
    printed = capsys.readouterr().out
    assert "f30k: 1 missing or wrong" in printed
    assert "--set data.root: dataset folder not found" in printed
    assert "docs/data.md" in printed


def test_vectors_are_written_and_trained_on(sweep: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = str(tmp_path / "raw")
    assert run(["data", "features", sweep, "--out", raw, "--kind", "vectors"]) == 0
    assert "14 images, a vector of 96 numbers each" in capsys.readouterr().out
    assert open_dataset(PrecompConfig(name="tiny", root=raw)).splits["train"].region_shape == (96,)
    given = ["--set", f"data={{format: precomp, name: tiny, root: {raw}}}"]
    given += ["--set", "model.backbones=[{name: test_resnet, weights: precomputed}]"]
    assert run(["validate", sweep, *given]) == 0
    assert run(["data", "check", sweep, *given]) == 0
    assert "all read, 14" in capsys.readouterr().out
    assert run(["data", "features", sweep, "--out", raw, *given]) == 2
    assert "trains on features already (precomp)" in capsys.readouterr().err
    towers = ["--set", "model={framework: dual, backbones: [{name: clip, weights: openai/clip}], embed_dim: 8}"]
    assert run(["data", "features", sweep, "--out", raw, *towers]) == 2
    assert "framework dual" in capsys.readouterr().err


def test_own_vectors_do_not_appear_under_the_name_of_the_shipped_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_vectors(tmp_path)
    own = ["--set", f"data.root={root}", "--set", "data.name=mine", "--set", "stages.frozen.batch_size=8"]
    for command in (["validate"], ["status"], ["data", "check"]):
        assert run([*command, "quickstart", *own]) == 2
        printed = capsys.readouterr()
        assert "so nothing says that its features are those of tf_efficientnet_lite0" in printed.out + printed.err
    for command in (["validate"], ["data", "check"]):
        assert run([*command, "quickstart", *own, "--set", "model.backbones.0.name=vgg19"]) == 0
    monkeypatch.setenv("GOAL_DATA", str(root))
    assert run(["validate", "precomp_vsepp", "--set", "stages.frozen.batch_size=8"]) == 0
    assert "precomp: train 6 images 30 captions" in capsys.readouterr().out


def test_validate_and_check_refuse_data_that_only_have_the_name_of_published_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOAL_DATA", str(write_vectors(tmp_path)))
    given = ["precomp_vsepp", "--set", "data.name=f30k", "--set", "stages.frozen.batch_size=8"]
    assert run(["data", "check", *given]) == 2
    assert "[published: 29,000 images, 145,000 captions]" in capsys.readouterr().out
    assert run(["validate", *given]) == 2
    said = capsys.readouterr().err
    assert "train has 6 images, 30 captions, but f30k as published has 29,000 images, 145,000 captions; val has" in said
    assert "--set data.name=mine" in said


def test_validate_says_what_this_machine_lacks_and_the_setting_that_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2, "GPU": 0}')
    assert run(["validate", "quickstart", "--set", "resources.gpus=1"]) == 0
    assert "--set resources.gpus=0" in capsys.readouterr().out
    assert run(["validate", "quickstart"]) == 0
    assert "resources." not in capsys.readouterr().out


def test_features_are_written_and_open_as_regions(
    sweep: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "features")
    assert run(["data", "features", sweep, "--out", out]) == 0
    assert "14 images, 1 regions of 96 numbers each" in capsys.readouterr().out
    assert open_dataset(RegionsConfig(name="tiny", root=out)).splits["train"].region_shape == (1, 96)
    assert run(["data", "features", sweep, "--out", out, "--kind", "vectors"]) == 2
    assert "contains other features: kind is grid, not vectors" in capsys.readouterr().err
    assert run(["data", "features", sweep, "--out", out, "--backbone", "resnet18"]) == 2
    assert "error: --backbone must be" in capsys.readouterr().err


def test_evaluate_prints_each_model_and_the_ensemble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = [trained_cell(tmp_path, seed) for seed in (1, 2)]
    assert run(["evaluate", *map(str, two), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["metrics"] == evaluate_ensemble(map(open_checkpoint, two))["metrics"]
    assert run(["evaluate", *map(str, two)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "test: 8 images, 40 captions; chance R@1 12.5 %"
    assert lines[1].split() == ["i2t", "R@1", "R@5", "R@10", "t2i", "R@1", "R@5", "R@10", "rsum"]
    assert lines[2::2] == ["con/con seed 1 frozen, epoch 1", "con/con seed 2 frozen, epoch 1", "ensemble of 2"]
    assert lines[7].split() == ["all", *(f"{value:.2f}" for value in printed["metrics"].values())]
    assert max(map(len, lines)) <= 80
    assert run(["evaluate", *map(str, two), "--weights", "x"]) == 2
    assert "--weights needs a single checkpoint, got 2" in capsys.readouterr().err


def test_a_pack_is_written_once_and_mended(sweep: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pack = ["data", "pack", sweep, "--set", "data.image.augment=crop_flip"]
    assert run(pack) == 0
    printed, notes = capfd.readouterr()
    assert notes == ""
    assert "train 8 images, val 3 squares, test 3 squares: about 0.00 GB in all" in printed
    assert "14 images" in printed
    (folder,) = (tmp_path / PACKS).iterdir()
    written = {path: path.stat().st_mtime_ns for path in folder.glob("*.zip")}
    shard = next(iter(written))
    assert run(pack) == 0
    assert written == {path: path.stat().st_mtime_ns for path in folder.glob("*.zip")}
    whole = shard.read_bytes()
    shard.unlink()
    assert run(pack) == 0
    assert shard.read_bytes() == whole


def test_a_broken_image_is_named_and_ends_with_2(sweep: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "images/pictures/0005.png").write_bytes(b"no picture")
    assert run(["data", "pack", sweep]) == 2
    assert len([line for line in capsys.readouterr().err.splitlines() if "0005.png" in line]) == 1
    assert not list((tmp_path / PACKS).glob("*/pack.json"))


def test_another_folder_can_hold_the_packs(sweep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOAL_SWEEP_PACKS", str(tmp_path / "fast"))
    assert run(["data", "pack", sweep]) == 0
    assert Store(tmp_path / "goal-sweep-store").packs == tmp_path / "fast"
    assert len(list((tmp_path / "fast").iterdir())) == 1
