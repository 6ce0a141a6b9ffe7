from __future__ import annotations

from typing import Any

import pytest

from goal_sweep.analysis.statistics.trails import edge, position, values_tried
from goal_sweep.sweeps.tuning import Dimension
from goal_sweep.sweeps.tuning.block import Domain
from tests.helpers.tuned_cases import TUNE, trail, tuned_sweep


def test_more_settings_are_searched_more_thinly() -> None:
    results = tuned_sweep([trail("con/con"), trail("sig-ms/cir")], TUNE).results()
    two, three = results.header.trails
    assert values_tried(results.header, two) == 4.0
    assert values_tried(results.header, three) == pytest.approx(16 ** (1 / 3))


TAU = Domain(loguniform=(1.0, 100.0))
MARGIN = Domain(uniform=(0.0, 1.0))
LR = Domain(choice=(0.002, 0.004, 0.008))
WIDE = Domain(choice=(0.001, 0.01, 0.1))


@pytest.mark.parametrize(
    ("domain", "value", "at", "where"),
    [
        (TAU, 10.0, 0.5, ""),
        (TAU, 1.2, 0.0396, "lower edge"),
        (TAU, 90.0, 0.977, "upper edge"),
        (TAU, 200.0, 1.15, "above the range"),
        (MARGIN, 0.3, 0.3, ""),
        (MARGIN, 0.96, 0.96, "upper edge"),
        (MARGIN, -0.1, -0.1, "below the range"),
        (LR, 0.002, 0.0, "lower edge"),
        (LR, 0.004, 1 / 3, ""),
        (LR, 0.008, 1.0, "upper edge"),
        (WIDE, 0.01, 0.5, ""),
        (Domain(choice=(1, 2)), 2, 1.0, ""),
        (Domain(choice=("paper", "released")), "paper", None, ""),
        (Domain(choice=(True, False)), True, None, ""),
    ],
)
def test_where_a_choice_lies_in_its_range(domain: Domain, value: Any, at: float | None, where: str) -> None:
    dimension = Dimension(key="objectives.params.tau", domain=domain)
    assert position(dimension, value) == (None if at is None else pytest.approx(at, abs=2e-3))
    assert edge(dimension, value) == where
