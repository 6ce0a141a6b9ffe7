"""Caches and weights that change while a sweep trains: no number changes, and nothing is charged."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from goal_sweep.goal_core.models.weights import timm_library
from goal_sweep.goal_core.training.train import train_unit
from goal_sweep.runners.cli.app import run
from goal_sweep.runners.execution import worker
from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers.damage import flip
from tests.helpers.disturbed import calm_results, disturbed, sweep_in
from tests.helpers.in_process import counted, launch, results


@pytest.mark.exhaustive
def test_damaged_caches_are_named_in_the_log_of_each_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOAL_SWEEP_PACKS", str(tmp_path / "packs"))
    sweep = sweep_in(tmp_path / "run", "crop_flip", "resources.loader_workers=1")  # which opens the pack's shards
    given = [f"--set=store={tmp_path}/run/store", "--set=data.image.augment=crop_flip"]
    assert run(["data", "pack", str(tmp_path / "run/tiny.yaml"), *given]) == 0
    damaged = list[Path]()

    def damage() -> None:
        store = tmp_path / "run/store"
        damaged.extend([*store.glob("indexes/*.index"), *store.glob("indexes/*.tokens")])
        damaged.extend((tmp_path / "packs").glob("*/train-*.zip"))
        for path in damaged:
            flip(path)

    assert launch(sweep, monkeypatch, train=disturbed(damage, "finetune begins")).status == 0
    assert {path.suffix for path in damaged} == {".index", ".tokens", ".zip"}
    for training in sweep.trainings:
        lines = sweep.store.folder(training).path("log.txt").read_text().splitlines()
        for path in damaged:
            is_named = any(f"{path} is damaged" in line for line in lines)
            assert is_named == (training.stage.name == "finetune"), (training.name, path)


CACHES = ("indexes/*.index", "indexes/*.tokens", "features/*.safetensors")


@pytest.mark.parametrize("moment", ["frozen epoch 1", pytest.param("finetune epoch 1", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("damage", ["edited", "cut"])
def test_a_cache_that_is_edited_in_place_while_a_sweep_trains_changes_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, moment: str
) -> None:
    expected = calm_results("none", lambda: sweep_in(tmp_path / "calm"), monkeypatch)
    sweep, edited = sweep_in(tmp_path / "run"), set[str]()

    def edit() -> None:
        for pattern in CACHES:
            for path in (tmp_path / "run/store").glob(pattern):
                before = path.stat()
                with path.open("r+b") as file:
                    header = 8 + int.from_bytes(file.read(8), "little")
                    file.seek(header)
                    content = file.read()
                    file.seek(header)
                    file.write(content[::-1] if damage == "edited" else b"")
                    file.truncate()
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
                edited.add(pattern)

    assert launch(sweep, monkeypatch, train=disturbed(edit, moment)).status == 0
    assert edited == set(CACHES)
    assert all(len(sweep.store.folder(one).attempts.all()) == 1 for one in sweep.trainings)
    assert results(sweep) == expected


def vanish(path: Path) -> None:
    """Move a file away, or back."""
    aside = path.with_suffix(".aside")
    aside.rename(path) if aside.exists() else path.rename(aside)


def empty(path: Path) -> None:
    """Leave an empty file in the place of a file, or put it back."""
    vanish(path)
    path.touch()


@pytest.mark.parametrize(
    ("moment", "act"),
    [
        ("finetune begins", vanish),
        pytest.param("frozen begins", vanish, marks=pytest.mark.exhaustive),
        pytest.param("frozen is built", vanish, marks=pytest.mark.exhaustive),
        pytest.param("frozen is built", empty, marks=pytest.mark.exhaustive),
        pytest.param("frozen begins", empty, marks=pytest.mark.exhaustive),
        pytest.param("finetune begins", empty, marks=pytest.mark.exhaustive),
    ],
)
def test_a_weights_file_that_is_missing_for_a_moment_is_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, act: Callable[[Path], None]
) -> None:
    weights = tmp_path / "w.safetensors"
    save_file(timm_library().create_model("test_resnet", num_classes=0).state_dict(), weights)

    def opened(folder: Path) -> OpenedSweep:
        return sweep_in(folder, "none", f"model.backbones=[{{name: test_resnet, weights: {weights}}}]")

    calm = opened(tmp_path / "calm")
    assert launch(calm, monkeypatch).status == 0
    sweep = opened(tmp_path / "run")
    with monkeypatch.context() as patch:
        if moment == "frozen is built":  # after its inputs have been compared

            def built(*arguments: Any, **named: Any) -> None:
                act(weights)
                train_unit(*arguments, **named)

            patch.setattr(worker, "train_unit", built)
            outcome = launch(sweep, patch)
        else:
            outcome = launch(sweep, patch, train=disturbed(lambda: act(weights), moment))
    assert outcome.status == 75
    reasons = [outcome.progress[one].reason for one in sweep.trainings]
    assert any("w.safetensors" in reason or "the first weights" in reason for reason in reasons)
    assert counted(sweep) == []
    act(weights)
    assert launch(opened(tmp_path / "run"), monkeypatch).status == 0
    assert results(sweep) == results(calm)
