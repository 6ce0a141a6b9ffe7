"""The sections on each weight on its own, and on the differences of all objectives from con/con."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.blocks import BlockKey, Grid
from analysis.report.inputs import Inputs
from analysis.report.parts import Section, TextTable
from analysis.statistics.differences import MAX_EXACT, can_be_significant
from analysis.statistics.effects import MARGINAL_COLUMNS
from analysis.wording import interval_text, mean_text, p_text, signed
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


def differences_section(inputs: Inputs) -> Section | None:
    """A table of the differences from con/con for each stage and main metric.

    A stage of one block is judged by the rule of the marks. Over several blocks the pairs of all blocks are pooled, and
    p-values are shown only if their number allows any to be significant.
    """
    tables = []
    for stage, frame in inputs.differences.groupby("stage", sort=False):
        here = [block for block in inputs.first if block.key.stage == stage and not block.is_empty]
        for metric in MAIN_METRICS:
            rows = _of_metric(frame, metric)
            if not rows.empty:
                table = _of_block(here[0].grids[metric.key], rows) if len(here) == 1 else _pooled(rows)
                tables.append(replace(table, title=f"{metric.title}, stage {stage}"))
    return Section(anchor="differences", title="Differences from con/con", tables=tuple(tables)) if tables else None


def _of_block(grid: Grid, frame: pd.DataFrame) -> TextTable:
    rows = []
    for row in frame.to_dict("records"):
        change = grid.comparison.from_baseline[row["pair"], row["triplet"]]
        numbers = signed(change.estimate, 2), interval_text(change.low, change.high, 2), str(row["n"])
        rows.append((f"{row['pair']}/{row['triplet']}", *numbers, "--" if change.p is None else p_text(change.p)))
    note = (
        "Objective minus con/con, of runs with the same seed. Intervals and p are corrected for the comparisons of all "
        "objectives with each other, with their noise pooled. An objective that may be far noisier than the others has "
        "a wider interval of its own."
    )
    head = ("objective", "difference", "95 % interval", "n pairs", "p")
    return TextTable(title="", head=head, rows=tuple(rows), note=note)


def _pooled(frame: pd.DataFrame) -> TextTable:
    with_p, kind = can_be_significant(frame), "exact" if frame["n"].max() <= MAX_EXACT else "normal approximation"
    rows = [
        (
            f"{row['pair']}/{row['triplet']}",
            signed(row["difference"], 2),
            interval_text(row["low"], row["high"], 2),
            str(row["n"]),
            *((p_text(row["p"]), p_text(row["p_holm"])) if with_p else ()),
        )
        for row in frame.to_dict("records")
    ]
    note = (
        "Objective minus con/con, paired by model and seed. Intervals are by Student's t, each on its own, for the "
        "mean over these blocks; they generalise to other seeds of these blocks."
    )
    if with_p:
        note += (
            f" p is by the two-sided Wilcoxon signed rank test ({kind}), p (Holm) corrects for the {len(frame)} "
            "comparisons of this table; a small p means that the objective differs in at least one block."
        )
    head = ("objective", "difference", "95 % interval", "n pairs", *(("p", "p (Holm)") if with_p else ()))
    return TextTable(title="", head=head, rows=tuple(rows), note=note)


def _of_metric(frame: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    return frame[(frame["direction"] == metric.direction) & (frame["metric"] == metric.name)]
