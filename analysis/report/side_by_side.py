"""The section that shows stages and sweeps side by side: each objective's means and how they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.blocks import MODEL_COLUMNS, Block, BlockKey, CellSummary, change_text, number_text
from analysis.figures import draw_side_by_side, write_figure
from analysis.report.document import FigureLink, ReportFolder, Section
from analysis.report.tables import TextTable
from analysis.run_schema import MAIN_METRICS, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One block of one sweep, as a column next to others."""

    sweep: str
    block: Block

    def cell(self, metric: Metric, objective: tuple[str, str]) -> CellSummary | None:
        """An objective's cell; None when its sweep does not have the objective."""
        return self.block.grids[metric.key].cells.get(objective)


Groups = Mapping[tuple[str, str, str, str], Sequence[Column]]
"""The columns shown side by side, by ``(dataset, framework, backbone, variant)``."""


def columns_of(sweeps: Mapping[str, Sequence[Block]]) -> Groups:
    """Groups of blocks with the same dataset, framework, backbone and variant.

    Args:
        sweeps: a sweep's name to its blocks; the others are compared with the first.

    Returns:
        Columns by sweep, then stage, both in the given order; only groups of two or more. Blocks without a number are
        omitted.
    """
    groups: dict[tuple[str, str, str, str], list[Column]] = {}
    for sweep, blocks in sweeps.items():
        for block in blocks:
            if not block.is_empty:
                groups.setdefault(_group(block.key), []).append(Column(sweep=sweep, block=block))
    return {key: columns for key, columns in groups.items() if len(columns) > 1}


def side_by_side_frame(groups: Groups) -> pd.DataFrame:
    """A row for each column, objective and metric.

    Columns: ``sweep``, the block's, ``direction``, ``metric``, ``pair``, ``triplet``, ``mean``, ``std`` (ddof=1),
    ``n``, and ``change``, the mean minus that of the group's first column (NaN if either is missing).
    """
    rows: list[dict[str, Any]] = []
    for columns in groups.values():
        for column in columns:
            key = {name: getattr(column.block.key, name) for name in ("stage", *MODEL_COLUMNS)}
            for grid in column.block.grids.values():
                metric = {"direction": grid.metric.direction, "metric": grid.metric.name}
                for (pair, triplet), cell in grid.cells.items():
                    change = _change(columns[0].cell(grid.metric, (pair, triplet)), cell)
                    numbers = {"mean": cell.mean, "std": cell.std, "n": cell.n, "change": change}
                    objective = {"pair": pair, "triplet": triplet}
                    rows.append({"sweep": column.sweep} | key | metric | objective | numbers)
    return pd.DataFrame(rows).astype({"change": float})


def side_by_side_section(groups: Groups, folder: ReportFolder) -> Section | None:
    """Tables and a figure for each group, and ``side-by-side.csv``; None without groups."""
    if not groups:
        return None
    folder.write("side-by-side.csv", side_by_side_frame(groups).to_csv(index=False, lineterminator="\n"))
    figures, tables = [], []
    for number, (key, columns) in enumerate(groups.items(), start=1):
        title = f"{' '.join(key[:3])}" + ("" if key[3] == "paper" else f", variant {key[3]}")
        path = f"side-by-side/{number}-{'-'.join(word.replace('/', '_') for word in key[:3])}.png"
        write_figure([folder.path(path)], draw_side_by_side, title, _labels(columns), _means(columns))
        figures.append(FigureLink(path=path, title=f"Side by side: {title}"))
        tables += [_table(title, columns, metric) for metric in MAIN_METRICS]
    paragraphs = [
        "Mean ± standard deviation over seeds (ddof = 1); changes are relative to the first column, in points."
    ]
    return Section(
        anchor="side-by-side",
        title="Stages and sweeps side by side",
        paragraphs=(*paragraphs, *_warnings(groups)),
        figures=tuple(figures),
        tables=tuple(tables),
    )


def _group(key: BlockKey) -> tuple[str, str, str, str]:
    return key.dataset, key.framework, key.backbone, key.variant


def _objectives(columns: Sequence[Column]) -> list[tuple[str, str]]:
    cells = [next(iter(column.block.grids.values())).cells for column in columns]
    return list(dict.fromkeys(key for found in cells for key, cell in found.items() if cell.requested))


def _means(columns: Sequence[Column]) -> dict[Metric, dict[tuple[str, str], list[float | None]]]:
    return {
        metric: {
            objective: [cell.mean if (cell := column.cell(metric, objective)) else None for column in columns]
            for objective in _objectives(columns)
        }
        for metric in MAIN_METRICS
    }


def _labels(columns: Sequence[Column]) -> list[str]:
    """What distinguishes the columns: the stage, the sweep, or both; and the grid of a tuned sweep."""
    several = len({column.sweep for column in columns}) > 1
    stages = len({column.block.key.stage for column in columns}) > 1 or not several
    return [" ".join(filter(None, _words(column, several=several, stages=stages))) for column in columns]


def _words(column: Column, *, several: bool, stages: bool) -> tuple[str, str, str]:
    key = column.block.key
    return column.sweep if several else "", key.stage if stages else "", f"({key.grid})" if key.grid else ""


def _table(title: str, columns: Sequence[Column], metric: Metric) -> TextTable:
    labels = _labels(columns)
    rows = []
    for objective in _objectives(columns):
        first, *others = (column.cell(metric, objective) for column in columns)
        row = ["/".join(objective), _text(first)]
        for cell in others:
            change = _change(first, cell)
            row += [_text(cell), "--" if change is None else change_text(change)]
        rows.append(tuple(row))
    head = ("objective", labels[0], *(word for label in labels[1:] for word in (label, "change")))
    return TextTable(title=f"{title}: {metric.label}", head=head, rows=tuple(rows))


def _text(cell: CellSummary | None) -> str:
    return "--" if cell is None else number_text(cell)


def _change(first: CellSummary | None, cell: CellSummary | None) -> float | None:
    if first is None or cell is None or first.mean is None or cell.mean is None:
        return None
    return cell.mean - first.mean


def _warnings(groups: Groups) -> list[str]:
    """A sentence for each group whose differences may have other causes than objectives and settings."""
    warnings = []
    for columns in groups.values():
        key = columns[0].block.key
        if len({column.block.key.data_fingerprint for column in columns}) > 1:
            warnings.append(
                f"{key.dataset} {key.backbone}: the columns were measured on different data (their fingerprints "
                "differ); differences between them are not due to objectives or settings alone."
            )
    return warnings
