"""Damage of every file of a training: the next launch ends with the unbroken numbers, and nothing is counted."""

import errno
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.runners.execution.job import UnitJob
from goal_sweep.runners.execution.worker import Send, run_unit
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.store import BEST, LAST
from goal_sweep.sweeps import Training
from tests.helpers.damage import cut, flip, killed_after
from tests.helpers.few import few
from tests.helpers.in_process import counted, launch, results, sweep_in

Finished = tuple[Path, dict[str, Any]]
Damage = Callable[[Path], object]
Mended = Callable[..., str]
DAMAGES: dict[str, Damage] = {"flipped": flip, "cut": cut, "removed": Path.unlink}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The folder of a finished sweep, and its numbers."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        assert launch(sweep_in(folder), patch).status == 0
    return folder, results(sweep_in(folder))


@pytest.fixture(scope="module")
def killed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that was killed in the third epoch of 4 steps."""
    folder = tmp_path_factory.mktemp("killed")
    killed_after(sweep_in(folder), 10)
    return folder


def copied(source: Path, folder: Path) -> OpenedSweep:
    shutil.copytree(source / "store", folder / "store")
    return sweep_in(folder)


@pytest.fixture
def sweep(finished: Finished, tmp_path: Path) -> OpenedSweep:
    """A copy of the finished sweep."""
    return copied(finished[0], tmp_path)


@pytest.fixture
def killed(killed_folder: Path, tmp_path: Path) -> OpenedSweep:
    """A copy of the killed sweep."""
    return copied(killed_folder, tmp_path)


def num_attempts(sweep: OpenedSweep) -> dict[Training, int]:
    return {one: len(sweep.store.folder(one).attempts.numbers()) for one in sweep.trainings}


@pytest.fixture
def mended(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> Mended:
    """Launches, and compares: the numbers, and which trainings were trained again. Returns what it said."""

    def check(sweep: OpenedSweep, again: list[Training] | None = None) -> str:
        before, said = num_attempts(sweep), io.StringIO()
        assert launch(sweep, monkeypatch, console=Console(file=said, width=1000)).status == 0
        assert (results(sweep), counted(sweep)) == (finished[1], [])
        if again is not None:
            assert [one for one, number in num_attempts(sweep).items() if number > before[one]] == again
        return said.getvalue()

    return check


SOME = [
    (0, "result.json", "flipped"), (1, "result.json", "cut"), (1, "metrics.jsonl", "removed"),
    (0, "ranks.npz", "flipped"),
]  # fmt: skip
"""Each file once, and each way and each stage."""


@pytest.mark.parametrize(
    ("stage", "name", "damage"),
    [
        pytest.param(stage, name, damage, marks=[pytest.mark.exhaustive] * ((stage, name, damage) not in SOME))
        for stage in (0, 1)
        for name in ("result.json", "metrics.jsonl", "ranks.npz")
        for damage in DAMAGES
    ],
)
def test_a_damaged_result_is_trained_again_and_nothing_else_is(
    sweep: OpenedSweep, mended: Mended, stage: int, name: str, damage: str
) -> None:
    training = sweep.by_stage[stage][0]
    folder = sweep.store.folder(training)
    DAMAGES[damage](folder.path(name))
    (sweep.store.root / "sweeps" / "tiny" / "results.parquet").unlink()  # which has the numbers, too
    said = mended(sweep, [training])
    if (name, damage) != ("result.json", "removed"):
        assert f"{folder.folder / name} is" in said
        assert f"trained again: {folder.folder / name} is" in folder.log_text()


@pytest.mark.parametrize("damage", few(DAMAGES))
def test_weights_are_compared_when_a_stage_starts_from_them(
    sweep: OpenedSweep, mended: Mended, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    frozen, finetune = (trainings[0] for trainings in sweep.by_stage)
    DAMAGES[damage](sweep.store.folder(frozen).path(BEST))
    assert launch(sweep, monkeypatch).found_nothing_to_do
    sweep.store.folder(finetune).path("result.json").unlink()
    mended(sweep, [frozen, finetune])


def test_weights_that_are_damaged_again_and_again_leave_a_training_to_the_next_launch(
    sweep: OpenedSweep, mended: Mended, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, finetune = (trainings[0] for trainings in sweep.by_stage)
    sweep.store.folder(finetune).path("result.json").unlink()

    def damaged(job: UnitJob, send: Send) -> None:
        if job.unit.stage.name == "finetune":
            flip(sweep.store.folder(frozen).path(BEST))
        run_unit(job, send)

    outcome = launch(sweep, monkeypatch, train=damaged)
    assert outcome.status == 75
    assert "best-" in outcome.progress[finetune].reason
    assert counted(sweep) == []
    mended(sweep)


def test_the_weights_of_another_training_are_not_taken(sweep: OpenedSweep, mended: Mended):
    frozen, finetune = sweep.by_stage[0], sweep.by_stage[1][0]
    best, other = (sweep.store.folder(one).path(BEST) for one in frozen)
    shutil.copy(other, best)
    sweep.store.folder(finetune).path("result.json").unlink()
    mended(sweep, [frozen[0], finetune])


STATES = ("last.safetensors", "best", "metrics.jsonl", "attempts/1.json")


@pytest.mark.parametrize("damage", few(DAMAGES))
@pytest.mark.parametrize("name", few(STATES))
def test_a_damaged_state_is_never_continued(killed: OpenedSweep, mended: Mended, name: str, damage: str):
    first, second = (killed.store.folder(training) for training in killed.by_stage[0])
    path = max(first.folder.glob("best-*")) if name == "best" else first.folder / name
    DAMAGES[damage](path)
    mended(killed)
    lost = [f"the state {path.name} is lost" in folder.log_text() for folder in (first, second)]
    assert lost == [path.name == LAST and damage != "removed", False]


def test_the_states_of_two_trainings_cannot_be_exchanged(killed: OpenedSweep, mended: Mended):
    one, other = (killed.store.folder(training).path(LAST) for training in killed.by_stage[0])
    content = one.read_bytes()
    shutil.copy(other, one)
    other.write_bytes(content)
    mended(killed)


def test_features_of_another_split_are_computed_again(killed: OpenedSweep, finished: Finished, mended: Mended):
    folder = killed.store.root / "features"
    shutil.copy(next((finished[0] / "store" / "features").glob("test*")), next(folder.glob("val*")))
    mended(killed)


@pytest.mark.parametrize("kind", few(["folder", "pipe"]))
@pytest.mark.parametrize(
    "name", few(["last.safetensors", "result.json", "attempts/1.json", "../cell.json", "metrics.jsonl"])
)
def test_what_lies_in_a_files_place_and_is_none_is_said_and_costs_nothing(
    killed: OpenedSweep, mended: Mended, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    training = killed.by_stage[0][0]
    path = killed.store.folder(training).folder / name
    path.unlink(missing_ok=True)
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    outcome = launch(killed, monkeypatch)
    assert counted(killed) == []
    if outcome.status:  # it is named, and once it is gone the same command continues
        assert outcome.status == 75
        assert path.name in outcome.progress[training].reason
        path.rmdir() if kind == "folder" else path.unlink()
    mended(killed)


def test_a_disk_that_refuses_one_training_costs_only_that_one_and_no_attempt(
    killed: OpenedSweep, mended: Mended, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, neighbour = killed.by_stage[0]

    def hook(operation: str, path: Path) -> None:
        if killed.store.folder(refused).folder in path.parents and operation != "read":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "before_operation", hook)
        outcome = launch(killed, patch)
    assert outcome.status == 75
    assert "not counted" in outcome.progress[refused].reason
    assert outcome.progress[neighbour].state == "done"
    mended(killed)


def test_a_store_that_is_gone_is_no_trainings_fault(killed: OpenedSweep, mended: Mended, monkeypatch):
    root = killed.store.root

    def gone(job: UnitJob, send: Send) -> None:
        root.rename(root.with_name("elsewhere"))

    with pytest.raises(UnfinishedError, match="is gone"):
        launch(killed, monkeypatch, train=gone)
    assert not root.exists()
    root.with_name("elsewhere").rename(root)
    mended(killed)
