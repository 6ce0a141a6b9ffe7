"""What a sweep says in three lines, by the sum of all recalls: what to use, what beats the triplet loss, what to avoid.

Their numbers are those of the report's tables, and "beyond noise" is the report's "significantly".
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isnan

from goal_sweep.analysis.blocks import Objective
from goal_sweep.analysis.report.answer import Answer, answers_of, weight_changes
from goal_sweep.analysis.statistics.aggregation import Inputs
from goal_sweep.analysis.statistics.comparison import MANY_SEEDS, seeds_to_settle
from goal_sweep.analysis.wording import count_text, duration_text, list_text, objectives_text
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
    answers = _answers(inputs)
    if not answers:
        return ()
    first = _use(answers[0]) if len(answers) == 1 else _use_in(answers)
    second = " ".join(filter(None, (_beats(answers), _price(inputs))))
    return tuple(filter(None, (first, second, _avoid(answers))))


def more_seeds(inputs: Inputs) -> int | None:
    """How many more seeds would settle the best, as the verdict says; None where it is settled, or seeds cannot."""
    return max((more for _, _, more in _unsettled(inputs) if more is not None), default=None)


def known_names(names: Iterable[tuple[str, str]]) -> str:
    """What the literature calls some of the objectives, such as "con/con: triplet loss; con/nca: NT-Xent loss"."""
    return "; ".join(f"{name}: {LITERATURE[name]}" for name in map("/".join, names) if name in LITERATURE)


def _answers(inputs: Inputs) -> list[Answer]:
    is_tuned = inputs.results.main_grid == TUNED
    answers = answers_of(inputs.answered)
    return [one for one in answers if one.metric == RSUM and (not is_tuned or one.block.key.grid == TUNED)]


def _unsettled(inputs: Inputs) -> list[tuple[Objective, Objective, int | None]]:
    """The best of each table where others are as good within noise, its rival, and the seeds that would settle them.

    The rival is con/con if it is among them, else the one with the highest mean, but not beside several equal best.
    """
    found = []
    for answer in _answers(inputs):
        near = [key for key in answer.others if key in answer.grid.comparison.near]
        if BASELINE in near or (near and len(answer.top) == 1):
            rival = BASELINE if BASELINE in near else max(near, key=answer.grid.means.__getitem__)
            found.append((answer.best, rival, seeds_to_settle(answer.grid.comparison, answer.best, rival)))
    return found


def _price(inputs: Inputs) -> str:
    """For example "About 7 more seeds (51 minutes of device time) would settle con/nca against con/con."."""
    unsettled, more = _unsettled(inputs), more_seeds(inputs)
    if not unsettled:
        return ""
    known = [one for one in unsettled if one[2] is not None] or unsettled
    what = " against ".join(map("/".join, known[0][:2]))
    if len(unsettled) > 1:
        what = f"the best in {len(known)} of {len(unsettled)} open tables"
    if more is None:
        return f"Even {MANY_SEEDS} more seeds would not settle {what}."
    runs, seeds = inputs.results.runs, len(inputs.results.header.seeds)
    took = (runs["seconds"] + runs["val_s"].fillna(0)).groupby([runs["backbone"], runs["stage"]]).transform("mean")
    time = took.sum(skipna=False) * more / seeds
    cost = "" if isnan(time) else f" ({duration_text(time)} of device time)"
    return f"About {count_text(more, 'more seed')}{cost} would settle {what}."


def _use(answer: Answer) -> str:
    top, near = answer.top, [key for key in answer.others if key in answer.grid.comparison.near]
    what = f"Use {_counted(top, 'equal objectives')}: highest mean rsum, {answer.mean}"
    if not answer.grid.comparison.is_tested:
        return f"{what}. Nothing is tested: add seeds."
    if not near:
        return f"{what}; all others are lower beyond noise." if answer.others else f"{what}."
    if len(near) == len(answer.others):
        return f"{what}; no other is lower beyond noise."
    return f"{what}; {_counted(near, 'others')} {'is' if len(near) == 1 else 'are'} not lower beyond noise."


def _use_in(answers: Sequence[Answer]) -> str:
    tops = Counter(name for answer in answers for name in answer.top).most_common(_MOST + 1)
    counts = list_text([f"{'/'.join(name)} ({number})" for name, number in tops])
    return f"Highest mean rsum in {len(answers)} tables: {counts}."


def _beats(answers: Sequence[Answer]) -> str:
    compared = [answer for answer in answers if answer.grid.comparison.from_baseline]
    if not compared:
        return f"There is no {_LOSS} to compare with." if len(answers[0].grid.means) > 1 else ""
    changes = [answer.grid.comparison.from_baseline for answer in compared]
    better = [[key for key, change in own.items() if change.verdict == "better"] for own in changes]
    if len(compared) > 1:
        number = sum(map(bool, better))
        return f"{_LOSS} is beaten beyond noise in {number or 'none'} of {len(compared)} tables."
    (answer,), (names,) = compared, better
    gain = answer.grid.gain
    if BASELINE in answer.top or gain is None:
        return f"Nothing has a higher mean than {_LOSS}."
    best = f"{objectives_text([answer.best])} is at {gain.text}"
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
