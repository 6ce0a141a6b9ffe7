"""The sections on several blocks: stages, values of an axis, both grids of a search, what it tried, and the paper."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, product
from math import log
from statistics import fmean
from typing import Final

from typing_extensions import TypeIs

from goal_sweep.analysis.blocks import BlockKey, BlockResults, CellSummary, Objective
from goal_sweep.analysis.published import comparison
from goal_sweep.analysis.report.answer import answer_table, answers_of
from goal_sweep.analysis.report.parts import Section, TextTable
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import Inputs, same_but_grid
from goal_sweep.analysis.wording import configuration_values, list_text, objectives_text, p_equation, signed
from goal_sweep.goal_core.evaluation.metrics import MAIN_METRICS, Metric
from goal_sweep.goal_core.objectives.variants import objective_name
from goal_sweep.sweeps.axes import ANY, AxisValue, value_text
from goal_sweep.sweeps.results import DEFAULT, TUNED, Header
from goal_sweep.sweeps.tuning import Domain, Study

_NOTE = "Mean ± standard deviation over seeds (ddof = 1), and the change from the first column in points, not tested."
_AXES_NOTE = (
    "Each table varies one setting and holds the others at their first value. A value chosen by these numbers is "
    "chosen on the test split: choose by val (val/rsum in runs.csv), and report its test numbers."
)
_NONE = CellSummary(mean=None, std=None, n=0)
"""Where a block does not have the objective."""
Column = tuple[str, BlockResults]
"""A block and what it is called."""


def change_table(
    title: str, columns: Sequence[Column], metric: Metric, without: Collection[Objective] = (), note: str = ""
) -> TextTable:
    """A row for each objective: its mean in each block and, from the second on, the change from the first."""
    blocks = [block for _, block in columns]
    rows = []
    names = dict.fromkeys(name for block in blocks for name, cell in block.cells.items() if cell.requested)
    for name in (name for name in names if name not in without):
        first, *others = (block.grids[metric.key].cells.get(name, _NONE) for block in blocks)
        rows.append((objective_name(*name), first.text(), *(text for cell in others for text in _change(first, cell))))
    head = ("objective", columns[0][0], *(word for name, _ in columns[1:] for word in (name, "change")))
    return TextTable(title=title, head=head, rows=tuple(rows), note=note)


def _change(first: CellSummary, cell: CellSummary) -> tuple[str, str]:
    return cell.text(), "--" if first.mean is None or cell.mean is None else signed(cell.mean - first.mean)


def stages_section(inputs: Inputs) -> Section | None:
    """The stages of each model side by side; None where each has one with a number."""
    groups: dict[BlockKey, list[BlockResults]] = {}
    for block in (block for block in inputs.first if not block.is_empty):
        groups.setdefault(replace(block.key, stage="", configuration=""), []).append(block)
    tables = [
        change_table(f"{metric.title}, {blocks[0].key.model_title}", [(b.key.stage, b) for b in blocks], metric)
        for blocks in groups.values()
        for metric in MAIN_METRICS
        if len(blocks) > 1
    ]
    title = "Stages side by side"
    return Section(anchor="stages", title=title, paragraphs=(_NOTE,), tables=tuple(tables)) if tables else None


def ablation_section(inputs: Inputs) -> Section | None:
    """A table for each axis and main metric; None for a sweep without axes or without a result."""
    header, blocks = inputs.results.header, {block.key: block for block in inputs.blocks}
    firsts = [key for key in blocks if header.axes and key.configuration == header.configurations[key.stage][0]]
    along = [
        (name, {value: blocks[_at(key, name, value)] for value in map(value_text, axis.values)})
        for key in firsts
        for name, axis in header.axes_of(key.stage).items()
    ]
    found = [(name, own) for name, own in along if not all(block.is_empty for block in own.values())]
    if not found:
        return None
    best = answer_table(answers_of(block for block in inputs.blocks if not block.key.grid), "R@1")
    tables = [table for axis, own in found for table in _ablation_tables(inputs.results, axis, own) if table.rows]
    return Section(
        anchor="ablation",
        title="Ablations: one setting at a time",
        paragraphs=(_AXES_NOTE, _NOTE),
        tables=(replace(best, title="The highest mean at each configuration: R@1"), *tables),
    )


def _at(key: BlockKey, name: str, value: str) -> BlockKey:
    """The key of the block with another value of one axis."""
    values = configuration_values(key.configuration) | {name: value}
    configuration = " ".join(f"{axis} {at}" for axis, at in values.items())
    return replace(key, configuration=configuration, variant=values.get("variant", key.variant))


def _ablation_tables(results: SweepResults, axis: str, along: Mapping[str, BlockResults]) -> list[TextTable]:
    """The blocks of an axis's values in one model and stage, by each main metric; other axes have their first value."""
    first = next(iter(along.values()))
    runs = results.runs[results.runs["stage"] == first.key.stage]
    places = zip(runs["pair"], runs["triplet"], runs["configuration"], strict=True)
    # Those of an objective that does not depend on the axis are the same trainings at every value.
    untouched = {(pair, triplet) for pair, triplet, place in places if configuration_values(place).get(axis) == ANY}
    values = configuration_values(first.key.configuration)
    others = " ".join(f"{name} {value}" for name, value in values.items() if name != axis)
    same = objectives_text(name for name in first.cells if name in untouched)
    held = f"Held fixed: {others}. " if others else ""
    without = f"{same} {'do' if ',' in same else 'does'} not depend on {axis}." if same else ""
    variant = "paper" if axis == "variant" else first.key.variant
    title = f"{axis}, {replace(first.key, configuration='', variant=variant).title}"
    columns, note = [(f"{axis} {value}", block) for value, block in along.items()], f"{held}{without}".strip()
    return [change_table(f"{m.title} by {title}", columns, m, untouched, note) for m in MAIN_METRICS]


