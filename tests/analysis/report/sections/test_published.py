"""The comparison with the paper: a verdict on each cell, their counts, and the order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from goal_sweep.analysis.blocks import Block
from goal_sweep.analysis.published.numbers import published_blocks
from goal_sweep.analysis.report.parts import Section, TextTable
from goal_sweep.analysis.report.sections.published import published_section
from goal_sweep.sweeps.results import METRICS
from tests.helpers.results_cases import inputs_of

PRINTED = ("i2t_r1", "t2i_r1")


def compared(blocks: Sequence[Block]) -> tuple[Section, dict[str, TextTable]]:
    """The section and its tables by title."""
    whole = tuple(map(with_all_metrics, blocks))
    section = published_section(inputs_of(blocks=whole, as_printed=whole))
    return section, {table.title: table for table in section.tables}


def with_all_metrics(block: Block) -> Block:
    """A block with a grid of each metric; the paper's blocks have two of them."""
    first = next(iter(block.grids.values()))
    others = {key: replace(first, metric=metric) for key, metric in METRICS.items()}
    return replace(block, grids={**block.grids, **{key: grid for key, grid in others.items() if key not in PRINTED}})


def moved(block: Block, points: list[float]) -> Block:
    """A block whose cells are the printed ones plus ``points``, in turn."""
    grids = {
        key: replace(
            grid,
            cells={
                objective: replace(cell, mean=(cell.mean or 0) + points[index % len(points)])
                for index, (objective, cell) in enumerate(grid.cells.items())
            },
        )
        for key, grid in block.grids.items()
    }
    return replace(block, grids=grids)


def without_other_metrics(block: Block) -> Block:
    return replace(block, grids={"i2t_r1": block.grids["i2t_r1"]})


def test_the_papers_own_numbers_are_equal_in_all_300_cells() -> None:
    section, tables = compared(published_blocks())
    assert section.paragraphs[-1].startswith("Of 300 cells 300 equal.")
    cells = [table for table in tables.values() if table.head[1:3] == ("paper", "this sweep")]
    assert len(cells) == 20
    assert {table.note for table in cells} == {"15 equal; mean difference 0.0."}
    assert {row[3].split()[0] for table in cells for row in table.rows} == {"0.0"}


def test_verdicts_are_counted() -> None:
    block = without_other_metrics(moved(published_blocks()[0], [0.0, 0.09, 4.0]))
    section, tables = compared([block])
    assert section.paragraphs[-1].startswith("Of 15 cells 5 equal, 5 within noise, 5 higher.")
    grid = tables["MS-COCO, VSE++ (resnet152), stage frozen: Image → Text R@1"]
    assert [row[3].split()[0] for row in grid.rows[:3]] == ["0.0", "+0.1", "+4.0"]
    low = [float(row[3].split()[1].strip("(")) for row in grid.rows[:3]]
    assert low[1] < 0 < low[2]


def test_no_difference_is_a_negative_zero() -> None:
    block = moved(published_blocks()[0], [-0.04])
    _, tables = compared([block])
    assert not [row for table in tables.values() for row in table.rows if "-0.0" in row]


def test_the_point_in_the_papers_order_comes_first() -> None:
    block = without_other_metrics(published_blocks()[0])
    grid = block.grids["i2t_r1"]
    turned = {key: replace(cell, mean=100 - (cell.mean or 0)) for key, cell in grid.cells.items()}
    both = []
    for name, cells in (("tau 1", grid.cells), ("tau 2", turned)):
        grids = {key: replace(grid, metric=METRICS[key], cells=cells) for key in ("i2t_r1", "t2i_r1")}
        both.append(replace(block, key=replace(block.key, point=name), grids=grids))
    _, tables = compared(both[::-1])
    means = tables["Order of the objectives as in the paper: MS-COCO, VSE++ (resnet152), stage frozen"]
    assert means.head == ("printed grid", "tau 1", "tau 2")
    assert means.rows[0] == ("mean", "+0.62", "-0.62")
