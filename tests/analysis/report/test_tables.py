from __future__ import annotations

from pathlib import Path

import pytest

from analysis.figures.colours import GREEN
from analysis.report.latex.blocks import block_to_latex
from analysis.report.markdown import block_to_markdown
from analysis.statistics.aggregation import cells_frame
from sweeps.results import measure_slug
from tests.helpers.results_cases import example

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("measure", ["R@1", "rsum"])
@pytest.mark.parametrize("suffix", ["md", "tex"])
def test_a_table_is_the_golden_one(suffix: str, measure: str, pytestconfig: pytest.Config) -> None:
    """After a change that is meant: run with --update-golden, and read the difference."""
    path = GOLDEN / f"example-{measure_slug(measure)}.{suffix}"
    text = block_to_markdown(example(), measure) if suffix == "md" else block_to_latex(example(), GREEN, measure)
    if pytestconfig.getoption("--update-golden"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden table {path.name}; write it with --update-golden"
    assert text == path.read_text(encoding="utf-8"), f"{path.name} is another; if that is meant, use --update-golden"


def test_rsum_stands_alone() -> None:
    lines = block_to_markdown(example(), "rsum").splitlines()
    assert lines[0] == "| rsum | T con | T nca |"
    assert "sum of the six recalls in %, 0 to 600" in "".join(lines)


def test_the_frame_of_a_block_is_tidy_and_unrounded() -> None:
    frame = cells_frame([example()])
    assert len(frame) == 3 * 7  # an objective that is not in the sweep has no row
    row = frame[(frame["triplet"] == "nca") & (frame["metric"] == "R@10") & (frame["direction"] == "t2i")].iloc[0]
    assert (row["mean"], row["n"]) == (42.04, 1)
    assert row["missing"].startswith("seed 3 failed (loss is NaN")