def tuned_section(inputs: Inputs) -> Section | None:
    """Each objective in the default and in the tuned grid; None unless both grids of a block have a number."""
    blocks = [block for block in inputs.answered if not block.is_empty]
    tables: list[TextTable] = []
    for default, tuned in product(blocks, repeat=2):
        if (default.key.grid, tuned.key.grid) == (DEFAULT, TUNED) and same_but_grid(default.key, tuned.key):
            title, both = default.key.title.removesuffix(f", {DEFAULT} grid"), ((DEFAULT, default), (TUNED, tuned))
            tables += [change_table(f"{metric.title}, {title}", both, metric) for metric in MAIN_METRICS]
    title = "Default against tuned"
    return Section(anchor="tuned", title=title, paragraphs=(_NOTE,), tables=tuple(tables)) if tables else None


_NOTHING = "The paper has no finished block of this sweep, so only the order of the objectives is compared."
_VERDICTS = ("equal", "not significant", "higher", "lower", "not tested")
_CELL_NOTE = (
    "Equal: as printed. Else Welch's t-test on means and deviations decides at 5 %, with Holm's correction for the "
    "cells of the grid. It is for other seeds alone and not paired: the paper prints no single run of its "
    f"{comparison.NUM_RUNS}."
)
_ORDER_NOTE = (
    "Orders: Spearman's rank correlation of this sweep's means with each printed grid, and their mean. No test is "
    "made: another dataset, model or number of epochs may give another order."
)


def published_section(inputs: Inputs) -> Section:
    """A sweep compared with the paper."""
    printed = comparison.published_blocks()
    alike = (block for block in inputs.answered if block.key.grid != TUNED)  # whose objectives have the same settings
    comparisons = comparison.compare_blocks(alike, printed)
    models = groupby(inputs.blocks, key=lambda block: replace(block.key, configuration="", variant="paper", grid=""))
    tables = [_order_table(key, list(configurations), printed) for key, configurations in models]
    orders = [table for table in tables if table.rows]
    said = [_ORDER_NOTE] if orders else []
    if comparisons:
        said.append(f"Of {sum(map(len, comparisons.values()))} cells {_counts(comparisons.values())}. {_CELL_NOTE}")
    return Section(
        anchor="published",
        title="Compared with the published numbers",
        warnings=() if comparisons else (_NOTHING,),
        paragraphs=tuple(said),
        tables=(*orders, *(_comparison_table(*place, cells) for place, cells in comparisons.items())),
    )


def _counts(comparisons: Iterable[comparison.CellComparisons]) -> str:
    """For example "3 equal, 11 not significant, 1 higher"."""
    found = [cell.verdict for own in comparisons for cell in own.values()]
    return ", ".join(f"{found.count(verdict)} {verdict}" for verdict in _VERDICTS if verdict in found)


def _comparison_table(key: BlockKey, metric: Metric, cells: comparison.CellComparisons) -> TextTable:
    rows = [
        (objective_name(*name), one.theirs.text(), one.ours.text(), signed(one.change), p_equation(one.p), one.verdict)
        for name, one in cells.items()
    ]
    mean = fmean(cell.change for cell in cells.values())
    return TextTable(
        title=f"{key.title}: {metric.title}",
        head=("objective", "paper", "this sweep", "change", "p", "verdict"),
        rows=tuple(rows),
        note=f"{_counts([cells])}; mean change {signed(mean)}.",
    )


def _order_table(model: BlockKey, configurations: Sequence[BlockResults], printed: Sequence[BlockResults]) -> TextTable:
    """The rank correlations of a model's configurations with the printed grids, the nearest to the paper first."""
    found = [(block, order) for block in configurations if (order := comparison.order_agreement(block, printed))]
    found.sort(key=lambda own: -fmean(own[1].values()))
    rows = [("mean", *(f"{fmean(order.values()):+z.2f}" for _, order in found))] if found else []
    for key, metric in found[0][1] if found else ():
        rows.append((f"{key.title}: {metric.title}", *(f"{order[key, metric]:+z.2f}" for _, order in found)))
    return TextTable(
        title=f"Order of the objectives as in the paper: {model.title}",
        head=("printed grid", *(_label(block.key) for block, _ in found)),
        rows=tuple(rows),
    )


def _label(key: BlockKey) -> str:
    return ", ".join(filter(None, (key.configuration, f"{key.grid} grid" if key.grid else ""))) or "this sweep"


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
    return f"{value:.4g}" if _is_number(value) else str(value)


def _choice_table(header: Header, key: BlockKey, studies: list[Study]) -> TextTable:
    rows = []
    for study in studies:
        values = {} if study.choice is None else study.choice.values
        chosen = [_value_text(values[name]) if name in values else "--" for name in header.dimensions]
        default = next((candidate for candidate in study.candidates if candidate.default), None)
        scores = [None if tried is None else tried.score for tried in (default, study.choice)]
        gain = "--" if scores[0] is None or scores[1] is None else signed(scores[1] - scores[0])
        scored = sum(candidate.score is not None for candidate in study.candidates)
        which = "nothing" if study.choice is None else "the default" if study.choice.default else f"no. {study.chosen}"
        texts = ["--" if score is None else f"{score:.1f}" for score in scores]
        rows.append((objective_name(*study.objective), which, *chosen, *texts, gain, str(scored)))
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
