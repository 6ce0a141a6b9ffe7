"""The examples of docs/plugins.md, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runners.launch.opened_sweep import open_sweep
from tests.helpers.in_process import SWEEP

PAGE = (Path(__file__).parents[1] / "docs" / "plugins.md").read_text()
pytestmark = pytest.mark.usefixtures("without_plugins")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_the_weight_is_tried_and_its_cells_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "square.py").write_text(blocks("python")[0])
    (tmp_path / "square.yaml").write_text(blocks("yaml")[0])
    sweep = open_sweep("square.yaml", running="own")
    sweep.check_trainable()
    assert [one.cell.objective.name for one in sweep.trainings] == ["con/con", "con/cir", "square/con", "square/cir"]
    assert sweep.trainings[-1].cell.objective.resolved()["power"] == 3.0


@pytest.mark.parametrize("framework", ["vsepp", "vse_infty"])
def test_the_backbone_builds_in_every_framework_that_takes_pictures(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "convs.py").write_text(blocks("python")[1])
    own = ["plugins=[convs.py]", "model.backbones=[{name: two_convs, weights: random}]", f"model.framework={framework}"]
    text = SWEEP
    if framework == "vse_infty":
        text = text.replace("text: {word_dim: 8}", "bert: {weights: random, layers: 1, width: 32, heads: 2}")
    (tmp_path / "own.yaml").write_text(text)
    sweep = open_sweep("own.yaml", own, running="own")
    sweep.check_trainable()
    assert all("plugin:" in weights for weights in sweep.weights.values())
