"""The sections on the trails of a tuned sweep: how much each setting matters, and what a budget buys."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from analysis.blocks import Objective, file_stem
from analysis.figures import FigureWriter, draw_budget, draw_sensitivity
from analysis.report.document import ReportFolder, Section
from analysis.report.drawing import linked_figure
from analysis.report.latex import text_table_to_latex
from analysis.report.tables import TextTable
from analysis.report.tuning import block_text
from analysis.statistics import BudgetCurve, budget_curve, candidates_frame, sensitivity
from analysis.tracking import SweepRuns
from analysis.tuning import Trail, TunedBlock, Tuning

_SENSITIVITY = (
    "Scores of validation by the value of one setting, while the others vary too. The number is the reach: the mean "
    "score of the candidates in the best third of the range minus that in the worst (of a list: its values), in "
    "points of the metric. *: more than 95 % of the reaches when the scores are shuffled among the candidates; "
    "without it, the number is what chance gives. Each test is on its own, so about one in twenty is marked by chance."
)
_DODGE = (
    "The expected best score of n candidates, in closed form from the empirical distribution of the scores, with a "
    "band of one standard deviation of the best of n, cut at the scores that were seen (Dodge et al. 2019, Show Your "
    "Work). "
)
_TRAIL = (
    "The candidates of TPE are not independent draws: each is proposed from those before it. So a curve is what this "
    "trail gives, the best score so far, and not an estimate for random search; one trail has no band. "
)
_GRID = "The points of a grid are not drawn either: the curve is that of a random order of them. "
_FIRST = "The default is always tried first, so a curve starts at its score and draws the others. "
_STOPPED = (
    "A candidate that was stopped early counts with the best epoch that it reached, which is at most what it would "
    "have reached: curves are bounds from below. "
)
_FAILED = "A candidate that failed counts as the lowest score of its objective, for it has used its part of the budget."


def sensitivity_section(sweep: SweepRuns, folder: ReportFolder, figures: FigureWriter) -> Section | None:
    """How much the score varies with each setting; None before anything was chosen.

    Files: ``candidates.csv``, ``tuning/BLOCK-NAME.{png,pdf}``, ``tables/sensitivity-BLOCK.tex``.
    """
    tuning = sweep.tuning
    if tuning is None:
        return None
    folder.write("candidates.csv", candidates_frame(tuning).to_csv(index=False, lineterminator="\n"))
    links, tables = [], []
    for block in tuning.blocks:
        stem = _stem(block)
        for dimension in tuning.space:
            trails = [trail for trail in block.objectives if dimension.name in trail.names and _has_score(trail)]
            if trails:
                name = f"tuning/{file_stem(stem, 'by', dimension.name)}"
                title = f"{tuning.metric} by {dimension.name}, {block_text(block)}"
                arguments = title, tuning.metric, dimension, trails
                called = f"Candidates: {title}"
                links.append(linked_figure(folder, figures, name, called, draw_sensitivity, *arguments))
        table = _sensitivity_table(tuning, block)
        tables.append(table)
        folder.write(f"tables/sensitivity-{stem}.tex", text_table_to_latex(table, f"sensitivity-{stem}"))
    return Section(
        anchor="sensitivity",
        title="How much each setting matters",
        paragraphs=(_SENSITIVITY,),
        figures=tuple(links),
        tables=tuple(tables),
    )


def _sensitivity_table(tuning: Tuning, block: TunedBlock) -> TextTable:
    rows = []
    for trail in block.objectives:
        scores = pd.Series([one.score for one in trail.candidates if one.score is not None], dtype=float)
        spread = "--" if len(scores) < 2 else f"{scores.std(ddof=1):.1f}"
        whole = "--" if scores.empty else f"{scores.min():.1f} to {scores.max():.1f}"
        entries = []
        for dimension in tuning.space:
            found = sensitivity(trail, dimension) if dimension.name in trail.names else None
            if found is None or found.reach is None:
                entries.append("--")
            else:
                entries.append(f"{found.reach:.1f}{'*' if found.matters else ''} ({found.best})")
        rows.append(("/".join(trail.objective), *entries, spread, whole))
    return TextTable(
        title=f"Reach of each setting, {block_text(block)}",
        head=("objective", *tuning.dimensions, "standard deviation of all", "lowest to highest"),
        rows=tuple(rows),
        note=f"In points of {tuning.metric}; in brackets where its mean is highest. --: the objective does not have "
        "the setting, or all its candidates have the same.",
    )


def budget_section(sweep: SweepRuns, folder: ReportFolder, figures: FigureWriter) -> Section | None:
    """The best validation score by the number of candidates; None before anything was chosen.

    Files: ``budget.csv``, ``tuning/BLOCK-budget.{png,pdf}``.
    """
    tuning = sweep.tuning
    if tuning is None:
        return None
    rows: list[dict[str, object]] = []
    links, tables = [], []
    for block in tuning.blocks:
        curves = {trail.objective: curve for trail in block.objectives if (curve := budget_curve(trail, tuning))}
        if not curves:
            continue
        own: dict[str, object] = {name: getattr(block, name) for name in ("dataset", "framework", "backbone")}
        for (pair, triplet), curve in curves.items():
            for n, (mean, low, high) in enumerate(zip(curve.mean, curve.low, curve.high, strict=True), start=1):
                numbers: dict[str, object] = {"candidates": n, "best": mean, "low": low, "high": high}
                rows.append(own | {"pair": pair, "triplet": triplet} | numbers)
        name, title = f"tuning/{_stem(block)}-budget", f"Best {tuning.metric} by budget, {block_text(block)}"
        links.append(linked_figure(folder, figures, name, title, draw_budget, title, tuning.metric, curves))
        tables.append(_budget_table(tuning, block, curves))
    folder.write("budget.csv", pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))
    return Section(
        anchor="budget",
        title="What a budget buys",
        paragraphs=(_budget_text(tuning),),
        figures=tuple(links),
        tables=tuple(tables),
    )


def _budget_text(tuning: Tuning) -> str:
    trails = [trail for block in tuning.blocks for trail in block.objectives]
    candidates = [one for trail in trails for one in trail.candidates]
    text = _TRAIL if tuning.search == "tpe" else _DODGE + (_GRID if tuning.search == "grid" else "")
    if tuning.search != "tpe" and any(trail.default for trail in trails):
        text += _FIRST
    if any(one.stopped for one in candidates):
        text += _STOPPED
    if any(one.score is None for one in candidates):
        text += _FAILED
    return text.strip()


def _budget_table(tuning: Tuning, block: TunedBlock, curves: Mapping[Objective, BudgetCurve]) -> TextTable:
    """The curve at 1, 2, 4, ... candidates, and at all of them."""
    longest = max(len(curve.mean) for curve in curves.values())
    budgets = sorted({2**power for power in range(longest.bit_length()) if 2**power <= longest} | {longest})
    rows = [("/".join(key), *(_at(curve, budget) for budget in budgets)) for key, curve in curves.items()]
    return TextTable(
        title=f"Best {tuning.metric} by candidates, {block_text(block)}",
        head=("objective", *map(str, budgets)),
        rows=tuple(rows),
        note="At the largest budget the expected best lies below the best that was found, because a draw may repeat a "
        "candidate."
        if tuning.search != "tpe"
        else "The best score so far.",
    )


def _at(curve: BudgetCurve, budget: int) -> str:
    return f"{curve.mean[budget - 1]:.1f}" if budget <= len(curve.mean) else "--"


def _has_score(trail: Trail) -> bool:
    return any(one.score is not None for one in trail.candidates)


def _stem(block: TunedBlock) -> str:
    return file_stem(block.dataset, block.framework, block.backbone)
