"""Steps that are timed are steps of real training."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks import steps
from benchmarks.program import parse
from benchmarks.steps import data_of, photographs, timed, unit_of
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.training.cells.trainer import CellTrainer

WORDS = "--images 40 --size 32 --batch 8 --embed-dim 16 --word-dim 8 --steps 3".split()


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with photographs(parse(None, steps.OPTIONS, WORDS)) as folder:
        yield folder


def test_a_unit_is_timed_and_leaves_nothing(root: Path) -> None:
    given = parse(None, steps.OPTIONS, WORDS)
    unit = unit_of(given, data_of(root, 32), cells=2, sharing="heads")
    row = timed(given, unit, open_dataset(unit.data))
    assert row["cell steps/s"] == pytest.approx(2000 / row["ms a step"])
    assert 0 <= row["data wait %"] < 100


def test_too_few_data_are_an_error(root: Path) -> None:
    given = parse(None, steps.OPTIONS, [*WORDS, "--steps", "50"])
    unit = unit_of(given, data_of(root, 32))
    with pytest.raises(ValueError, match="too small for 55 steps of 8 pairs"):
        timed(given, unit, open_dataset(unit.data))


def test_a_cell_that_fails_is_an_error_with_its_reason(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CellTrainer, "step", Mock(side_effect=ArithmeticError("no step")))
    given = parse(None, steps.OPTIONS, WORDS)
    unit = unit_of(given, data_of(root, 32))
    with pytest.raises(RuntimeError, match=r"^failed \(error\): ArithmeticError: no step$"):
        timed(given, unit, open_dataset(unit.data))
