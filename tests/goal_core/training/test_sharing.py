"""Which path a unit takes, and what it says about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from goal_sweep.goal_core.training.sharing import choose_path
from tests.helpers.training_cases import FINETUNE, FROZEN, GRID, REGIONS, XVLM, unit_of

BOTH = ("con/con", "sig-ms/cir")


@pytest.mark.parametrize(
    ("changes", "name", "why"),
    [
        ({}, "trunk", "sharing auto on a CPU, where"),
        ({"device": "cuda"}, "heads", "sharing auto on a GPU"),
        ({"device": "cuda", "precision": "bf16"}, "heads", "sharing auto on a GPU"),
        ({"sharing": "heads"}, "heads", "sharing heads is set"),
        ({"sharing": "trunk", "device": "cuda"}, "trunk", "sharing trunk is set"),
        ({"sharing": "none", "device": "cuda"}, "trunk", "sharing none is set"),
        ({"device": "cuda", "model": GRID}, "trunk", "framework vse_infty has no stacked heads"),
        ({"model": REGIONS}, "trunk", "framework vse_infty has no stacked heads"),
        ({"sharing": "heads", "model": XVLM}, "trunk", "framework xvlm has no stacked heads"),
        ({"device": "cuda", "stage": FINETUNE}, "trunk", "stage finetune does not share a frozen backbone"),
        (
            {"sharing": "heads", "stage": replace(FROZEN, bn_mode="legacy_quirk")},
            "trunk",
            "stage frozen does not share a frozen backbone",
        ),
        ({"device": "cuda", "precision": "fp16"}, "trunk", "with precision fp16 each cell skips steps of its own"),
        ({"sharing": "heads", "stage": replace(FROZEN, micro_batch=4)}, "trunk", "micro_batch 4 encodes each cell's"),
    ],
)
def test_the_path_of_a_unit(changes: dict[str, Any], name: str, why: str) -> None:
    path, reason = choose_path(unit_of(*BOTH, **changes))
    assert path == name
    assert why in reason


def test_a_single_cell_shares_nothing() -> None:
    assert choose_path(unit_of("con/con", sharing="heads", device="cuda"))[0] == "none"
