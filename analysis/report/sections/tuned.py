"""The section on the gains of a tuned sweep: the default against the tuned grid."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.blocks import Objective
from analysis.figures.comparisons import Forest, draw_forest
from analysis.report.finding import survival_table
from analysis.report.inputs import Inputs
from analysis.report.parts import Picture, Section, TextTable
from analysis.statistics.gains import BlockPair, Gain, gains_frame
from analysis.wording import interval_text, p_text, signed
from sweeps.results import MAIN_METRICS, TUNED, Metric, measure_slug

_GAIN_HEAD = ("objective", "default", "tuned", "gain", "95 % interval", "spread", "p", "more than noise")
_VERDICTS = {"better": "yes, a gain", "worse": "yes, a loss", "level": "no", "unknown": "not judged: single runs"}
_GAIN_NOTE = (
    "Test recall, mean ± standard deviation (ddof = 1) over seeds. The gain is tuned minus default, of runs with the "
    "same seed; its spread is the standard deviation of these differences. Intervals and p are by the one rule of this "
    "report, corrected for the objectives of the block. Where the choice was the default, both are one training."
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
