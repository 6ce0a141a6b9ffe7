from itertools import product
from pathlib import Path

import pytest

from goal_sweep.analysis.figures.blocks import draw_heatmap
from goal_sweep.analysis.figures.canvas import GREEN
from goal_sweep.analysis.report.latex import block_to_latex
from goal_sweep.analysis.report.pages import block_to_markdown
from goal_sweep.analysis.statistics.aggregation import aggregate
from goal_sweep.goal_core.evaluation.metrics import measure_slug
from tests.helpers.results_cases import SweepWriter, example, recalls

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


def test_a_baseline_is_a_row_of_its_own_below_the_grid() -> None:
    names = ["con/con", "con/nca", "sig/con", "sig/nca", "infonce/loss"]
    writer = SweepWriter(objectives=names)
    for name, seed in product(names, writer.seeds):
        writer.write(name, seed, metrics=recalls("sig/cir" if name == "infonce/loss" else name, seed))
    (block,) = aggregate(writer.results())
    assert [name for _, name, _ in block.grids["rsum"].rows] == ["con", "sig", "infonce"]
    text = block_to_markdown(block)
    assert "loss" not in text
    assert "| **infonce** | **40.8 ± 0.3** |  | **30.8 ± 0.3** |  |" in text
    drawn = [text.get_text() for text in draw_heatmap(block, GREEN).axes[0].texts]
    assert "infonce" in drawn
    assert "not in the sweep" not in drawn
