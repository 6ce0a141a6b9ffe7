"""Launches in this process of a sweep on image files, at one moment of which something happens to a file."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.training import EpochDone, TrainingEvent
from goal_sweep.runners.execution.job import UnitJob
from goal_sweep.runners.execution.worker import Send, run_unit
from goal_sweep.runners.launch.opened import OpenedSweep, open_sweep
from goal_sweep.sweeps import load_sweep
from tests.helpers.in_process import Train, launch, results
from tests.helpers.karpathy_fixture import write_dataset

SWEEP = """
name: tiny
data: {format: karpathy, name: tiny, root: DATA, min_word_count: 1, image: {size: 32, resize: 32, augment: AUGMENT}}
model: {backbones: [{name: test_resnet, weights: random}], text: {word_dim: 8}, embed_dim: 16}
objectives: {only: [con/con, sig-ms/cir]}
seeds: [1]
stages:
  - {name: frozen, epochs: 2, lr: 1e-3, batch_size: 8}
  - {name: finetune, epochs: 2, lr: 1e-4, batch_size: 8}
execution: {sharing: trunk, cells_per_unit: 0}
"""
_CALM: dict[str, Any] = {}


def calm_results(name: str, opened: Callable[[], OpenedSweep], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The results of a launch that nothing disturbs, made once for each name."""
    if name not in _CALM:
        sweep = opened()
        assert launch(sweep, monkeypatch).status == 0
        _CALM[name] = results(sweep)
    return _CALM[name]


def sweep_in(folder: Path, augment: str = "none", *settings: str) -> OpenedSweep:
    """Open the sweep with its data and results in a folder."""
    folder.mkdir(exist_ok=True)
    if not (folder / "data").exists():
        write_dataset(folder / "data")
    (folder / "tiny.yaml").write_text(SWEEP.replace("DATA", str(folder / "data")).replace("AUGMENT", augment))
    places = [f"store={folder / 'store'}", f"tracking=sqlite:///{folder}/m.db"]
    return open_sweep(load_sweep(str(folder / "tiny.yaml"), [*places, *settings]))


def swap(folder: Path) -> None:
    """Exchange two images of the training split; their times stay."""
    first, second = (folder / "data/pictures" / name for name in ("0001.png", "0002.png"))
    times = [path.stat() for path in (first, second)]
    contents = [path.read_bytes() for path in (second, first)]
    for path, content, status in zip((first, second), contents, times, strict=True):
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def disturbed(act: Callable[[], None], moment: str) -> Train:
    """Trains units, and acts once at a moment: when a stage begins, or after its first epoch."""
    acts = [act]

    def train(job: UnitJob, send: Send) -> None:
        def told(events: Sequence[TrainingEvent] = (), **more: Any) -> None:
            ended = {one.record["epoch"] for one in events if isinstance(one, EpochDone)}
            if acts and moment == f"{job.unit.stage.name} epoch 1" and 1 in ended:
                acts.pop()()
            send(events, **more)

        if acts and moment == f"{job.unit.stage.name} begins":
            acts.pop()()
        run_unit(job, told)

    return train
