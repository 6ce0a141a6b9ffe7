from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest

from analysis.figures.colours import GREEN
from analysis.report.latex import to_latex
from analysis.report.tables import to_csv, to_markdown
from analysis.run_schema import measure_slug
from tests.helpers.analysis_cases import example

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("measure", ["R@1", "rsum"])
@pytest.mark.parametrize("suffix", ["md", "tex"])
def test_a_table_is_the_golden_one(suffix: str, measure: str, pytestconfig: pytest.Config) -> None:
    """After a change that is meant: run with --update-golden, and read the difference."""
    path = GOLDEN / f"example-{measure_slug(measure)}.{suffix}"
    text = to_markdown(example(), measure) if suffix == "md" else to_latex(example(), GREEN, measure)
    if pytestconfig.getoption("--update-golden"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden table {path.name}; write it with --update-golden"
    assert text == path.read_text(encoding="utf-8"), f"{path.name} is another; if that is meant, use --update-golden"


def test_rsum_stands_alone() -> None:
    lines = to_markdown(example(), "rsum").splitlines()
    assert lines[0] == "| rsum | T con | T nca |"
    assert "sum of the six recalls in %, 0 to 600" in "".join(lines)


def test_csv_is_tidy_and_unrounded() -> None:
    frame = pd.read_csv(io.StringIO(to_csv(example())), keep_default_na=True)
    assert len(frame) == 3 * 7  # an objective that is not in the sweep has no row
    row = frame[(frame["triplet"] == "nca") & (frame["metric"] == "R@10") & (frame["direction"] == "t2i")].iloc[0]
    assert (row["mean"], row["n"]) == (42.04, 1)
    assert row["missing"].startswith("seed 3 failed (loss is NaN")
