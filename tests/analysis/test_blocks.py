from __future__ import annotations

from tests.helpers.results_cases import example


def test_number_and_gap_texts() -> None:
    cells = example().grids["i2t_r1"].cells
    assert [cell.text() for cell in cells.values()] == ["40.0 ± 0.2", "42.0 ± -- (n=1)", "--", "--"]
    assert [cell.gap_text for cell in cells.values()] == [
        "",
        "failed: seed 3; absent: seed 2",
        "failed: seed 3",
        "",
    ]
