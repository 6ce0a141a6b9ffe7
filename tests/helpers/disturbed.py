"""Launches in this process of a sweep on image files, at one moment of which something happens to a file."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goal_sweep.runners.execution.unit_job import UnitJob

from goal_sweep.goal_core.training import EpochDone, TrainingEvent
from goal_sweep.runners.execution.worker import run_unit
from goal_sweep.runners.launch import launcher
from goal_sweep.runners.launch.launch import LaunchOutcome
from goal_sweep.runners.launch.opened import OpenedSweep, open_sweep
from tests.helpers.in_process import InProcess, launch, results
from tests.helpers.karpathy_fixture import write_dataset

if TYPE_CHECKING:
    import pytest

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
    text = SWEEP.replace("DATA", str(folder / "data")).replace("AUGMENT", augment)
    (folder / "tiny.yaml").write_text(text)
    places = [f"store={folder / 'store'}", f"tracking=sqlite:///{folder}/m.db"]
    return open_sweep(str(folder / "tiny.yaml"), [*places, *settings])


def swap(folder: Path) -> None:
    """Exchange two images of the training split; their times stay."""
    first, second = (folder / "data/pictures" / name for name in ("0001.png", "0002.png"))
    times = [path.stat() for path in (first, second)]
    contents = [path.read_bytes() for path in (second, first)]
    for path, content, status in zip((first, second), contents, times, strict=True):
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def disturbed(act: Callable[[], None], moment: str) -> type[InProcess]:
    """Runs units as `InProcess` does, and acts once at a moment."""

    class Disturbed(InProcess):
        def run(self, jobs: Sequence[UnitJob], observer: Any) -> None:
            left, acts = deque(jobs), [act]

            def events(happened: Sequence[TrainingEvent]) -> None:
                ended = {one.record["epoch"] for one in happened if isinstance(one, EpochDone)}
                if acts and job.unit.stage.name == moment.split()[0] and "epoch 1" in moment and 1 in ended:
                    acts.pop()()
                observer.events(happened)

            while left:
                job = left.popleft()
                observer.started(job)
                if acts and moment == f"{job.unit.stage.name} begins":
                    acts.pop()()
                run_unit(job, events)
                left.extend(observer.finished(job))

    return Disturbed


def launched(sweep: OpenedSweep, runs: type[InProcess], monkeypatch: pytest.MonkeyPatch) -> LaunchOutcome:
    """Launch a sweep whose units something else runs than `InProcess`."""
    with monkeypatch.context() as patch:
        patch.setattr("tests.helpers.in_process.InProcess", runs)
        patch.setattr(launcher, "RayUnits", runs)
        return launch(sweep, patch)
