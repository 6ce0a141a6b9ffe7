"""`plan` without the data: it uses the published sizes, and the sweep files state the numbers that it computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.cli.app import run
from runners.launch.estimate import absent_but_published, plan_published
from sweeps import find_sweep, list_shipped, load_sweep

PUBLISHED = sorted(name for name in list_shipped() if name.startswith(("coco_", "f30k_")))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_sweep_file_states_the_cost_that_plan_computes(name: str) -> None:
    config, text = load_sweep(name, environ={}), find_sweep(name).read_text()
    splits = absent_but_published(config)
    assert splits is not None
    for stage, settings in zip(plan_published(config, splits), config.stages, strict=True):
        assert stage.published
        assert (stage.disk_from, stage.hours_from) == ("calibration", "calibration")
        assert f"{stage.cells} cells" in text
        assert f"{stage.steps_per_epoch:,} steps an epoch" in text
        assert f"{stage.steps:,} steps" in text
        assert stage.steps == stage.cells * settings.epochs * stage.steps_per_epoch


def test_command_line_says_where_its_numbers_come_from(planned: Callable[..., str], tmp_path: Path) -> None:
    shown = planned("coco_vsepp")
    assert "45 cells = 1 backbone x 3 seeds x 15 objectives" in shown
    assert "planned from its published size, 113,287 images, 566,435 captions to train on" in shown
    assert "5,975,100" in shown
    assert "2,987,550" in shown
    stages = json.loads(planned("coco_vsepp", "--json"))
    assert [(stage["units"], stage["steps_per_epoch"], stage["published"]) for stage in stages] == [(3, 4426, True)] * 2
    assert not list(tmp_path.iterdir())  # planning leaves nothing behind


def test_data_that_is_there_and_wrong_is_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coco").mkdir()
    assert run(["plan", "coco_vsepp", "--set", "data.root=coco"]) == 2
    assert "no annotation file" in capsys.readouterr().err
    assert run(["plan", "coco_vsepp", "--set", "data.name=mine", "--set", "data.root=nowhere"]) == 2
    assert "dataset folder not found" in capsys.readouterr().err
