from __future__ import annotations

from analysis.blocks import gap_text, number_text
from tests.helpers.analysis_cases import example


def test_number_and_gap_texts() -> None:
    cells = example().grids["i2t_r1"].cells
    assert [number_text(c) for c in cells.values()] == ["40.0 ± 0.2", "42.0 ± -- (n=1)", "--", "--"]
    assert [gap_text(c) for c in cells.values()] == ["", "failed: seed 3; absent: seed 2", "failed: seed 3", ""]
