"""The section on the search of a tuned sweep: what was tried and chosen."""

from __future__ import annotations

from math import inf

from goal_sweep.analysis.blocks import BlockKey
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Section, TextTable
from goal_sweep.analysis.statistics.trails import (
    EDGE,
    candidates_frame,
    edge,
    is_log,
    is_number,
    num_combinations,
    position,
    values_tried,
)
from goal_sweep.analysis.wording import count_text, file_stem, list_text, signed
from goal_sweep.sweeps.axes import AxisValue
from goal_sweep.sweeps.results import Header
from goal_sweep.sweeps.tuning import Dimension
from goal_sweep.sweeps.tuning.trail import Trail

_CHOICE_NOTE = (
    "In brackets the place in the range, from 0 % at its lower to 100 % at its upper end, on the scale that was "
    f"searched. Within {100 * EDGE:.0f} % of an end, or at the end of a list of three or more, it is on the edge. --: "
    "the objective does not have the setting. Space: the settings that it has; as many values of each as its "
    "candidates amount to (their number, to the power of one over the settings); and, where all are lists, how many "
    "different candidates they make. The score of the choice is the highest of several, so its gain flatters; the "
    "gain on test does not."
)


def search_section(inputs: Inputs) -> Section | None:
    """The candidates of each model; None before anything was chosen."""
    header = inputs.results.header
    if header.tune is None or not header.trails:
        return None
    keys = {block.key.backbone: block.key for block in inputs.blocks}
    trails = {backbone: [trail for trail in header.trails if trail.backbone == backbone] for backbone in keys}
    searched = "; ".join(_range_text(name, dimension) for name, dimension in header.dimensions.items())
    return Section(
        anchor="search",
        title="What was tried and chosen",
        warnings=tuple(_edge_warnings(header)),
        paragraphs=(*_trail_paragraphs(header), f"Searched: {searched}."),
        tables=tuple(_choice_table(header, keys[backbone], own) for backbone, own in trails.items() if own),
        frames={"candidates": candidates_frame(inputs.results)},
    )


def _range_text(name: str, dimension: Dimension) -> str:
    """A searched setting with its range: ``tau from 1 to 20, in powers``."""
    if dimension.domain.choice:
        return f"{name} among {', '.join(map(_value_text, dimension.domain.choice))}"
    low, high = map(_value_text, dimension.domain.bounds)
    return f"{name} from {low} to {high}{', in powers' if is_log(dimension) else ''}"


def _value_text(value: AxisValue) -> str:
    """A value with at most four digits."""
    return f"{value:.4g}" if is_number(value) else str(value)


def _choice_table(header: Header, key: BlockKey, trails: list[Trail]) -> TextTable:
    rows = []
    assert header.tune is not None
    for trail in trails:
        places = [_place_text(trail, name, dimension) for name, dimension in header.dimensions.items()]
        scores = [None if tried is None else tried.score for tried in (trail.default, trail.choice)]
        gain = "--" if scores[0] is None or scores[1] is None else signed(scores[1] - scores[0])
        scored = sum(candidate.score is not None for candidate in trail.candidates)
        which = "nothing" if trail.choice is None else "the default" if trail.choice.default else f"no. {trail.chosen}"
        texts = ["--" if score is None else f"{score:.1f}" for score in scores]
        rows.append(("/".join(trail.objective), which, *places, *texts, gain, str(scored), _space_text(header, trail)))
    metric = header.tune.metric
    head = ("objective", "chosen", *header.dimensions, f"{metric} of the default", f"{metric} of the choice")
    return TextTable(
        title=f"Chosen settings, {key.model_title}",
        head=(*head, "gain on val", "candidates with a score", "space"),
        rows=tuple(rows),
        words=2 + len(header.dimensions),
        note=_CHOICE_NOTE,
        label=f"chosen-{file_stem(key.dataset, key.framework, key.backbone)}",
    )


def _space_text(header: Header, trail: Trail) -> str:
    """What an objective's candidates are of: ``2 settings, 4.0 values each``, and ``of 15`` where both are lists."""
    count = num_combinations(header, trail)
    sizes = f"{count_text(len(trail.names), 'setting')}, {values_tried(header, trail):.1f} values each"
    return sizes if count == inf else f"{sizes}, of {count:.0f}"


def _place_text(trail: Trail, name: str, dimension: Dimension) -> str:
    if trail.choice is None or name not in trail.names:
        return "--"
    value = trail.choice.values[name]
    at, where = position(dimension, value), edge(dimension, value)
    if at is None:
        return _value_text(value)
    words = ["" if "range" in where else f"{100 * at:.0f} %", where]
    return f"{_value_text(value)} ({', '.join(filter(None, words))})"


def _edge_warnings(header: Header) -> list[str]:
    """A sentence for each setting of which choices lie on an edge, with the objectives."""
    edges: dict[tuple[str, str], list[str]] = {}
    several = len({trail.backbone for trail in header.trails}) > 1
    for trail in header.trails:
        for name, value in () if trail.choice is None else trail.choice.values.items():
            if where := edge(header.dimensions[name], value):
                text = f"{'/'.join(trail.objective)}{f' of {trail.backbone}' if several else ''} ({_value_text(value)})"
                edges.setdefault((name, where), []).append(text)
    return [
        f"ON THE EDGE: the choice of {name} lies {f'on the {where} of its range' if 'edge' in where else where} for "
        f"{list_text(which)}. A better value may lie beyond; widen the range before you call it the optimum."
        for (name, where), which in edges.items()
    ]


def _trail_paragraphs(header: Header) -> list[str]:
    """What happened to the candidates, in sentences."""
    assert header.tune is not None
    candidates = [candidate for trail in header.trails for candidate in trail.candidates]
    failed = sum(bool(one.failed) for one in candidates)
    text = f"{len(candidates)} candidates were trained; {failed} failed and have no score."
    few = [
        f"{'/'.join(trail.objective)} ({len(trail.candidates)})"
        for trail in header.trails
        if len(trail.candidates) < header.tune.budget
    ]
    return [
        text,
        *([f"Fewer than {header.tune.budget} different candidates exist for {list_text(few)}."] if few else []),
    ]
