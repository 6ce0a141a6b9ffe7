"""Caches and weights that change while a sweep trains: no number changes, and nothing is charged."""

import os
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from goal_sweep.goal_core.models.weights import timm_library
from goal_sweep.goal_core.training.train import train_unit
from goal_sweep.runners.execution import worker
from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers.disturbed import calm_results, disturbed, sweep_in
from tests.helpers.few import few
from tests.helpers.in_process import counted, launch, results

CACHES = ("indexes/*.index", "indexes/*.tokens", "features/*.safetensors")


@pytest.mark.parametrize("damage", few(["edited", "cut"]))
def test_a_cache_that_is_edited_in_place_while_a_sweep_trains_changes_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
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

    assert launch(sweep, monkeypatch, train=disturbed(edit, "frozen epoch 1")).status == 0
    assert edited == set(CACHES)
    assert all(len(sweep.store.folder(one).attempts.all()) == 1 for one in sweep.trainings)
    assert results(sweep) == expected


@pytest.mark.parametrize("moment", ["finetune begins", pytest.param("frozen is built", marks=pytest.mark.exhaustive)])
def test_a_weights_file_that_is_missing_for_a_moment_is_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    weights, aside = tmp_path / "w.safetensors", tmp_path / "aside"
    save_file(timm_library().create_model("test_resnet", num_classes=0).state_dict(), weights)

    def opened(folder: Path) -> OpenedSweep:
        return sweep_in(folder, "none", f"model.backbones=[{{name: test_resnet, weights: {weights}}}]")

    def move() -> None:
        weights.rename(aside)

    calm = opened(tmp_path / "calm")
    assert launch(calm, monkeypatch).status == 0
    sweep = opened(tmp_path / "run")
    with monkeypatch.context() as patch:
        if moment == "frozen is built":  # after its inputs have been compared

            def built(*arguments: Any, **named: Any) -> None:
                move()
                train_unit(*arguments, **named)

            patch.setattr(worker, "train_unit", built)
            outcome = launch(sweep, patch)
        else:
            outcome = launch(sweep, patch, train=disturbed(move, moment))
    assert outcome.status == 75
    reasons = [outcome.progress[one].reason for one in sweep.trainings]
    assert any("w.safetensors" in reason or "the first weights" in reason for reason in reasons)
    assert counted(sweep) == []
    aside.rename(weights)
    assert launch(opened(tmp_path / "run"), monkeypatch).status == 0
    assert results(sweep) == results(calm)
