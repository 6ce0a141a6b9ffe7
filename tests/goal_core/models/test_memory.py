"""Passes without gradients that do not fit into memory run in halves, with the same result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from goal_core.models import Encoder, ImageBackbone
from goal_core.models.memory import in_halves
from goal_core.training import train_unit
from tests.helpers.training_cases import FROZEN, folders_of, unit_of


def test_halves_have_the_rows_in_their_order() -> None:
    def doubled(rows: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        if len(rows) > 2:
            raise MemoryError
        return torch.stack((rows + other, rows - other))

    rows = torch.arange(11.0)
    assert torch.equal(in_halves(doubled, rows, rows, dim=-1), torch.stack((2 * rows, 0 * rows)))


def test_other_errors_and_a_row_that_does_not_fit_are_raised() -> None:
    def fails(rows: torch.Tensor) -> torch.Tensor:
        raise ValueError("other") if rows[0] else MemoryError("one row")

    with pytest.raises(ValueError, match="other"):
        in_halves(fails, torch.ones(4), dim=0)
    with pytest.raises(MemoryError, match="one row"):
        in_halves(fails, torch.zeros(4), dim=0)


@pytest.mark.parametrize("place", [(Encoder, "images"), (Encoder, "texts"), (ImageBackbone, "forward")])
def test_a_training_goes_on_with_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str]
) -> None:
    unit = unit_of("con/con", stage=replace(FROZEN, epochs=1, warmup_epochs=0, lr_drops=()))
    plain, short = folders_of(unit, tmp_path / "plain"), folders_of(unit, tmp_path / "short")
    train_unit(unit, plain)
    whole, sizes = getattr(*place), []

    def only_three(self: Any, inputs: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        if len(inputs) > 3:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        sizes.append(len(inputs))
        return whole(self, inputs, *rest)  # type: ignore[no-any-return]

    monkeypatch.setattr(*place, only_three)
    assert [one.__class__.__name__ for one in train_unit(unit, short)] == ["TrainingDone"]
    assert set(sizes) <= {1, 2, 3}
    assert len(sizes) > 4
    assert short["con-con"].result() == plain["con-con"].result()
