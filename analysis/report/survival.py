"""Whether the ranking of the objectives survives tuning: the sentence on the first screen, and its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from analysis.report.inputs import Inputs
from analysis.report.parts import TextTable
from analysis.statistics.survival import Survival
from analysis.statistics.trails import progress_text
from analysis.wording import count_text, objectives_text
from sweeps.results import DIRECTION_TITLES, MEASURES

_WORDS = {
    "yes": "yes",
    "in part": "only in part",
    "not shown": "that is not shown",
    "no": "no, the order is rather the other way round",
    "cannot be judged": "that cannot be judged, because the default grid tells no two objectives apart, or has too few "
    "seeds",
}
QUESTION = "Does the ranking survive tuning?"
_NOTE = (
    "Test split, means over seeds. Kendall's τ is that of the objectives' means in both grids, 1 for the same order, "
    "0 for no relation; in brackets its 95 % interval by the noise of the trainings. By chance: the τ that noise alone "
    "would not exceed in 97.5 % of cases, were all objectives equal; it lies above 0, because both grids share seeds "
    "and the trainings whose choice was the default. Yes: τ lies above that, its interval above 0, the best objective "
    "is the same, and no pair that both grids tell apart is turned round. In part: the first two hold. No: τ lies "
    "below what chance gives, its interval below 0. Not shown: none of these. Cannot be judged: the default grid tells "
    "no two objectives apart, so it has no ranking, or there are fewer than three seeds."
)


def tuning_answer(inputs: Inputs) -> tuple[str, ...]:
    """Of a tuned sweep whether the ranking survives tuning, or how far it is; empty for others."""
    if inputs.results.is_searching:
        return (progress_text(inputs.results),)
    return tuple(said for measure in (MEASURES[0], MEASURES[-1]) if (said := survival_lead(inputs.survivals, measure)))


def _of_measure(survivals: Sequence[Survival], measure: str) -> list[Survival]:
    return [survival for survival in survivals if survival.metric.name == measure]


def survival_lead(survivals: Sequence[Survival], measure: str) -> str:
    """The answer for one measure over all blocks and directions; empty without both grids."""
    here = _of_measure(survivals, measure)
    if not here:
        return ""
    if len({survival.pair.default.slug for survival in here}) == 1:
        return f"{measure}. {QUESTION} {_sentences(here)}"
    verdicts = Counter(survival.verdict for survival in here)
    said = "; ".join(f"{name} in {number}" for name, number in verdicts.items())
    taus = [survival.tau for survival in here if survival.tau is not None]
    spread = f" Kendall's τ is {min(taus):.2f} to {max(taus):.2f}, in the middle {median(taus):.2f}." if taus else ""
    differ = sum(not survival.shared_winners for survival in here)
    return (
        f"{measure}. {QUESTION} {said} of {count_text(len(here), 'table')}. The grids name different winners in "
        f"{differ} of {len(here)}.{spread}"
    )


def _sentences(here: Sequence[Survival]) -> str:
    """The answers of one block; directions that say the same are named together."""
    same: dict[tuple[str, str], list[Survival]] = {}
    for survival in here:
        same.setdefault((survival.verdict, _winners_text(survival)), []).append(survival)
    said = []
    for (answer, winners), own in same.items():
        where = " and ".join(DIRECTION_TITLES[s.metric.direction] for s in own if s.metric.direction != "both")
        taus = " and ".join(_tau_text(survival).replace("(", "(95 %: ", 1) for survival in own)
        place = f"{where}: " if where and (len(same) > 1 or len(own) == 1) else ""
        both = f" in {'either direction' if answer == 'not shown' else 'both directions'}" if len(own) == 2 else ""
        zero = ", no more than noise may give" if answer == "not shown" else ""
        text = f"{place}{_WORDS[answer]}{both}; {winners}. Kendall’s τ {taus}{zero}."
        said.append(text[0].upper() + text[1:])
    return " ".join(said)


def _winners_text(survival: Survival) -> str:
    """Both winners, and whether they are the same."""
    default, tuned = survival.winners
    if survival.shared_winners:
        return f"best in both grids is {objectives_text(survival.shared_winners)}"
    near = survival.pair.tuned.grids[survival.metric.key].comparison.level
    level = ", which the tuned grid cannot tell apart" if any(key in near for key in default) else ""
    names = f"{objectives_text(default)} by default, {objectives_text(tuned)} tuned"
    return f"the grids name different winners: {names}{level}"


def _tau_text(survival: Survival) -> str:
    """``0.45 (0.31 to 0.58)``."""
    if survival.tau is None:
        return "undefined, for all means are equal"
    if survival.interval is None:
        return f"{survival.tau:.2f} without an interval"
    return f"{survival.tau:.2f} ({survival.interval[0]:.2f} to {survival.interval[1]:.2f})"


def survival_table(survivals: Sequence[Survival], measure: str) -> TextTable:
    """A row for each block and direction."""
    rows = [
        (
            survival.pair.title,
            survival.metric.title,
            survival.verdict,
            objectives_text(survival.winners[0]),
            objectives_text(survival.winners[1]) + ("" if survival.shared_winners else " (another)"),
            _tau_text(survival),
            "--" if survival.chance is None else f"{survival.chance[1]:.2f}",
            f"{survival.kept} of {survival.pairs}",
            str(survival.apart),
            f"{survival.confirmed} confirmed, {survival.reversed} reversed",
        )
        for survival in _of_measure(survivals, measure)
    ]
    head = (
        *("block", "metric", "survives", "best by default", "best tuned", "Kendall's τ (95 %)", "by chance"),
        *("pairs in the same order", "told apart by default", "of these, tuned"),
    )
    return TextTable(title=QUESTION, head=head, rows=tuple(rows), words=len(head), note=_NOTE)
