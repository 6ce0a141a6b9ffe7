"""Units that share a GPU and fill its memory: fewer share it, nobody is charged, and the numbers stay the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from goal_core.training import TrainingEvent, TrainingFailed
from goal_core.training.cells.stack import CellStack
from goal_core.training.cells.trainer import CellTrainer
from runners.execution.capacity import Resources
from runners.execution.memory import Crowding, is_full
from runners.execution.unit_line import UnitJob
from runners.execution.unit_watch import UnitWatch
from runners.execution.worker import run_unit
from runners.launch.opened_sweep import OpenedSweep
from runners.store import charged_failures
from sweeps import pack
from tests.helpers import in_process
from tests.helpers.in_process import results, sweep_in
from tests.helpers.sweep_cases import opened_in

FULL = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_parts_of_a_gpu_add_up_to_no_more_than_one_as_ray_counts() -> None:
    whole = Resources(cpus=2, gpus=1)
    assert whole.shared_by(1) == whole
    assert [whole.shared_by(units).gpus for units in (2, 3, 6, 7)] == [0.5, 0.3333, 0.1666, 0.1428]
    for units in range(1, 17):  # Ray rounds to 0.0001
        assert units * round(whole.shared_by(units).gpus, 4) <= 1
        assert int(1 / whole.shared_by(units).gpus) == units


@pytest.mark.parametrize(
    ("kind", "reason", "full"),
    [
        ("memory", "CUDA out of memory", True),
        ("too_large", "the model does not fit into memory", True),
        ("device", "AcceleratorError: CUDA error: an illegal memory access was encountered", False),
        ("diverged", "the loss is nan", False),
    ],
)
def test_every_way_in_which_a_gpu_says_that_it_is_full_is_known(kind: str, reason: str, full: bool) -> None:
    assert is_full(TrainingFailed(key="k", kind=kind, reason=reason, trace="")) == full


class Sharing(in_process.InProcess):
    """Stands for a Ray whose GPU holds one unit, where the launch has chosen four."""

    units: ClassVar[list[int]] = []
    """How many shared the GPU of each unit, in order."""

    def run(self, jobs: Sequence[UnitJob], observer: Any) -> None:
        crowding, left = Crowding(), deque(job.sharing(4) for job in jobs)
        while left:
            job = crowding.fit(left.popleft())
            Sharing.units.append(job.units_per_gpu)
            observer.started(job)

            def heard(events: Sequence[TrainingEvent], job: UnitJob = job) -> None:
                crowding.look(job, events)
                observer.events(events)

            run_unit(job, heard)
            left.extend(one.sharing(4) for one in observer.finished(job))


def launched(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(in_process, "InProcess", Sharing)
    monkeypatch.setattr(Sharing, "units", [])
    return in_process.launch(sweep, monkeypatch).status


@pytest.mark.slow
def test_a_unit_that_does_not_fit_beside_others_shares_its_gpu_with_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = sweep_in(tmp_path / "plain")
    assert in_process.launch(plain, monkeypatch).status == 0
    step = CellTrainer.step

    def short(self: CellTrainer, *arguments: Any, **named: Any) -> None:
        if self.unit.units_per_gpu > 1 and self.objective.name == "con/con":
            raise FULL
        step(self, *arguments, **named)

    monkeypatch.setattr(CellTrainer, "step", short)
    sweep = sweep_in(tmp_path / "shared")
    assert launched(sweep, monkeypatch) == 0
    # The cell that fits trains on in the first unit, and is fine-tuned while the other begins again beside fewer.
    assert Sharing.units == [4, 2, 4, 1, 4, 2, 1]
    for training in sweep.trainings:
        attempts = sweep.store.folder(training).attempts.all()
        assert charged_failures(attempts) == 0
        assert {one.micro_batch for one in attempts} == {0}
        if training.cell.objective.name == "con/con" and training.stage.name == "frozen":
            assert [(one.outcome, one.units_per_gpu, one.out_of_memory) for one in attempts] == [
                ("failed", 4, True), ("failed", 2, True), ("done", 1, False)
            ]  # fmt: skip
            assert "out of memory as one of 4 units on a GPU; goes on as one of 2. " in attempts[0].reason
            assert "out of memory as one of 2 units on a GPU; goes on with a GPU of its own. " in attempts[1].reason
    assert results(sweep) == results(plain)


def test_chunks_become_smaller_only_when_a_unit_has_its_gpu_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = CellTrainer.step

    def short(self: CellTrainer, *arguments: Any, **named: Any) -> None:
        if self.unit.stage.name == "frozen" and self.share.chunk != 8:
            raise FULL
        step(self, *arguments, **named)

    monkeypatch.setattr(CellTrainer, "step", short)
    sweep = sweep_in(tmp_path, "objectives={only: [con/con]}")
    assert launched(sweep, monkeypatch) == 0
    attempts = sweep.store.folder(sweep.by_stage[0][0]).attempts.all()
    assert [(one.units_per_gpu, one.micro_batch, one.charged) for one in attempts] == [
        (4, 0, False), (2, 0, False), (1, 0, False), (1, 8, False)
    ]  # fmt: skip
    log = sweep.store.folder(sweep.by_stage[0][0]).log_text()
    assert "goes on as one of 2" in log


def test_a_stack_that_does_not_fit_beside_others_is_a_stack_beside_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = CellStack.step

    def short(self: CellStack, *arguments: Any) -> Any:
        if self.cells[0].unit.units_per_gpu > 1:
            raise FULL
        return step(self, *arguments)

    monkeypatch.setattr(CellStack, "step", short)
    sweep = sweep_in(tmp_path, "execution.sharing=heads")
    assert launched(sweep, monkeypatch) == 0
    for training in sweep.by_stage[0]:
        folder = sweep.store.folder(training)
        found = [(one.outcome, one.units_per_gpu, one.charged) for one in folder.attempts.all()]
        assert found == [("failed", 4, False), ("failed", 2, False), ("done", 1, False)]
        assert "each cell goes on by itself" not in folder.log_text()
        result = folder.result()
        assert result is not None
        assert result["stacked"] == 1.0


def test_the_units_that_wait_ask_for_more_of_a_gpu_once_one_was_full(tmp_path: Path) -> None:
    sweep = opened_in(tmp_path, "execution.cells_per_unit=1")
    units = pack(sweep.by_stage[0], sweep.config.execution)
    jobs = [sweep.job(unit, "L", {}, units_per_gpu=4) for unit in units]
    assert len(jobs) > 1
    assert all(job.plan.units_per_gpu > 1 for job in jobs)
    ignored = type(
        "Observer", (), {name: lambda *arguments: () for name in ("started", "events", "note", "finished")}
    )()
    crowding = Crowding()

    def watch() -> UnitWatch:
        need = Resources(cpus=1, gpus=1)
        return UnitWatch(jobs, ignored, need, list, is_cluster=False, crowding=crowding)

    def full(one: UnitWatch, unit: int) -> None:
        failed = TrainingFailed(key=units[0].trainings[0].key, kind="memory", reason="CUDA out of memory", trace="")
        one.reported(unit, {"events": [failed]})

    first = watch()
    start = first.take(most=99)
    assert start is not None
    assert (start.job.units_per_gpu, start.need.gpus) == (4, 0.25)
    first.started(0)
    full(first, 0)
    start = first.take(most=99)
    assert start is not None
    assert (start.job.units_per_gpu, start.need.gpus) == (2, 0.5)
    later = watch()  # of the next round
    start = later.take(most=99)
    assert start is not None
    assert (start.job.units_per_gpu, start.job.plan.units_per_gpu) == (2, 2)
    full(later, 0)
    start = later.take(most=99)
    assert start is not None
    assert (start.job.units_per_gpu, start.need.gpus) == (1, 1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_attempts_record_the_memory_that_they_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for units in (1, 2):
        sweep = sweep_in(tmp_path / str(units), "resources.gpus=1", f"execution.units_per_gpu={units}")
        assert in_process.launch(sweep, monkeypatch).status == 0
        attempts = [one for training in sweep.trainings for one in sweep.store.folder(training).attempts.all()]
        assert {one.units_per_gpu for one in attempts} == {units}
        assert all(0 < one.memory_mb < 4000 for one in attempts)
        found[units] = results(sweep)
    assert found[1] == found[2]
