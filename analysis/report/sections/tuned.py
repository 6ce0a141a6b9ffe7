"""The sections of a tuned sweep: the default against the tuned grid, and what was chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analysis.blocks import BlockKey, Objective
from analysis.figures.forest import Forest, draw_forest
from analysis.report.finding import survival_table
from analysis.report.inputs import Inputs
from analysis.report.parts import Picture, Section, TextTable
from analysis.statistics.gains import BlockPair, Gain, gains_frame
from analysis.statistics.trails import EDGE, edge, is_log, is_number, position
from analysis.wording import file_stem, interval_text, list_text, p_text, signed
from sweeps.axes import AxisValue
from sweeps.results import MAIN_METRICS, TUNED, Metric, measure_slug
from sweeps.tuning import Dimension
from sweeps.tuning.trail import Trail

_GAIN_HEAD = ("objective", "default", "tuned", "gain", "95 % interval", "spread", "p", "more than noise")
_VERDICTS = {"better": "yes, a gain", "worse": "yes, a loss", "level": "no", "unknown": "not judged: single runs"}
_GAIN_NOTE = (
    "Test recall, mean ± standard deviation (ddof = 1) over seeds. The gain is tuned minus default, of runs with the "
    "same seed; its spread is the standard deviation of these differences. Intervals and p are by the one rule of this "
    "report, corrected for the objectives of the block. Where the choice was the default, both are one training."
)
_CHOICE_NOTE = (
    "In brackets the place in the range, from 0 % at its lower to 100 % at its upper end, on the scale that was "
    f"searched. Within {100 * EDGE:.0f} % of an end, or at the end of a list of three or more, it is on the edge. --: "
    "the objective does not have the setting. The score of the choice is the highest of several, so its gain flatters; "
    "the gain on test does not."
)


def tuned_section(inputs: Inputs) -> Section | None:
    """The gain of each objective; None unless both grids have a number."""
    gained = inputs.gained
    if not gained:
        return None
    pictures, tables = [], [survival_table(inputs.survivals)]
    for measure in dict.fromkeys(metric.name for metric in MAIN_METRICS):
        forests = [
            Forest(title=pair.title, metric=metric, differences={key: gain.difference for key, gain in own.items()})
            for pair, by_metric in gained.items()
            for metric, own in by_metric.items()
            if metric.name == measure
        ]
        picture = Picture(
            stem=f"tuning/gains-{measure_slug(measure)}",
            title=f"Gains of tuning: {measure}",
            draw=draw_forest,
            arguments=(forests, "tuned minus default"),
        )
        pictures.append(picture)
    for pair, by_metric in gained.items():
        tables += [_gain_table(pair, metric, by_metric[metric]) for metric in MAIN_METRICS]
    return Section(
        anchor="tuned",
        title="Default against tuned",
        paragraphs=(_GAIN_NOTE,),
        figures=tuple(pictures),
        tables=tuple(tables),
        frames={"tuning": gains_frame(gained)},
    )


def _stem(pair: BlockPair) -> str:
    return pair.tuned.slug.removesuffix(f"-{TUNED}")


def _gain_table(pair: BlockPair, metric: Metric, gains: Mapping[Objective, Gain]) -> TextTable:
    rows = [
        ("/".join(key), gain.default.text(), gain.tuned.text(), *_gain_numbers(gain)) for key, gain in gains.items()
    ]
    return TextTable(
        title=f"{metric.title}, {pair.title}",
        head=_GAIN_HEAD,
        rows=tuple(rows),
        label=f"tuned-{_stem(pair)}-{metric.slug}",
    )


def _gain_numbers(gain: Gain) -> tuple[str, ...]:
    change = gain.difference
    if gain.same:
        return "0", "--", "--", "--", "the default was chosen"
    if change is None:
        return "--", "--", "--", "--", "a grid has no number"
    spread = "--" if gain.spread is None else f"{gain.spread:.2f}"
    p = "--" if change.p is None else p_text(change.p)
    return signed(change.estimate, 2), interval_text(change.low, change.high, 2), spread, p, _VERDICTS[change.verdict]


def choices_section(inputs: Inputs) -> Section | None:
    """What was chosen for each objective and where it lies in its range; None before anything was chosen."""
    header = inputs.results.header
    if header.tune is None or not header.trails:
        return None
    searched = "; ".join(range_text(name, dimension) for name, dimension in header.dimensions.items())
    return Section(
        anchor="chosen",
        title="What was chosen, and where it lies in its range",
        warnings=tuple(_edge_warnings(inputs)),
        paragraphs=(*_trail_paragraphs(inputs), f"Searched: {searched}."),
        tables=tuple(_choice_table(inputs, key, trails) for key, trails in searched_models(inputs)),
    )


def searched_models(inputs: Inputs) -> Iterator[tuple[BlockKey, list[Trail]]]:
    """The trails of each model, with the key of one of its blocks."""
    keys = {block.key.backbone: block.key for block in inputs.blocks}
    for backbone, key in keys.items():
        if trails := [trail for trail in inputs.results.header.trails if trail.backbone == backbone]:
            yield key, trails


def model_stem(key: BlockKey) -> str:
    """A model's name in file names."""
    return file_stem(key.dataset, key.framework, key.backbone)


