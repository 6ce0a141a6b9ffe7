"""What a sweep says in three lines, by the sum of all recalls: what to use, what beats the triplet loss, what to avoid.

Their numbers are those of the report's tables, and "beyond noise" is the report's "significantly".
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from goal_sweep.analysis.report.answer import Answer, answers_of, weight_changes
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import Inputs
from goal_sweep.analysis.wording import list_text, objectives_text
from goal_sweep.goal_core.evaluation.metrics import RSUM
from goal_sweep.goal_core.objectives.variants import LITERATURE
from goal_sweep.sweeps.results import BASELINE, TUNED

_LOSS = "con/con (the triplet loss)"
_MOST = 2
"""Names of a line; others are counted."""


def verdict(inputs: Inputs) -> tuple[str, ...]:
    """At most three lines; none before something is finished. A tuned sweep's are about the tuned grid.

    Where a sweep has several tables, such as one for each backbone, each line says in how many it holds.
    """
    answers = [one for one in answers_of(inputs.answered) if one.metric == RSUM and _is_main(inputs.results, one)]
    if not answers:
        return ()
    first = _use(answers[0]) if len(answers) == 1 else _use_in(answers)
    return tuple(filter(None, (first, _beats(answers), _avoid(answers))))


def known_names(names: Iterable[tuple[str, str]]) -> str:
    """What the literature calls some of the objectives, such as "con/con: triplet loss; con/nca: NT-Xent loss"."""
    return "; ".join(f"{name}: {LITERATURE[name]}" for name in map("/".join, names) if name in LITERATURE)


def _is_main(results: SweepResults, answer: Answer) -> bool:
    return results.main_grid != TUNED or answer.block.key.grid == TUNED


def _use(answer: Answer) -> str:
    top, near = answer.top, [key for key in answer.others if key in answer.grid.comparison.near]
    what = f"Use {_counted(top, 'equal objectives')}: highest mean rsum, {answer.mean}"
    if not answer.grid.comparison.is_tested:
        return f"{what}. Nothing is tested: add seeds."
    if not near:
        return f"{what}; all others are lower beyond noise." if answer.others else f"{what}."
    return f"{what}; {_counted(near, 'others')} {'is' if len(near) == 1 else 'are'} as good within noise."


def _use_in(answers: Sequence[Answer]) -> str:
    tops = Counter(name for answer in answers for name in answer.top).most_common(_MOST + 1)
    counts = list_text([f"{'/'.join(name)} ({number})" for name, number in tops])
    return f"Highest mean rsum in {len(answers)} tables: {counts}."


def _beats(answers: Sequence[Answer]) -> str:
    compared = [answer for answer in answers if answer.grid.comparison.from_baseline]
    if not compared:
        return f"There is no {_LOSS} to compare with." if len(answers[0].grid.means) > 1 else ""
    better = [
        [key for key, change in answer.grid.comparison.from_baseline.items() if change.verdict == "better"]
        for answer in compared
    ]
    if len(compared) > 1:
        number = sum(map(bool, better))
        return f"{_LOSS} is beaten beyond noise in {number or 'none'} of {len(compared)} tables."
    (answer,), (names,) = compared, better
    gain = answer.grid.gain
    if BASELINE in answer.top or gain is None:
        return f"Nothing has a higher mean than {_LOSS}."
    best = f"{objectives_text(answer.top[:1])} is at {gain.text}"
    if not answer.grid.comparison.is_tested:
        return ""
    if not names:
        return f"Nothing beats {_LOSS} beyond noise: {best}."
    return f"{_counted(names, 'objectives')} beat{'s' * (len(names) == 1)} {_LOSS} beyond noise: {best}."


def _avoid(answers: Sequence[Answer]) -> str:
    """The weights that are significantly worse than con in every table; without whole grids, the worst objectives."""
    costs = {what: sizes for (what, verdict), sizes in weight_changes(answers).items() if verdict == "worse"}
    means = {what: sum(sizes) / len(sizes) for what, sizes in costs.items() if len(sizes) == len(answers)}
    over = ", averaged over the other weight" if means else ""
    if not means and len(answers) == 1:
        changes = answers[0].grid.comparison.from_baseline
        means = {"/".join(key): -one.estimate for key, one in changes.items() if one.verdict == "worse"}
    worst = sorted(means, key=lambda what: -means[what])[:_MOST]
    return f"Avoid {' and '.join(f'{what} ({-means[what]:.1f} points)' for what in worst)}{over}." if worst else ""


def _counted(names: Sequence[tuple[str, str]], what: str) -> str:
    """Up to two names; or the number of them."""
    return " and ".join(map("/".join, names)) if len(names) <= _MOST else f"{len(names)} {what}"
