"""What a sweep says first, by the sum of all recalls: what to use, what beats the triplet loss, what to avoid.

The numbers are those of the report's tables.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import starmap
from math import isnan

import numpy as np

from goal_sweep.analysis.blocks import Objective
from goal_sweep.analysis.report.answer import Answer, answers_of, weight_changes
from goal_sweep.analysis.statistics.aggregation import Inputs, few_images_warning
from goal_sweep.analysis.statistics.comparison import FACTORS, MANY_SEEDS, seeds_to_settle
from goal_sweep.analysis.wording import count_text, duration_text, list_text, signed, span_text
from goal_sweep.goal_core.evaluation.metrics import RSUM
from goal_sweep.goal_core.objectives.variants import LITERATURE, objective_name
from goal_sweep.sweeps.axes import value_text
from goal_sweep.sweeps.results import BASELINE, Header

_LOSS = "con/con (the triplet loss)"
_MOST = 2
"""Names of a line; others are counted."""


def verdict(inputs: Inputs) -> tuple[str, ...]:
    """At most three lines, and warnings of few test images and of axes; none before something is finished.

    A tuned sweep's are about the tuned grid. Where a sweep has several tables, such as one for each backbone, a line
    says in how many it holds, or names the only one. Objectives not shown to be better than chance are named in the
    place of what to avoid.
    """
    answers = _answers(inputs)
    trained = [answer for answer in answers if answer.best not in answer.at_chance]
    first = _use_in(trained) if len(trained) > 1 else ""
    if len(trained) == 1:
        first = _label(trained[0], answers) + _use(trained[0], len(inputs.results.header.seeds))
    second = " ".join(filter(None, (_beats(answers, trained), _price(inputs, trained))))
    few = few_images_warning(inputs.results.counted) if answers else ""
    of_axes = _of_axes(inputs.results.header) if answers else ""
    return tuple(filter(None, (first, second, _at_chance(answers) or _avoid(answers), few, of_axes)))


def more_seeds(inputs: Inputs) -> int | None:
    """How many more seeds would settle the best, as the verdict says; None where it is settled, or seeds cannot."""
    return max((more for _, _, more in _unsettled(inputs) if more is not None), default=None)


def known_names(names: Iterable[tuple[str, str]]) -> str:
    """What the literature calls some of the objectives, such as "con/con: triplet loss; con/nca: NT-Xent loss"."""
    return "; ".join(f"{name}: {LITERATURE[name]}" for name in starmap(objective_name, names) if name in LITERATURE)


def _of_axes(header: Header) -> str:
    """Of which values of the axes all this is; empty without any."""
    if not header.axes:
        return ""
    last = header.stages[-1]
    axes = "; ".join(f"{name} {', '.join(map(value_text, axis.values))}" for name, axis in header.axes_of(last).items())
    said = f"These sentences and the statistics are of the first values ({header.configurations[last][0]}), not of the"
    return f"AXES: {axes}. {said} highest; the highest mean of each is under Ablations."


def _answers(inputs: Inputs) -> list[Answer]:
    place = RSUM, inputs.results.main_grid
    return [answer for answer in answers_of(inputs.answered) if (answer.grid.metric, answer.block.key.grid) == place]


def _label(answer: Answer, answers: Sequence[Answer]) -> str:
    """The name of a table, where there are several."""
    return f"{answer.block.key.title}: " if len(answers) > 1 else ""


def _unsettled(inputs: Inputs) -> list[tuple[Answer, Objective, int | None]]:
    """The tables where others are as good as the best within noise, its rival, and the seeds that would settle them.

    The rival is con/con if it is among them, else the one with the highest mean, but not beside several equal best.
    """
    found = []
    for answer in _answers(inputs):
        near = [key for key in answer.others if key in answer.grid.comparison.near and key not in answer.at_chance]
        if BASELINE in near or (near and len(answer.top) == 1):
            rival = BASELINE if BASELINE in near else max(near, key=answer.grid.means.__getitem__)
            found.append((answer, rival, seeds_to_settle(answer.grid.comparison, answer.best, rival)))
    return found


def _price(inputs: Inputs, trained: Sequence[Answer]) -> str:
    """For example "About 7 more seeds (51 minutes of device time) would settle con/nca against con/con, if …"."""
    unsettled, more = _unsettled(inputs), more_seeds(inputs)
    if not unsettled:
        return ""
    known = [one for one in unsettled if one[2] is not None] or unsettled
    answer, rival, _ = known[0]
    title = f" ({answer.block.key.title})" if len(trained) > 1 else ""
    what = f"{objective_name(*answer.best)} against {objective_name(*rival)}{title}"
    if len(unsettled) > 1:
        what = f"the best in {len(known)} of {len(unsettled)} open tables"
    if more is None:
        found = answer.grid.comparison
        on_all = replace(found, of_images=np.zeros_like(found.of_images))
        why = ": more test images are needed" if seeds_to_settle(on_all, answer.best, rival) else ""
        return f"Even {MANY_SEEDS} more seeds would not settle {what}{why * (len(unsettled) == 1)}."
    runs, seeds = inputs.results.runs, len(inputs.results.header.seeds)
    took = (runs["seconds"] + runs["val_s"].fillna(0)).groupby([runs["backbone"], runs["stage"]]).transform("mean")
    time = took.sum(skipna=False) * more / seeds
    cost = "" if isnan(time) else f" ({duration_text(time)} of device time)"
    stay = "if means and spreads stay" + "; after two seeds that is a rough guess" * (seeds == 2)
    return f"About {count_text(more, 'more seed')}{cost} would settle {what}, {stay}."


def _use(answer: Answer, seeds: int) -> str:
    """What to use, where something is significantly better than all others or than con/con; else that nothing is."""
    comparison, gain, number = answer.grid.comparison, answer.grid.gain, len(answer.others)
    near, few = ([key for key in answer.others if key in own] for own in (comparison.near, comparison.untested))
    others, mean, equal = f"of the {number} others", f"mean rsum ({answer.mean} of 600)", "equal objectives"
    if not number:
        return f"{_counted(answer.top, equal)}: {mean}."
    few = [answer.best] if len(comparison.untested) == len(comparison.names) - 1 else few
    lower = f"none {others} is" if 1 < number == len(near) else f"{_counted(near, others, 'is', 'are')} not"
    said = [f"{lower} significantly lower"] * bool(near)
    said += [f"{_counted(few, others, 'has', 'have')} too few seeds to be tested"] * bool(few)
    text = ", and ".join(said) if comparison.is_tested else "nothing is tested: add seeds"
    if not said or (gain is not None and gain.verdict == "better"):
        worse = _counted(answer.others, "", "is", "are") if number <= _MOST else "all others are"
        chance = " Two seeds may say so by chance." * (seeds == 2)
        return f"Use {_counted(answer.top, equal)}: highest {mean}; {text or f'{worse} significantly lower'}.{chance}"
    return f"No winner: {_counted(answer.top, equal, 'has', 'have')} the highest {mean}, but {text}."


def _use_in(answers: Sequence[Answer]) -> str:
    tops = Counter(name for answer in answers for name in answer.top).most_common(_MOST + 1)
    counts = list_text([f"{objective_name(*name)} ({number})" for name, number in tops])
    untested = "" if any(answer.grid.comparison.is_tested for answer in answers) else "; nothing is tested: add seeds"
    return f"Highest mean rsum in {count_text(len(answers), 'table')}: {counts}{untested}."


def _beats(answers: Sequence[Answer], trained: Sequence[Answer]) -> str:
    """What beats con/con in the tables that trained, where con/con did and can be tested."""
    if not any(BASELINE in one.grid.means for one in trained):
        return f"There is no {_LOSS} to compare with." if any(len(one.grid.means) > 1 for one in trained) else ""
    fair = [one for one in trained if BASELINE not in one.at_chance and one.grid.comparison.is_tested]
    changes = [(one, one.grid.comparison.from_baseline.items()) for one in fair]
    tested = [(one, own) for one, own in changes if not all(isnan(change.reach) for _, change in own)]
    better = [[key for key, change in own if change.verdict == "better"] for _, own in tested]
    if not tested:
        return f"{_LOSS} has too few seeds to be compared." if any(one.grid.gain for one in fair) else ""
    if len(tested) > 1:
        return f"{_LOSS} is beaten significantly in {sum(map(bool, better)) or 'none'} of {len(tested)} tables."
    answer, names = tested[0][0], better[0]
    if BASELINE in answer.top or (gain := answer.grid.gain) is None:
        return ""
    who = _counted(names, "objectives", "beats", "beat") if names else "Nothing beats"
    found = f"is at {signed(gain.estimate)} points of rsum (95 % interval {signed(gain.low)} to {signed(gain.high)})"
    if isnan(gain.reach):
        found = "has too few seeds to be compared"
    return f"{_label(answer, answers)}{who} {_LOSS} significantly: {objective_name(*answer.best)} {found}."


def _at_chance(answers: Sequence[Answer]) -> str:
    """The objectives not shown to be better than chance; empty where all are."""
    limits = [limit for answer in answers for limit in answer.at_chance.values()]
    if not limits:
        return ""
    tables, several = Counter(name for answer in answers for name in answer.at_chance), len(answers) > 1
    names = [objective_name(*name) + f" (in {count_text(of, 'table')})" * several for name, of in tables.items()]
    who = f"{list_text(names)} {'is' if len(names) == 1 else 'are'} not"
    if all(len(answer.at_chance) == len(answer.grid.means) for answer in answers):
        who = "No objective is"
    return f"{who} shown to be better than chance (limit {span_text(limits)} of 600), so comparisons say little."


def _avoid(answers: Sequence[Answer]) -> str:
    """Weights significantly worse than con in every table, none of them near the best anywhere; else objectives."""
    near = [key for answer in answers for key in (answer.best, *answer.grid.comparison.near)]
    good = {f"{kind} weight {name}" for key in near for kind, name in zip(FACTORS, key, strict=True)}
    changes = weight_changes(answers).items()
    costs = {what: sizes for (what, verdict), sizes in changes if verdict == "worse" and what not in good}
    means = {what: sum(sizes) / len(sizes) for what, sizes in costs.items() if len(sizes) == len(answers)}
    over = ", averaged over the other weight" if means else ""
    if not means and len(answers) == 1:
        singly, over = answers[0].grid.comparison.from_baseline, " against con/con"
        means = {objective_name(*key): -one.estimate for key, one in singly.items() if one.verdict == "worse"}
    worst = sorted(means, key=lambda what: -means[what])[:_MOST]
    return f"Avoid {' and '.join(f'{what} ({-means[what]:.1f} points)' for what in worst)}{over}." if worst else ""


def _counted(names: Sequence[Objective], what: str, *verbs: str) -> str:
    """Up to two names, or the number of them; then the verb, of which the singular and the plural are given."""
    who = " and ".join(starmap(objective_name, names)) if len(names) <= _MOST else f"{len(names)} {what}"
    return " ".join((who, *verbs[len(names) > 1 :][:1]))
