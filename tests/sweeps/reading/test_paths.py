from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from goal_core.data.config import KarpathyConfig
from sweeps import load_sweep

Write = Callable[..., Path]


def test_relative_paths_start_at_the_current_directory(write: Write, tmp_path: Path) -> None:
    path = write(
        "folder/a.yaml",
        """\
        name: a
        data: {format: karpathy, name: coco, root: ../coco, annotations: x.json}
        model: {backbones: [{name: a, weights: w.safetensors}, {name: b, weights: random}, c]}
        seeds: [1]
        stages: [{name: frozen, epochs: 1, lr: 1}]
        store: out
        """,
    )
    config = load_sweep(path)
    assert isinstance(config.data, KarpathyConfig)
    assert config.data.root == str(tmp_path.parent / "coco")
    assert config.data.annotations == "x.json"
    assert [item.weights for item in config.model.backbones] == [str(tmp_path / "w.safetensors"), "random", "timm"]
    assert config.store == str(tmp_path / "out")
    assert config.tracking == f"sqlite:///{tmp_path}/out/mlflow.db"


def test_home_directory(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    config = load_sweep(write(), ["store=~/results"])
    assert config.store == "/home/somebody/results"


@pytest.mark.parametrize(
    ("given", "absolute"),
    [
        ("sqlite:///runs.db", "sqlite:///{cwd}/runs.db"),
        ("sqlite:////abs/runs.db", "sqlite:////abs/runs.db"),
        ("'sqlite:///{store}/runs.db'", "sqlite:///{cwd}/goal-sweep-store/runs.db"),
        ("./mlruns", "{cwd}/mlruns"),
        ("http://host:5000/x", "http://host:5000/x"),
        ("databricks", "databricks"),
    ],
)
def test_tracking(write: Write, tmp_path: Path, given: str, absolute: str) -> None:
    assert load_sweep(write(), [f"tracking={given}"]).tracking == absolute.replace("{cwd}", str(tmp_path))
