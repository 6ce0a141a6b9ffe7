"""A later stage of imported results, which come without weights, fails at once and by itself."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from runners.launch import Launcher, LaunchOptions
from runners.stage_folder import BEST
from tests.helpers.store_cases import train
from tests.runners.test_archive import study_in


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
