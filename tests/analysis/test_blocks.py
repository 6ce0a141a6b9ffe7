from __future__ import annotations

import pytest

from analysis.blocks import gap_text, number_text, p_equation, p_text
from tests.helpers.analysis_cases import example


def test_number_and_gap_texts() -> None:
    cells = example().grids["i2t_r1"].cells
    assert [number_text(c) for c in cells.values()] == ["40.0 ± 0.2", "42.0 ± -- (n=1)", "--", "--"]
    assert [gap_text(c) for c in cells.values()] == ["", "failed: seed 3; absent: seed 2", "failed: seed 3", ""]


@pytest.mark.parametrize(
    ("p", "text", "equation"),
    [
        (1 / 10001 / 0.7, "< 0.001", "p < 0.001"),
        (0.0, "< 0.001", "p < 0.001"),
        (0.0123, "0.012", "p = 0.012"),
        (0.0497, "0.0497", "p = 0.0497"),
        (0.0503, "0.0503", "p = 0.0503"),
        (1.0, "1.000", "p = 1.000"),
    ],
)
def test_a_p_value_claims_no_more_than_a_simulation_shows(p: float, text: str, equation: str) -> None:
    assert (p_text(p), p_equation(p)) == (text, equation)
