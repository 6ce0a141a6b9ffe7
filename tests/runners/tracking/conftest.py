from pathlib import Path

import pytest

from tests.helpers.mlflow_cases import database


@pytest.fixture
def uri(empty_database: Path, tmp_path: Path) -> str:
    return database(empty_database, tmp_path / "tracking")
