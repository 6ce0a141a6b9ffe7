"""The section on each weight on its own."""

from __future__ import annotations

import pandas as pd

from analysis.blocks import BlockKey
from analysis.report.inputs import Inputs
from analysis.report.parts import Section, TextTable
from analysis.statistics.effects import MARGINAL_COLUMNS
from analysis.wording import mean_text
from sweeps.results import MAIN_METRICS, Metric


def weights_section(inputs: Inputs) -> Section | None:
    """A table for each block with the mean of each weight."""
    tables = []
    for key, frame in inputs.marginals.groupby(list(MARGINAL_COLUMNS)):
        if not frame["n"].any():
            continue  # an incomplete grid may have no complete row or column
        rows = [
            (f"{'P' if factor == 'pair' else 'T'} {level}", *_means(part), str(part["n"].iloc[0]))
            for (factor, level), part in frame.groupby(["factor", "level"], sort=False)
        ]
        tables.append(
            TextTable(
                title=BlockKey(**dict(zip(MARGINAL_COLUMNS, map(str, key), strict=True))).title,
                head=("weight", *(metric.title for metric in MAIN_METRICS), "n seeds"),
                rows=tuple(rows),
                note="Mean over the other weight within each seed, then mean ± standard deviation (ddof = 1) over "
                "the n seeds with every cell of that row or column.",
            )
        )
    return Section(anchor="marginals", title="Each weight on its own", tables=tuple(tables)) if tables else None


def _means(part: pd.DataFrame) -> list[str]:
    rows = [_of_metric(part, metric).iloc[0] for metric in MAIN_METRICS]
    return [mean_text(row["mean"], row["std"]) if row["n"] else "--" for row in rows]


def _of_metric(frame: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    return frame[(frame["direction"] == metric.direction) & (frame["metric"] == metric.name)]
