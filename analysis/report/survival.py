"""What tuning does to the order of the objectives: the sentence on the first screen, and its table."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.report.inputs import Inputs
from analysis.report.parts import TextTable
from analysis.statistics.survival import Survival
from analysis.statistics.trails import progress_text
from analysis.wording import count_text, objectives_text
from sweeps.results import DIRECTION_TITLES, MEASURES

QUESTION = "Does the order of the objectives survive tuning?"
_NOTE = (
    "Test split. Confirmed, reversed, undecided: of the pairs of objectives that the default grid tells apart by more "
    "than noise, those that the tuned grid tells apart in the same order, in the other, or not at all. Kendall's τ is "
    "that of the means of both grids: 1 for the same order, 0 for no relation."
)


def tuning_answer(inputs: Inputs) -> tuple[str, ...]:
    """Of a tuned sweep what tuning does to the order, or how far it is; empty for others."""
    if inputs.results.is_searching:
        return (progress_text(inputs.results),)
    return tuple(said for measure in (MEASURES[0], MEASURES[-1]) if (said := survival_lead(inputs.survivals, measure)))


def _of_measure(survivals: Sequence[Survival], measure: str) -> list[Survival]:
    return [survival for survival in survivals if survival.metric.name == measure]


def survival_lead(survivals: Sequence[Survival], measure: str) -> str:
    """The answer for one measure, a sentence for each direction of a lone block; empty without both grids."""
    here = _of_measure(survivals, measure)
    if not here:
        return ""
    if len({survival.pair.default.slug for survival in here}) > 1:
        differ = sum(not set(default) & set(tuned) for default, tuned in (survival.winners for survival in here))
        winners = f"The grids name different winners in {differ} of {count_text(len(here), 'table')}."
        return f"{measure}. {QUESTION} {_counts(here)} {winners}"
    said = []
    for survival in here:
        where = "" if survival.metric.direction == "both" else f"{DIRECTION_TITLES[survival.metric.direction]}: "
        default, tuned = map(objectives_text, survival.winners)
        best = f"{default} in both grids" if default == tuned else f"{default} by default, {tuned} tuned"
        said.append(f"{where}{_counts([survival])[:-1]}; best: {best}.")
    return f"{measure}. {QUESTION} {' '.join(said)}"


def _counts(here: Sequence[Survival]) -> str:
    """For example "Of 71 pairs told apart by default, the tuned grid confirms 25, reverses 5 and leaves 41 open."."""
    apart, confirmed, turned, undecided = (
        sum(getattr(survival, name) for survival in here) for name in ("apart", "confirmed", "reversed", "undecided")
    )
    if not apart:
        return "The default grid tells no two objectives apart."
    return (
        f"Of {count_text(apart, 'pair')} told apart by default, the tuned grid confirms {confirmed}, reverses {turned} "
        f"and leaves {undecided} undecided."
    )


def survival_table(survivals: Sequence[Survival], measure: str) -> TextTable:
    """A row for each block and direction."""
    rows = [
        (
            survival.pair.title,
            survival.metric.title,
            *map(objectives_text, survival.winners),
            *(str(getattr(survival, name)) for name in ("apart", "confirmed", "reversed", "undecided")),
            "--" if survival.tau is None else f"{survival.tau:.2f}",
        )
        for survival in _of_measure(survivals, measure)
    ]
    head = (
        *("block", "metric", "best by default", "best tuned"),
        *("pairs told apart by default", "confirmed", "reversed", "undecided", "Kendall's τ"),
    )
    return TextTable(title=QUESTION, head=head, rows=tuple(rows), words=4, note=_NOTE)
