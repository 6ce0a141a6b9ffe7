"""What a sweep says in three lines, by the sum of all recalls: what to use, what beats the triplet loss, what to avoid.

Their numbers are those of the report's tables.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isnan

from goal_sweep.analysis.blocks import Objective
from goal_sweep.analysis.report.answer import Answer, answers_of, weight_changes
from goal_sweep.analysis.statistics.aggregation import Inputs, images_text
from goal_sweep.analysis.statistics.comparison import MANY_SEEDS, seeds_to_settle
from goal_sweep.analysis.wording import count_text, duration_text, list_text
from goal_sweep.goal_core.evaluation.metrics import RSUM
from goal_sweep.goal_core.objectives.variants import LITERATURE, objective_name
from goal_sweep.sweeps.results import BASELINE, TUNED

_LOSS = "con/con (the triplet loss)"
_MOST = 2
"""Names of a line; others are counted."""


def verdict(inputs: Inputs) -> tuple[str, ...]:
    """At most three lines, and one of few test images; none before something is finished.

    A tuned sweep's are about the tuned grid. Where a sweep has several tables, such as one for each backbone, each line
    says in how many it holds. Objectives no better than chance are named in the place of what to avoid.
    """
    answers, images = _answers(inputs), images_text(inputs.results.counted)
    if not answers:
        return ()
    trained, second = [answer for answer in answers if answer.best not in answer.untrained], ""
    first = _use_in(trained) if trained and len(answers) > 1 else "".join(map(_use, trained))
    if trained and not any(BASELINE in answer.untrained for answer in trained):
        second = " ".join(filter(None, (_beats(trained), _price(inputs))))
    few = images * images.startswith("FEW")
    return tuple(filter(None, (first, second, _at_chance(answers) or _avoid(answers), few)))


def more_seeds(inputs: Inputs) -> int | None:
    """How many more seeds would settle the best, as the verdict says; None where it is settled, or seeds cannot."""
    return max((more for _, _, more in _unsettled(inputs) if more is not None), default=None)


def known_names(names: Iterable[tuple[str, str]]) -> str:
    """What the literature calls some of the objectives, such as "con/con: triplet loss; con/nca: NT-Xent loss"."""
    return "; ".join(f"{name}: {LITERATURE[name]}" for name in map(objective_name, names) if name in LITERATURE)


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
        near = [key for key in answer.others if key in answer.grid.comparison.near and key not in answer.untrained]
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
    what = " against ".join(map(objective_name, known[0][:2]))
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
    """What to use, where something is significantly better than all others or than con/con; else that nothing is."""
    comparison, gain, number = answer.grid.comparison, answer.grid.gain, len(answer.others)
    level = [key for key in answer.others if key in comparison.near | comparison.untested]
    what, mean = _counted(answer.top, "equal objectives"), f"mean rsum ({answer.mean} of 600)"
    if not number:
        return f"{what}: {mean}."
    lower = (
        f"{_counted(level, f'of the {number} others')} {'is' if len(level) == 1 else 'are'} not significantly lower."
    )
    if not comparison.is_tested:
        lower = "nothing is tested: add seeds."
    elif 1 < number == len(level):
        lower = f"none of the {number} others is significantly lower."
    if not level or (gain is not None and gain.verdict == "better"):
        return f"Use {what}: highest {mean}; {lower if level else 'all others are significantly lower.'}"
    return f"No winner: {what} {'has' if len(answer.top) == 1 else 'have'} the highest {mean}, but {lower}"


def _use_in(answers: Sequence[Answer]) -> str:
    tops = Counter(name for answer in answers for name in answer.top).most_common(_MOST + 1)
    counts = list_text([f"{objective_name(name)} ({number})" for name, number in tops])
    return f"Highest mean rsum in {count_text(len(answers), 'table')}: {counts}."


def _beats(answers: Sequence[Answer]) -> str:
    compared = [answer for answer in answers if answer.grid.comparison.from_baseline]
    if not compared:
        return f"There is no {_LOSS} to compare with." if len(answers[0].grid.means) > 1 else ""
    changes = [answer.grid.comparison.from_baseline for answer in compared]
    better = [[key for key, change in own.items() if change.verdict == "better"] for own in changes]
    if len(compared) > 1:
        number = sum(map(bool, better))
        return f"{_LOSS} is beaten significantly in {number or 'none'} of {len(compared)} tables."
    (answer,), (names,) = compared, better
    gain = answer.grid.gain
    if BASELINE in answer.top or gain is None or not answer.grid.comparison.is_tested:
        return ""
    who = f"{_counted(names, 'objectives')} beat{'s' * (len(names) == 1)}" if names else "Nothing beats"
    points = gain.text.replace(" (", " points of rsum (95 % interval ")
    return f"{who} {_LOSS} significantly: {objective_name(answer.best)} is at {points}."


def _at_chance(answers: Sequence[Answer]) -> str:
    """The objectives that did not train; empty where all did."""
    found = [answer.untrained for answer in answers if answer.untrained]
    names = [objective_name(name) for name in dict.fromkeys(name for own in found for name in own)]
    if all(len(answer.untrained) == len(answer.grid.means) for answer in answers):
        return "No objective is better than chance: none trained, so comparing them says little."
    where = f" in {len(found)} of {len(answers)} tables" if len(answers) > 1 else ""
    are, they, them = ("is", "it", "it") if len(names) == 1 else ("are", "they", "them")
    said = f"{are} no better than chance{where}: {they} did not train, so comparing {them} says little."
    return f"{list_text(names)} {said}" if names else ""


def _avoid(answers: Sequence[Answer]) -> str:
    """The weights that are significantly worse than con in every table; without whole grids, the worst objectives."""
    costs = {what: sizes for (what, verdict), sizes in weight_changes(answers).items() if verdict == "worse"}
    means = {what: sum(sizes) / len(sizes) for what, sizes in costs.items() if len(sizes) == len(answers)}
    over = ", averaged over the other weight" if means else ""
    if not means and len(answers) == 1:
        changes = answers[0].grid.comparison.from_baseline
        means = {objective_name(key): -one.estimate for key, one in changes.items() if one.verdict == "worse"}
    worst = sorted(means, key=lambda what: -means[what])[:_MOST]
    return f"Avoid {' and '.join(f'{what} ({-means[what]:.1f} points)' for what in worst)}{over}." if worst else ""


def _counted(names: Sequence[tuple[str, str]], what: str) -> str:
    """Up to two names; or the number of them."""
    return " and ".join(map(objective_name, names)) if len(names) <= _MOST else f"{len(names)} {what}"
