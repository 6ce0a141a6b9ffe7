"""The section on the search of a tuned sweep: what was tried and chosen."""

from __future__ import annotations

from math import log
from typing import Final

from typing_extensions import TypeIs

from goal_sweep.analysis.blocks import BlockKey
from goal_sweep.analysis.report.parts import Section, TextTable
from goal_sweep.analysis.statistics.aggregation import Inputs
from goal_sweep.analysis.wording import list_text, signed
from goal_sweep.sweeps.axes import AxisValue
from goal_sweep.sweeps.results import Header
from goal_sweep.sweeps.tuning import Domain, Study

_EDGE: Final = 0.05
"""The share of a range, at either end, in which a choice is said to lie on its edge."""
_CHOICE_NOTE = (
    "--: the objective does not have the setting. The score of the choice is the highest of several, so its gain on "
    "val flatters; the gain on test does not. Objectives with more settings search their space more thinly."
)


def search_section(inputs: Inputs) -> Section | None:
    """The candidates of each model; None before anything was chosen."""
    header = inputs.results.header
    if header.tune is None or not header.studies:
        return None
    keys = {block.key.backbone: block.key for block in inputs.blocks}
    studies = {backbone: [study for study in header.studies if study.backbone == backbone] for backbone in keys}
    candidates = [candidate for study in header.studies for candidate in study.candidates]
    failed = sum(bool(one.failed) for one in candidates)
    searched = "; ".join(f"{name} {_domain_text(own.domain)}" for name, own in header.dimensions.items())
    said = f"{len(candidates)} candidates were trained; {failed} failed and have no score. Searched: {searched}."
    return Section(
        anchor="search",
        title="What was tried and chosen",
        warnings=tuple(_edge_warnings(header)),
        paragraphs=(said,),
        tables=tuple(_choice_table(header, keys[backbone], own) for backbone, own in studies.items() if own),
    )


def edge(domain: Domain, value: AxisValue) -> str:
    """Where a choice lies on the edge of its range, on the scale that was searched, or outside; else empty.

    A value of a list lies on the edge if it is the lowest or the highest of at least three numbers.
    """
    listed = [one for one in domain.choice if _is_number(one)]
    if not _is_number(value) or len(listed) < len(domain.choice) or 0 < len(listed) < 3:
        return ""
    low, high = (min(listed), max(listed)) if listed else domain.bounds
    if not low <= value <= high:
        return "below the range" if value < low else "above the range"
    if domain.kind == "loguniform":
        low, high, value = log(low), log(high), log(value)
    share = (value - low) / (high - low)
    near = 0.0 if listed else _EDGE
    return "on the lower edge" if share <= near else "on the upper edge" if share >= 1 - near else ""


def _is_number(value: AxisValue) -> TypeIs[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _domain_text(domain: Domain) -> str:
    """A range: ``from 1 to 20, in powers``, or ``among 0.1, 0.2``."""
    if domain.choice:
        return f"among {', '.join(map(_value_text, domain.choice))}"
    low, high = map(_value_text, domain.bounds)
    return f"from {low} to {high}{', in powers' if domain.kind == 'loguniform' else ''}"


def _value_text(value: AxisValue) -> str:
    """A value with at most four digits."""
    return f"{value:.4g}" if _is_number(value) else str(value)


def _choice_table(header: Header, key: BlockKey, studies: list[Study]) -> TextTable:
    rows = []
    for study in studies:
        values = {} if study.choice is None else study.choice.values
        chosen = [_value_text(values[name]) if name in values else "--" for name in header.dimensions]
        scores = [None if tried is None else tried.score for tried in (study.default, study.choice)]
        gain = "--" if scores[0] is None or scores[1] is None else signed(scores[1] - scores[0])
        scored = sum(candidate.score is not None for candidate in study.candidates)
        which = "nothing" if study.choice is None else "the default" if study.choice.default else f"no. {study.chosen}"
        texts = ["--" if score is None else f"{score:.1f}" for score in scores]
        rows.append(("/".join(study.objective), which, *chosen, *texts, gain, str(scored)))
    metric = "" if header.tune is None else header.tune.metric
    head = ("objective", "chosen", *header.dimensions, f"{metric} of the default", f"{metric} of the choice")
    return TextTable(
        title=f"Chosen settings, {key.model_title}",
        head=(*head, "gain on val", "candidates with a score"),
        rows=tuple(rows),
        words=2 + len(header.dimensions),
        note=_CHOICE_NOTE,
    )


def _edge_warnings(header: Header) -> list[str]:
    """A sentence for each setting of which choices lie on an edge, with the objectives."""
    edges: dict[tuple[str, str], list[str]] = {}
    several = len({study.backbone for study in header.studies}) > 1
    for study in header.studies:
        for name, value in () if study.choice is None else study.choice.values.items():
            if where := edge(header.dimensions[name].domain, value):
                text = f"{'/'.join(study.objective)}{f' of {study.backbone}' if several else ''} ({_value_text(value)})"
                edges.setdefault((name, where), []).append(text)
    return [
        f"ON THE EDGE: the choice of {name} lies {where} for {list_text(which)}. A better value may lie beyond; widen "
        "the range before you call it the optimum."
        for (name, where), which in edges.items()
    ]
