"""The sweeps of these tests are opened without their data, so a worker has none to compare."""

from __future__ import annotations

import pytest

from goal_sweep.runners.execution import worker


@pytest.fixture(autouse=True)
def _without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "open_inputs", lambda unit, code, indexes: None)
