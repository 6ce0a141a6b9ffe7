"""Cells that a launch gives up without blaming them: no weights to start from, a disk that refuses."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

from rich.console import Console

from goal_core.training import TrainingFailed
from runners.execution.worker import _Listener
from runners.launch.launcher import Launcher, LaunchOptions
from runners.store.training_folder import BEST, charged_failures
from tests.helpers.store_cases import train
from tests.helpers.sweep_cases import study_in


def test_what_has_no_weights_to_start_from_is_failed_with_the_reason_and_the_rest_stays(tmp_path: Path) -> None:
    study = study_in(tmp_path / "store")
    for cell in study.cells:
        folder = study.store.folder(study.ref(cell, 0))
        folder.claim("L")
        train(folder, 2)
    study.store.folder(study.ref(study.cells[0], 0)).path(BEST).unlink()
    launcher = Launcher(study, LaunchOptions(), Console(file=io.StringIO()))
    launcher._mark_startless()
    entries = [launcher.board[cell.id, "finetune"] for cell in study.cells]
    assert [entry.state for entry in entries] == ["failed", "waiting"]
    assert entries[0].reason.startswith("its frozen stage has no best.safetensors to start from")
    assert launcher._keys_to_train() == [study.cells[1].stages[1].key]


def test_a_disk_that_refuses_is_not_tried_over_and_over_and_costs_no_attempt(tmp_path: Path) -> None:
    study = study_in(tmp_path / "store")
    cell, other = study.cells[:2]
    launcher = Launcher(study, LaunchOptions(), Console(file=io.StringIO()))
    launcher.tracking = SimpleNamespace(sync=lambda cell_id, stage: None)  # type: ignore[assignment]
    folder = study.store.folder(study.ref(cell, 0))
    folder.claim("L")
    failed = TrainingFailed(cell_id=cell.id, stage="frozen", kind="storage", reason="no space", trace="")
    _Listener({cell.id: folder}, launcher._events, 0).events([failed])
    assert charged_failures(folder.attempts.all()) == 0
    assert launcher.board[cell.id, "frozen"].state == "failed"
    assert cell not in launcher._startable(0, ahead=False)
    assert other in launcher._startable(0, ahead=False)
    # The next launch finds it waiting.
    assert study.board()[cell.id, "frozen"].state == "waiting"
