"""Whether the ranking of the objectives survives tuning: the sentence on the first screen, and its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from analysis.blocks import count_text
from analysis.report.answer import names
from analysis.report.tables import TextTable
from analysis.run_schema import DIRECTION_TITLES
from analysis.statistics import Survival

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
_MIN_SEEDS = 3


def of_measure(found: Sequence[Survival], measure: str) -> list[Survival]:
    """Those of one measure, in both directions."""
    return [one for one in found if one.metric.name == measure]


def verdict(one: Survival) -> str:
    """``yes``, ``in part``, ``not shown``, ``no`` or ``cannot be judged``."""
    ends = (one.low, one.high, one.chance_low, one.chance_high)
    if one.tau is None or None in ends or not one.apart or one.seeds < _MIN_SEEDS:
        return "cannot be judged"
    low, high, chance_low, chance_high = (end or 0.0 for end in ends)
    if high < 0 and one.tau < chance_low:
        return "no"
    if low <= 0 or one.tau <= chance_high:
        return "not shown"
    return "yes" if one.same_winner and not one.reversed else "in part"


def winners_text(one: Survival) -> str:
    """Both winners, and whether they are the same."""
    default, tuned = one.winners
    if one.same_winner:
        return f"best in both grids is {names(key for key in default if key in tuned)}"
    near = one.pair.tuned.grids[one.metric.key].near
    level = ", which the tuned grid cannot tell apart" if any(key in near for key in default) else ""
    return f"the grids name different winners: {names(default)} by default, {names(tuned)} tuned{level}"


def tau_text(one: Survival) -> str:
    """``0.45 (0.31 to 0.58)``."""
    if one.tau is None:
        return "undefined, for all means are equal"
    if one.low is None or one.high is None:
        return f"{one.tau:.2f} without an interval"
    return f"{one.tau:.2f} ({one.low:.2f} to {one.high:.2f})"


def survival_lead(found: Sequence[Survival], measure: str) -> str:
    """The answer for one measure over all blocks and directions; empty without both grids."""
    here = of_measure(found, measure)
    if not here:
        return ""
    if len({one.pair.default.slug for one in here}) == 1:
        return f"{measure}. {QUESTION} {_sentences(here)}"
    verdicts = Counter(map(verdict, here))
    said = "; ".join(f"{name} in {number}" for name, number in verdicts.items())
    taus = [one.tau for one in here if one.tau is not None]
    spread = f" Kendall's τ is {min(taus):.2f} to {max(taus):.2f}, in the middle {median(taus):.2f}." if taus else ""
    differ = sum(not one.same_winner for one in here)
    return (
        f"{measure}. {QUESTION} {said} of {count_text(len(here), 'table')}. The grids name different winners in "
        f"{differ} of {len(here)}.{spread}"
    )


def _sentences(here: Sequence[Survival]) -> str:
    """The answers of one block; directions that say the same are named together."""
    same: dict[tuple[str, str], list[Survival]] = {}
    for one in here:
        same.setdefault((verdict(one), winners_text(one)), []).append(one)
    said = []
    for (answer, winners), ones in same.items():
        where = " and ".join(DIRECTION_TITLES[one.metric.direction] for one in ones if one.metric.direction != "both")
        taus = " and ".join(tau_text(one).replace("(", "(95 %: ", 1) for one in ones)
        place = f"{where}: " if where and (len(same) > 1 or len(ones) == 1) else ""
        both = f" in {'either direction' if answer == 'not shown' else 'both directions'}" if len(ones) == 2 else ""
        zero = ", no more than noise may give" if answer == "not shown" else ""
        text = f"{place}{_WORDS[answer]}{both}; {winners}. Kendall’s τ {taus}{zero}."
        said.append(text[0].upper() + text[1:])
    return " ".join(said)


def survival_table(found: Sequence[Survival], measure: str) -> TextTable:
    """A row for each block and direction."""
    rows = [
        (
            one.pair.title,
            one.metric.title,
            verdict(one),
            names(one.winners[0]),
            names(one.winners[1]) + ("" if one.same_winner else " (another)"),
            tau_text(one),
            "--" if one.chance_high is None else f"{one.chance_high:.2f}",
            f"{one.kept} of {one.pairs}",
            str(one.apart),
            f"{one.confirmed} confirmed, {one.reversed} reversed",
        )
        for one in of_measure(found, measure)
    ]
    head = (
        *("block", "metric", "survives", "best by default", "best tuned", "Kendall's τ (95 %)", "by chance"),
        *("pairs in the same order", "told apart by default", "of these, tuned"),
    )
    return TextTable(title=QUESTION, head=head, rows=tuple(rows), words=len(head), note=_NOTE)
