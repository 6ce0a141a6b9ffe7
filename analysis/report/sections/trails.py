"""The sections on the trails of a tuned sweep: the scores by setting, and what a budget buys."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.figures.lines import draw_budget
from analysis.figures.tuning import draw_scores
from analysis.report.inputs import Inputs
from analysis.report.parts import Picture, Section
from analysis.report.sections.tuned import model_stem, searched_models
from analysis.statistics.trails import budget_curve, candidates_frame
from analysis.wording import file_stem
from sweeps.results import Header

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


def scores_section(inputs: Inputs) -> Section | None:
    """The score of every candidate by each setting; None before anything was chosen."""
    header = inputs.results.header
    if header.tune is None or not header.trails:
        return None
    pictures = []
    for key, trails in searched_models(inputs):
        for name, dimension in header.dimensions.items():
            known = [trail for trail in trails if name in trail.names and any(one.score for one in trail.candidates)]
            if known:
                title = f"{header.tune.metric} by {name}, {key.model_title}"
                pictures.append(
                    Picture(
                        stem=f"tuning/{file_stem(model_stem(key), 'by', name)}",
                        title=f"Candidates: {title}",
                        draw=draw_scores,
                        arguments=(title, header.tune.metric, name, dimension, known),
                    )
                )
    return Section(
        anchor="scores",
        title="Scores by setting",
        paragraphs=("Scores of validation by the value of one setting, while the others vary too.",),
        figures=tuple(pictures),
        frames={"candidates": candidates_frame(inputs.results)},
    )


def budget_section(inputs: Inputs) -> Section | None:
    """The best validation score by the number of candidates; None before anything was chosen."""
    header = inputs.results.header
    if header.tune is None or not header.trails:
        return None
    rows: list[dict[str, Any]] = []
    pictures = []
    for key, trails in searched_models(inputs):
        curves = {trail.objective: curve for trail in trails if (curve := budget_curve(trail, header.tune.search))}
        if not curves:
            continue
        own = {name: getattr(key, name) for name in ("dataset", "framework", "backbone")}
        for (pair, triplet), curve in curves.items():
            for n, (mean, low, high) in enumerate(zip(curve.mean, curve.low, curve.high, strict=True), start=1):
                place = {"pair": pair, "triplet": triplet, "candidates": n}
                rows.append(own | place | {"best": mean, "low": low, "high": high})
        title = f"Best {header.tune.metric} by budget, {key.model_title}"
        arguments, stem = (title, header.tune.metric, curves), f"tuning/{model_stem(key)}-budget"
        pictures.append(Picture(stem=stem, title=title, draw=draw_budget, arguments=arguments))
    return Section(
        anchor="budget",
        title="What a budget buys",
        paragraphs=(_budget_text(header),),
        figures=tuple(pictures),
        frames={"budget": pd.DataFrame(rows)},
    )


def _budget_text(header: Header) -> str:
    search = "" if header.tune is None else header.tune.search
    candidates = [candidate for trail in header.trails for candidate in trail.candidates]
    sentences = {
        _TRAIL: search == "tpe",
        _DODGE: search != "tpe",
        _GRID: search == "grid",
        _FIRST: search != "tpe" and any(candidate.default for candidate in candidates),
        _STOPPED: any(candidate.stopped for candidate in candidates),
        _FAILED: any(candidate.score is None for candidate in candidates),
    }
    return "".join(sentence for sentence, holds in sentences.items() if holds).strip()
