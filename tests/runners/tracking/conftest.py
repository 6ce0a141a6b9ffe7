from __future__ import annotations

from pathlib import Path

import pytest

from goal_sweep.runners.store import Store
from tests.helpers.mlflow_cases import database


@pytest.fixture
def uri(empty_database: Path, tmp_path: Path) -> str:
    return database(empty_database, tmp_path / "tracking")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    return store
