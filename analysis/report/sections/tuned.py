"""The section on the gains of a tuned sweep: the default against the tuned grid."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.figures.comparisons import Forest, draw_forest
from analysis.report.changes import JUDGED_NOTE, change_table
from analysis.report.finding import SURVIVES
from analysis.report.inputs import Inputs
from analysis.report.parts import Picture, Section, TextTable
from analysis.statistics.gains import Survival, gains_frame
from sweeps.results import DEFAULT, MAIN_METRICS, TUNED, measure_slug

_SURVIVAL_NOTE = (
    "Test split. Confirmed, reversed, undecided: of the pairs of objectives that the default grid tells apart by more "
    "than noise, those that the tuned grid tells apart in the same order, in the other, or not at all. The tuned grid "
    "counts the luck of random search: two halves of an objective's candidates are two searches, whose choices differ "
    "so much on val. The luck of TPE is not counted."
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
        columns, stem = ((DEFAULT, pair.default), (TUNED, pair.tuned)), pair.tuned.slug.removesuffix(f"-{TUNED}")
        for metric in MAIN_METRICS:
            title, label = f"{metric.title}, {pair.title}", f"tuned-{stem}-{metric.slug}"
            tables.append(change_table(title, columns, metric, [by_metric[metric]], label=label))
    return Section(
        anchor="tuned",
        title="Default against tuned",
        paragraphs=(JUDGED_NOTE,),
        figures=tuple(pictures),
        tables=tuple(tables),
        frames={"tuning": gains_frame(gained)},
    )


def survival_table(survivals: Sequence[Survival]) -> TextTable:
    """A row for each block and metric."""
    counts = ("apart", "confirmed", "reversed", "undecided")
    rows = [
        (
            *(own.pair.title, own.metric.title),
            *(str(getattr(own, name)) for name in counts),
        )
        for own in survivals
    ]
    head = ("block", "metric", "pairs told apart by default", *counts[1:])
    return TextTable(title=SURVIVES, head=head, rows=tuple(rows), words=2, note=_SURVIVAL_NOTE)
