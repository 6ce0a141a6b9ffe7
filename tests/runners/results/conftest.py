from __future__ import annotations

from pathlib import Path

import pytest

from goal_sweep.runners.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    return store