def range_text(name: str, dimension: Dimension) -> str:
    """A searched setting with its range: ``tau from 1 to 20, in powers``."""
    if dimension.domain.values:
        return f"{name} among {', '.join(map(_value_text, dimension.domain.values))}"
    low, high = map(_value_text, dimension.domain.bounds)
    return f"{name} from {low} to {high}{', in powers' if is_log(dimension) else ''}"


def _value_text(value: AxisValue) -> str:
    """A value with at most four digits."""
    return f"{value:.4g}" if is_number(value) else str(value)


def _choice_table(inputs: Inputs, key: BlockKey, trails: list[Trail]) -> TextTable:
    header, rows = inputs.results.header, []
    assert header.tune is not None
    for trail in trails:
        places = [_place_text(trail, name, dimension) for name, dimension in header.dimensions.items()]
        scores = [None if tried is None else tried.score for tried in (trail.default, trail.choice)]
        gain = "--" if scores[0] is None or scores[1] is None else signed(scores[1] - scores[0])
        scored = sum(candidate.score is not None for candidate in trail.candidates)
        which = "nothing" if trail.choice is None else "the default" if trail.choice.default else f"no. {trail.chosen}"
        texts = ["--" if score is None else f"{score:.1f}" for score in scores]
        rows.append(("/".join(trail.objective), which, *places, *texts, gain, str(scored)))
    metric = header.tune.metric
    head = ("objective", "chosen", *header.dimensions, f"{metric} of the default", f"{metric} of the choice")
    return TextTable(
        title=f"Chosen settings, {key.model_title}",
        head=(*head, "gain on val", "candidates with a score"),
        rows=tuple(rows),
        words=2 + len(header.dimensions),
        note=_CHOICE_NOTE,
        label=f"chosen-{model_stem(key)}",
    )


def _place_text(trail: Trail, name: str, dimension: Dimension) -> str:
    if trail.choice is None or name not in trail.names:
        return "--"
    value = trail.choice.values[name]
    at, where = position(dimension, value), edge(dimension, value)
    if at is None:
        return _value_text(value)
    words = ["" if "range" in where else f"{100 * at:.0f} %", where]
    return f"{_value_text(value)} ({', '.join(filter(None, words))})"


def _edge_warnings(inputs: Inputs) -> list[str]:
    """A sentence for each setting of which choices lie on an edge, with the objectives."""
    header, edges = inputs.results.header, dict[tuple[str, str], list[str]]()
    models = list(searched_models(inputs))
    for key, trails in models:
        of_model = "" if len(models) == 1 else f" of {key.model_title}"
        for trail in trails:
            for name in trail.names if trail.choice is not None else ():
                value = trail.choice.values[name] if trail.choice else None
                if value is not None and (where := edge(header.dimensions[name], value)):
                    text = f"{'/'.join(trail.objective)}{of_model} ({_value_text(value)})"
                    edges.setdefault((name, where), []).append(text)
    return [
        f"ON THE EDGE: the choice of {name} lies {f'on the {where} of its range' if 'edge' in where else where} for "
        f"{list_text(which)}. A better value may lie beyond; widen the range before you call it the optimum."
        for (name, where), which in edges.items()
    ]


def _trail_paragraphs(inputs: Inputs) -> list[str]:
    """What happened to the candidates, in sentences."""
    header = inputs.results.header
    assert header.tune is not None
    candidates = [candidate for trail in header.trails for candidate in trail.candidates]
    failed, stopped = sum(bool(one.failed) for one in candidates), sum(one.stopped for one in candidates)
    text = (
        f"{len(candidates)} candidates were trained, {sum(one.epochs for one in candidates)} epochs in all; {stopped} "
        f"were stopped early; {failed} failed and have no score."
    )
    few = [
        f"{'/'.join(trail.objective)} ({len(trail.candidates)})"
        for trail in header.trails
        if len(trail.candidates) < header.tune.budget
    ]
    return [
        text,
        *([f"Fewer than {header.tune.budget} different candidates exist for {list_text(few)}."] if few else []),
    ]
