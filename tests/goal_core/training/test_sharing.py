"""Which path a unit takes."""

from dataclasses import replace
from typing import Any

import pytest

from goal_sweep.goal_core.training.shared_backbone import choose_path
from tests.helpers.training_cases import FINETUNE, FROZEN, GRID, XVLM, unit_of


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "trunk"),
        ({"device": "cuda"}, "heads"),
        ({"sharing": "heads"}, "heads"),
        ({"sharing": "trunk", "device": "cuda"}, "trunk"),
        ({"sharing": "none", "device": "cuda"}, "trunk"),
        ({"device": "cuda", "model": GRID}, "trunk"),
        ({"sharing": "heads", "model": XVLM}, "trunk"),
        ({"device": "cuda", "stage": FINETUNE}, "trunk"),
        ({"sharing": "heads", "stage": replace(FROZEN, bn_mode="legacy_quirk")}, "trunk"),
        ({"sharing": "heads", "stage": replace(FROZEN, micro_batch=4)}, "trunk"),
    ],
)
def test_the_path_of_a_unit(changes: dict[str, Any], name: str) -> None:
    assert choose_path(unit_of("con/con", "sig-ms/cir", **changes))[0] == name


def test_a_single_cell_shares_nothing() -> None:
    assert choose_path(unit_of("con/con", sharing="heads", device="cuda"))[0] == "none"
