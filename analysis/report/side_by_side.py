"""Several stages, or several sweeps, beside each other: the same objective in each, and what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.figures.curves import STYLES
from analysis.report.chapter import Chapter, FigureLink
from analysis.report.manifest import ReportFolder
from analysis.report.sections import TextTable
from analysis.tracking.blocks import Block, BlockKey, CellSummary, number_text
from analysis.tracking.run_schema import RSUM

_SHOWN: tuple[tuple[str, str], ...] = (("i2t", "R@1"), ("t2i", "R@1"), RSUM)
_INK, _FAINT = "#1f2328", "#8c959f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One block of one sweep, as a column beside others."""

    sweep: str
    block: Block

    @property
    def stage(self) -> str:
        """The block's stage."""
        return self.block.key.stage


def columns_of(sweeps: Mapping[str, Sequence[Block]]) -> dict[tuple[str, str, str, str], list[Column]]:
    """The blocks that can stand side by side: same dataset, framework, backbone and variant.

    Args:
        sweeps: a sweep's name to its blocks; the first is what the others are compared with.

    Returns:
        By ``(dataset, framework, backbone, variant)``, columns by sweep, then stage, both in the order given; only
        groups of two or more. Blocks without a number are left out.
    """
    groups: dict[tuple[str, str, str, str], list[Column]] = {}
    for sweep, blocks in sweeps.items():
        for block in blocks:
            if not block.is_empty:
                groups.setdefault(_group(block.key), []).append(Column(sweep=sweep, block=block))
    return {key: columns for key, columns in groups.items() if len(columns) > 1}


def side_by_side_frame(groups: Mapping[Any, Sequence[Column]]) -> pd.DataFrame:
    """A row for each column, objective, direction and metric.

    Columns: ``sweep``, the block's key, ``direction``, ``metric``, ``pair``, ``triplet``, ``mean``, ``std`` (ddof=1),
    ``n``, and ``change``, the mean minus that of the group's first column (NaN where one of them has none).
    """
    rows: list[dict[str, Any]] = []
    for columns in groups.values():
        first = columns[0].block
        for column in columns:
            key = column.block.key
            place = {"sweep": column.sweep, "stage": key.stage, "dataset": key.dataset, "framework": key.framework}
            place |= {"backbone": key.backbone, "variant": key.variant, "data_fingerprint": key.data_fingerprint}
            for (direction, metric), grid in column.block.grids.items():
                for (pair, triplet), cell in grid.cells.items():
                    base = first.grids[direction, metric].cells.get((pair, triplet))
                    known = cell.mean is not None and base is not None and base.mean is not None
                    change = cell.mean - base.mean if known else float("nan")  # type: ignore[operator,union-attr]  # known
                    what = {"direction": direction, "metric": metric, "pair": pair, "triplet": triplet}
                    rows.append(place | what | {"mean": cell.mean, "std": cell.std, "n": cell.n, "change": change})
    return pd.DataFrame(rows)


def side_by_side_chapter(
    groups: Mapping[tuple[str, str, str, str], Sequence[Column]], folder: ReportFolder
) -> Chapter | None:
    """Tables and a figure for each group, and ``side-by-side.csv``; None when nothing stands beside anything.

    Args:
        groups: from `columns_of`.
        folder: the report's folder.
    """
    if not groups:
        return None
    folder.write("side-by-side.csv", side_by_side_frame(groups).to_csv(index=False, lineterminator="\n"))
    figures, tables = [], []
    for place, (key, columns) in enumerate(groups.items(), start=1):
        title = f"{' '.join(key[:3])}" + ("" if key[3] == "paper" else f", variant {key[3]}")
        stem = f"side-by-side/{place}-{'-'.join(word.replace('/', '_') for word in key[:3])}.png"
        draw_side_by_side(title, columns).savefig(folder.path(stem), dpi=150, metadata={"Software": None})
        figures.append(FigureLink(path=stem, title=f"Side by side: {title}"))
        tables += [_table(title, columns, direction, metric) for direction, metric in _SHOWN]
    paragraphs = ["Mean ± standard deviation over seeds (ddof = 1); the change is from the first column, in points."]
    return Chapter(
        anchor="side-by-side",
        title="Stages and sweeps side by side",
        paragraphs=(*paragraphs, *_warnings(groups)),
        figures=tuple(figures),
        tables=tuple(tables),
    )


