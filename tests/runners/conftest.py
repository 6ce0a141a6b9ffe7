from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runners.cli.app import run


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Prints the plan of a sweep in an empty folder, on a machine without COCO."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOAL_COCO", raising=False)

    def plan(*arguments: str) -> str:
        assert run(["plan", *arguments]) == 0
        return capsys.readouterr().out

    return plan
