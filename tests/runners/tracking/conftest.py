from __future__ import annotations

from pathlib import Path

import pytest

from runners.store import Store
from tests.helpers.mlflow_cases import database, template


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return template(tmp_path_factory.mktemp("tracking"))


@pytest.fixture
def uri(empty_database: Path, tmp_path: Path) -> str:
    return database(empty_database, tmp_path / "tracking")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    return store