def draw_side_by_side(title: str, columns: Sequence[Column]) -> Figure:
    """One panel for each metric: a line for each objective from column to column, coloured by its pair weight.

    Args:
        title: over the figure.
        columns: two or more.

    Returns:
        The figure; `figure.savefig(path)` writes it.
    """
    figure = Figure(figsize=(3.1 * len(_SHOWN) + 1.2, 3.6), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(_SHOWN), squeeze=False)[0]
    marks = {"con": "o", "nca": "s", "cir": "^"}
    for axes, (direction, metric) in zip(panels, _SHOWN, strict=True):
        for objective in _objectives(columns):
            cells = [column.block.grids[direction, metric].cells.get(objective) for column in columns]
            places = [place for place, cell in enumerate(cells) if cell is not None and cell.mean is not None]
            means = [cell.mean for cell in cells if cell is not None and cell.mean is not None]
            colour, dashes = STYLES.get(objective[0], (_FAINT, ":"))
            axes.plot(
                places, means, marker=marks.get(objective[1], "x"), markersize=4, color=colour, linestyle=dashes,
                linewidth=1, label="/".join(objective),
            )  # fmt: skip
        name = "rsum" if (direction, metric) == RSUM else f"{direction} {metric}"
        axes.set_title(name, fontsize=9, color=_INK)
        axes.set_xticks(range(len(columns)), _labels(columns), fontsize=7, rotation=20, ha="right")
        axes.set_xlim(-0.3, len(columns) - 0.7)
        axes.tick_params(axis="y", labelsize=7)
        axes.grid(color="#e6e9ed", linewidth=0.5)
    figure.suptitle(title, fontsize=10.5, color=_INK)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=7, frameon=False)
    return figure


def _group(key: BlockKey) -> tuple[str, str, str, str]:
    return key.dataset, key.framework, key.backbone, key.variant


def _objectives(columns: Sequence[Column]) -> list[tuple[str, str]]:
    cells = [next(iter(column.block.grids.values())).cells for column in columns]
    return list(dict.fromkeys(key for found in cells for key, cell in found.items() if cell.asked))


def _labels(columns: Sequence[Column]) -> list[str]:
    """The words in which the columns differ: the stage, the sweep, or both."""
    one_sweep = len({column.sweep for column in columns}) == 1
    one_stage = len({column.stage for column in columns}) == 1
    if one_sweep:
        return [column.stage for column in columns]
    return [column.sweep if one_stage else f"{column.sweep} {column.stage}" for column in columns]


def _table(title: str, columns: Sequence[Column], direction: str, metric: str) -> TextTable:
    labels = _labels(columns)
    rows = []
    for objective in _objectives(columns):
        cells = [column.block.grids[direction, metric].cells.get(objective) for column in columns]
        changes = [_change(cells[0], cell) for cell in cells[1:]]
        texts = ["--" if cell is None else number_text(cell) for cell in cells]
        rows.append(
            ("/".join(objective), texts[0], *(t for pair in zip(texts[1:], changes, strict=True) for t in pair))
        )
    name = "rsum" if (direction, metric) == RSUM else f"{direction} {metric}"
    head = ("objective", labels[0], *(word for label in labels[1:] for word in (label, "change")))
    return TextTable(title=f"{title}: {name}", head=head, rows=tuple(rows))


def _change(first: CellSummary | None, cell: CellSummary | None) -> str:
    if first is None or cell is None or first.mean is None or cell.mean is None:
        return "--"
    return f"{cell.mean - first.mean:+.1f}"


def _warnings(groups: Mapping[Any, Sequence[Column]]) -> list[str]:
    """What forbids reading a difference as an effect."""
    found = []
    for columns in groups.values():
        key = columns[0].block.key
        if len({column.block.key.data_fingerprint for column in columns}) > 1:
            found.append(
                f"{key.dataset} {key.backbone}: the columns were measured on different data (their fingerprints "
                "differ); their difference is not one of the objectives or settings alone."
            )
    return found
