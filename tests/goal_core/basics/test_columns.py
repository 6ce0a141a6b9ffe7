"""Columns in one file."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.files import Texts, kept_columns, write_columns


def test_texts_are_a_sequence() -> None:
    words = ["a", "", "größer", "漢字"]
    texts = Texts.of(words)
    assert list(texts) == words
    assert texts[1:][0] == "" == texts[1:][-3]
    assert list(texts[1:3]) == words[1:3]
    assert len(texts[4:]) == 0
    assert texts[-1] == "漢字"
    with pytest.raises(IndexError):
        texts[4]


def test_columns_come_back_as_they_were_whatever_happens_to_the_file_later(tmp_path: Path) -> None:
    columns: dict[str, NDArray[Any]] = {"a": np.arange(6, dtype=np.int64).reshape(2, 3), "b": np.zeros(0, np.uint8)}
    write_columns(tmp_path / "x", columns, {"n": 1})
    found = kept_columns(tmp_path / "x")
    assert found is not None
    with (tmp_path / "x").open("r+b") as file:
        file.truncate(10)
    assert found[1] == {"n": 1}
    assert all(
        (found[0][name] == column).all() and found[0][name].dtype == column.dtype for name, column in columns.items()
    )
    assert kept_columns(tmp_path / "y") is None


def test_a_file_with_the_name_of_another_is_damaged(tmp_path: Path) -> None:
    write_columns(tmp_path / "x", {"a": np.arange(3)}, {})
    (tmp_path / "x").rename(tmp_path / "y")
    assert kept_columns(tmp_path / "y") is None


def test_two_hundred_flipped_bits_never_give_other_columns(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, columns, draw = tmp_path / "x", {"a": np.arange(60, dtype=np.int64)}, random.Random(1)
    write_columns(path, columns, {"n": 1})
    whole = path.read_bytes()
    for _ in range(200):
        content = bytearray(whole)
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
        found = kept_columns(path)
        assert found is None or (found[1] == {"n": 1} and (found[0]["a"] == columns["a"]).all())
    assert f"{path} is damaged" in capfd.readouterr().err
