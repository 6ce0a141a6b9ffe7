"""The paper's numbers, and a sweep beside them: a verdict on each cell, their counts, and the order."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from goal_sweep.analysis import published as package
from goal_sweep.analysis.blocks import BlockResults, CellSummary
from goal_sweep.analysis.published.comparison import compare_cells, holm, order_agreement, published_blocks
from goal_sweep.analysis.report.parts import Section, TextTable
from goal_sweep.analysis.report.sections.changes import published_section
from goal_sweep.analysis.statistics.aggregation import cells_frame
from goal_sweep.goal_core.evaluation.metrics import METRICS, OBJECTIVES
from tests.helpers.paths import SHARED
from tests.helpers.results_cases import inputs_of

PRINTED = published_blocks()


def test_blocks_hold_every_printed_number() -> None:
    numbers = pd.read_csv(Path(package.__file__).parent / "goal_grid.csv")
    names = ["dataset", "framework", "backbone", "stage", "direction", "metric", "pair", "triplet"]
    both = numbers.merge(cells_frame(PRINTED), on=names, suffixes=("", "_ours"), validate="1:1")
    assert len(both) == len(numbers) == 300
    assert (both["mean"] == both["mean_ours"]).all()
    assert (both["std"] == both["std_ours"]).all()
    assert set(both["n"]) == {3}


def test_every_number_is_the_printed_one() -> None:
    """Against the coloured halves of the paper's source, in the order of ``goal_grid.csv``."""
    printed = re.compile(r"cellcolor\[HTML\]\{\w{6}\}([\d.]+) \$\\pm\$ ([\d.]+)")
    files = sorted((SHARED / "paper").glob("*.txt"))
    rows = [printed.findall(line) for file in files for line in file.read_text().splitlines() if "cellcolor" in line]
    if not rows:
        pytest.skip("the paper's source is not here")
    assert len(rows) == 50
    for number, block in enumerate(PRINTED):
        here = rows[5 * number : 5 * number + 5]
        for direction, half in (("i2t", slice(0, 3)), ("t2i", slice(3, 6))):
            ours = block.grids[f"{direction}_r1"].cells.values()
            assert [(f"{c.mean:.1f}", f"{c.std:.1f}") for c in ours] == [pair for row in here for pair in row[half]]


def compared(blocks: Sequence[BlockResults]) -> tuple[Section, dict[str, TextTable]]:
    """The section and its tables by title; a sweep's blocks have a grid of each metric, the paper's two."""
    whole = []
    for block in blocks:
        first = next(iter(block.grids.values()))
        grids = {key: replace(block.grids.get(key, first), metric=metric) for key, metric in METRICS.items()}
        whole.append(replace(block, grids=grids))
    section = published_section(inputs_of(blocks=tuple(whole), answered=tuple(whole)))
    return section, {table.title: table for table in section.tables}


def changed(block: BlockResults, change: Callable[[int, CellSummary], CellSummary]) -> BlockResults:
    grids = {
        key: replace(grid, cells={name: change(index, cell) for index, (name, cell) in enumerate(grid.cells.items())})
        for key, grid in block.grids.items()
    }
    return replace(block, grids=grids)


def test_the_papers_own_numbers_are_equal_in_all_300_cells_despite_rounding_errors() -> None:
    own = [changed(b, lambda i, cell: replace(cell, mean=((cell.mean or 0) * 3 + 0.1 - 0.1) / 3)) for b in PRINTED]
    section, tables = compared(own)
    assert section.paragraphs[-1].startswith("Of 300 cells 300 equal.")
    cells = [table for table in tables.values() if table.head[1:3] == ("paper", "this sweep")]
    assert (len(cells), {table.note for table in cells}) == (20, {"15 equal; mean change 0.0."})


def test_verdicts_are_counted() -> None:
    shifts = (0.0, 0.09, 9.0)
    block = changed(PRINTED[0], lambda index, cell: replace(cell, mean=(cell.mean or 0) + shifts[index % 3], std=0.3))
    section, tables = compared([block])
    assert section.paragraphs[-1].startswith("Of 30 cells 10 equal, 10 not significant, 10 higher.")
    grid = tables["MS-COCO, VSE++ (resnet152), stage frozen: Image → Text R@1"]
    assert [(row[3], row[-1]) for row in grid.rows[:3]] == [
        ("0.0", "equal"),
        ("+0.1", "not significant"),
        ("+9.0", "higher"),
    ]


def test_cells_are_compared_by_welchs_test_with_holms_correction() -> None:
    theirs, ours = (CellSummary(mean=mean, std=std, n=n) for mean, std, n in ((40.0, 0.3, 3), (41.0, 0.2, 5)))
    single = CellSummary(mean=45.0, std=None, n=1)
    near = CellSummary(mean=40.2, std=0.3, n=3)
    pairs = {OBJECTIVES[0]: (theirs, ours), OBJECTIVES[1]: (theirs, near), OBJECTIVES[2]: (theirs, single)}
    found = list(compare_cells(pairs).values())
    p = [
        float(stats.ttest_ind_from_stats(b.mean, b.std, b.n, 40.0, 0.3, 3, equal_var=False).pvalue)
        for b in (ours, near)
    ]
    assert [own.p for own in found[:2]] == pytest.approx([2 * p[0], p[1]])
    assert [own.verdict for own in found] == ["higher", "not significant", "not tested"]
    assert holm([0.01, 0.04, 0.03, float("nan")]) == pytest.approx([0.03, 0.06, 0.06, float("nan")], nan_ok=True)


def test_orders_are_rank_correlations_with_every_printed_grid_of_unrounded_means() -> None:
    random = np.random.default_rng(1)
    block = changed(PRINTED[0], lambda index, cell: replace(cell, mean=float(random.normal(50, 5))))
    found = order_agreement(block, PRINTED)
    assert len(found) == 20
    for (key, metric), value in found.items():
        grid = next(printed for printed in PRINTED if printed.key == key).grids[metric.key]
        ours = list(block.grids[metric.key].means.values())
        assert value == pytest.approx(stats.spearmanr(ours, list(grid.means.values())).statistic)
    two = replace(
        block, grids={key: replace(g, cells=dict(list(g.cells.items())[:2])) for key, g in block.grids.items()}
    )
    assert order_agreement(two, PRINTED) == {}
