"""A source whose files are damaged, or change while they are read, is refused in a line."""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics import files
from goal_sweep.goal_core.basics.errors import ChangedDataError, DataError
from goal_sweep.goal_core.data.formats import tables
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.source_layouts import as_arrow, as_csv, as_parquet, opened

pytest.importorskip("pyarrow")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data")


@pytest.mark.exhaustive
def test_flipped_bits_of_arrow_and_parquet_files_never_end_in_another_error(data: Path) -> None:
    draw, tables = random.Random(3), [*as_arrow(data).rglob("*.arrow"), as_parquet(data)]
    for path in tables:
        whole = path.read_bytes()
        for _ in range(60):
            content = bytearray(whole)
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            path.write_bytes(content)
            with suppress(DataError):
                opened(path if path.suffix == ".parquet" else path.parents[1])
        path.write_bytes(whole)


def test_a_table_that_changes_for_good_once_it_is_parsed_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = as_csv(data)

    def then_longer(file: Path) -> bytes:
        content = files.content_of(file)
        path.write_bytes(content + b" ")
        return content

    monkeypatch.setattr(tables, "content_of", then_longer)
    with pytest.raises(ChangedDataError, match=rf"{path.name} changed while it was indexed"):
        opened(path)
