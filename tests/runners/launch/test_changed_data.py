"""Images that change while a sweep trains: nothing is trained with them, nothing is charged, and no result is lost."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from goal_core.training import EpochDone, TrainingEvent
from runners.execution.unit_line import UnitJob
from runners.execution.worker import run_unit
from runners.launch import launcher
from runners.launch.launch import LaunchOutcome
from runners.launch.opened_sweep import OpenedSweep, open_sweep
from runners.store import charged_failures
from tests.helpers.in_process import InProcess, launch, results
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


def sweep_in(folder: Path, augment: str = "none") -> OpenedSweep:
    folder.mkdir(exist_ok=True)
    if not (folder / "data").exists():
        write_dataset(folder / "data")
    text = SWEEP.replace("DATA", str(folder / "data")).replace("AUGMENT", augment)
    (folder / "tiny.yaml").write_text(text)
    return open_sweep(str(folder / "tiny.yaml"), [f"store={folder / 'store'}", f"tracking=sqlite:///{folder}/m.db"])


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
    with monkeypatch.context() as patch:
        patch.setattr("tests.helpers.in_process.InProcess", runs)
        patch.setattr(launcher, "RayUnits", runs)
        return launch(sweep, patch)


@pytest.mark.parametrize("augment", ["none", "crop_flip"])
@pytest.mark.parametrize("moment", ["frozen begins", "finetune begins", "finetune epoch 1"])
def test_nothing_is_trained_on_images_that_were_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, augment: str
) -> None:
    calm = sweep_in(tmp_path / "calm", augment)
    assert launch(calm, monkeypatch).status == 0
    folder = tmp_path / "run"
    sweep = sweep_in(folder, augment)
    outcome = launched(sweep, disturbed(lambda: swap(folder), moment), monkeypatch)
    kept_in_memory = augment == "none" and "epoch" in moment
    if not kept_in_memory:  # images that are decoded once, and were right then
        assert outcome.status == 1
        reasons = {one.reason for one in outcome.progress.standings if one.state == "failed"}
        assert any("0001.png is not the one" in reason or "0002.png is not the one" in reason for reason in reasons)
        assert not any(charged_failures(sweep.store.folder(one).attempts.all()) for one in sweep.trainings)
        assert len(results(sweep)) == (0 if moment.startswith("frozen") else 2)
    swap(folder)
    again = sweep_in(folder, augment)
    assert [one.key for one in again.trainings] == [one.key for one in sweep.trainings]
    assert launch(again, monkeypatch).status == 0
    assert results(again) == results(calm)


def test_data_that_were_edited_for_good_are_other_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_in(tmp_path / "run")
    assert launch(sweep, monkeypatch).status == 0
    swap(tmp_path / "run")
    edited = sweep_in(tmp_path / "run")
    assert not {one.key for one in edited.trainings} & {one.key for one in sweep.trainings}
    assert launch(edited, monkeypatch).status == 0
    assert results(edited) != results(sweep)
