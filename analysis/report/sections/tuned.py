"""The section on the gains of a tuned sweep: the default against the tuned grid."""

from __future__ import annotations

from goal_sweep.analysis.report.changes import JUDGED_NOTE, change_picture, change_table
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Picture, Section, TextTable
from goal_sweep.analysis.statistics.gains import gains_frame
from goal_sweep.sweeps.results import DEFAULT, MAIN_METRICS, TUNED, measure_slug

_LUCK_NOTE = (
    "Verdicts on the tuned grid also count the luck of random search, by how much the choices of two halves of an "
    "objective's candidates differ on val. The changes below do not; nor does any verdict after TPE."
)


def tuned_section(inputs: Inputs) -> Section | None:
    """The gain of each objective; None unless both grids have a number."""
    gained = inputs.gained
    if not gained:
        return None
    pictures, tables = list[Picture](), list[TextTable]()
    for measure in dict.fromkeys(metric.name for metric in MAIN_METRICS):
        stem, title = f"tuning/gains-{measure_slug(measure)}", f"Gains of tuning: {measure}"
        panels = [(pair.title, m, pair, g) for pair, own in gained.items() for m, g in own.items() if m.name == measure]
        pictures.append(change_picture(stem, title, "tuned minus default", panels))
    for pair, by_metric in gained.items():
        columns, stem = ((DEFAULT, pair.default), (TUNED, pair.tuned)), pair.tuned.slug.removesuffix(f"-{TUNED}")
        for metric in MAIN_METRICS:
            title, label = f"{metric.title}, {pair.title}", f"tuned-{stem}-{metric.slug}"
            tables.append(change_table(title, columns, metric, [by_metric[metric]], label=label))
    return Section(
        anchor="tuned",
        title="Default against tuned",
        paragraphs=(JUDGED_NOTE, _LUCK_NOTE),
        figures=tuple(pictures),
        tables=tuple(tables),
        frames={"tuning": gains_frame(gained)},
    )
