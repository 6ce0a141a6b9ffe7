"""What a report says first: the finding of its tables in a few sentences, and the answers of tuned sweeps and of axes.

Every clause follows from the differences of single tables, which hold together at 5 %; over several tables it says in
how many of them it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from math import ceil
from statistics import median

from goal_sweep.analysis.blocks import Difference, Objective, Verdict
from goal_sweep.analysis.report.answer import Answer, answers_of
from goal_sweep.analysis.report.changes import changes_text
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.statistics.gains import Gain, fates
from goal_sweep.analysis.statistics.trails import progress_text
from goal_sweep.analysis.wording import count_text, list_text, objectives_text, signed
from goal_sweep.sweeps.results import DIRECTION_TITLES, TUNED

_SETTLED = 10
"""From so many seeds on more of them hardly change the factor of an interval."""
_MANY = 100
"""More seeds than these are not counted: the bound on their number is then a loose one."""


def finding(answers: Sequence[Answer], measure: str) -> str:
    """What the tables of a measure show, in two sentences; empty without a table.

    The first names the rows and columns that cost or gain points, and what is level; the second what is better than
    con/con, and how many more seeds would tell more. For example "R@1: Triplet weight cir costs 3.3 to 11.8 points
    against con in 9 of 10 rows; the other 10 objectives cannot be told apart. No objective is better than con/con by
    more than noise."
    """
    here = [answer for answer in answers if answer.metric.name == measure]
    if not here:
        return ""
    if why := _nothing_to_say(here):
        return f"{measure}: {why}"
    judged = [answer for answer in here if answer.is_judged]
    weights = _weights_apart(judged)
    left = {answer: [key for key in answer.judged if not _names(key) & weights.keys()] for answer in judged}
    level = [answer for answer in judged if _verdicts(answer, left[answer]) == {"level"}]
    first = [*weights.values(), *_level_text(left, level)]
    if not weights and len(level) < len(judged):
        first.append(_below_text([answer for answer in judged if answer not in level], judged))
    second = [] if len(level) == len(judged) and not weights else [_baseline_text(judged)]
    second += _more_seeds(left, 5.0 if measure == "rsum" else 1.0)
    if len(judged) < len(here):
        second.append(f"{count_text(len(here) - len(judged), 'table')} cannot be judged")
    return f"{measure}: {' '.join(_sentence('; '.join(own)) for own in (first, second) if own)}"


def _sentence(text: str) -> str:
    is_name = "/" in text.partition(" ")[0]
    return f"{text}." if is_name else f"{text[:1].upper()}{text[1:]}."


def _nothing_to_say(here: Sequence[Answer]) -> str:
    """Why the tables allow no statement; empty if they allow one."""
    if not any(answer.others for answer in here):
        only = objectives_text(dict.fromkeys(answer.best for answer in here))
        return f"Only {only} has results, so there is nothing to compare it with."
    if all(answer.all_equal for answer in here):
        return "All objectives have the same mean, to one decimal."
    if not any(cell.n > 1 for answer in here for cell in answer.grid.cells.values()):
        return f"No objective has two seeds, so no difference can be judged; {_highest_text(here)}."
    if not any(answer.is_judged for answer in here):
        if any(cell.gaps for answer in here for cell in answer.grid.cells.values()):
            return "Too many runs are missing to judge a difference."
        return "No difference can be judged, because the runs of different seeds agree exactly."
    return ""


def _highest_text(here: Sequence[Answer]) -> str:
    """The objectives that have the highest mean most often."""
    wins = Counter(key for answer in here for key in answer.top)
    most = [key for key, number in wins.items() if number == max(wins.values())]
    where = "" if len(here) == 1 else f" in {wins[most[0]]} of {len(here)} tables{' each' * (len(most) > 1)}"
    return f"highest mean{where}: {list_text(['/'.join(key) for key in most])}"


def _weights_apart(here: Sequence[Answer]) -> dict[str, str]:
    """A clause for each of at most two weights that are told apart from the weight ``con``, always on the same side.

    In more than half of the rows, or columns, that are judged in a table; where the sides differ, in each direction.
    """
    found: dict[str, dict[Answer, list[Difference | None]]] = {}
    for answer in here:
        asked = [key for key, cell in answer.grid.cells.items() if cell.requested]
        for key in asked:
            for name, other in ((f"T {key[1]}", (key[0], "con")), (f"P {key[0]}", ("con", key[1]))):
                if key != other and other in asked:
                    of_table = found.setdefault(name, {}).setdefault(answer, [])
                    of_table.append(answer.grid.comparison.differences.get((key, other)))
    said = dict[str, tuple[float, str]]()
    for name, own in found.items():
        kind, line = ("triplet", "row") if name.startswith("T") else ("pair", "column")
        texts = [_cost_text(own, line)]
        if not texts[0]:
            parts: dict[str, dict[Answer, list[Difference | None]]] = {}
            for answer, differences in own.items():
                parts.setdefault(answer.metric.direction, {})[answer] = differences
            by_direction = {direction: _cost_text(tables, line) for direction, tables in parts.items()}
            texts = [text and f"{text} ({_direction_text(direction)})" for direction, text in by_direction.items()]
        if all(texts):
            every = (one for differences in own.values() for one in differences)
            largest = max(abs(one.estimate) for one in every if one and one.told_apart)
            said[name] = (largest, f"{kind} weight {name[2:]} {' and '.join(texts)}")
    return {name: text for name, (_, text) in sorted(said.items(), key=lambda own: -own[1][0])[:2]}


def _cost_text(tables: Mapping[Answer, Sequence[Difference | None]], line: str) -> str:
    """What a weight costs or gains in its rows or columns; empty if too few of them say so, or not all the same.

    Where it is no more than half of all rows, they are counted in the tables that tell any apart.
    """
    judged = {answer: [one for one in own if one and one.verdict != "unknown"] for answer, own in tables.items()}
    often = any(sum(one.told_apart for one in own) > max(1, len(own) / 2) for own in judged.values())
    apart = sorted((one.estimate for own in judged.values() for one in own if one.told_apart), key=abs)
    if not often or len({points > 0 for points in apart}) > 1:
        return ""
    low, high = (f"{abs(size):.1f}" for size in (apart[0], apart[-1]))
    few = len(apart) <= sum(map(len, judged.values())) / 2
    here = [answer for answer, own in judged.items() if not few or any(one.told_apart for one in own)]
    lines, known = (sum(len(own[answer]) for answer in here) for own in (tables, judged))
    where = f"every {line}" if len(apart) == lines else f"{len(apart)} of {lines} {line}s"
    where += _where(here, tables, before="of") + f", {lines - known} not judged" * (known < lines)
    size = low if low == high else f"{low} to {high}"
    return f"{'gains' if apart[0] > 0 else 'costs'} {size} points against con in {where}"


def _names(key: Objective) -> set[str]:
    return {f"P {key[0]}", f"T {key[1]}"}


def _differences(answer: Answer, names: Sequence[Objective]) -> list[Difference]:
    """Those between some objectives, each once."""
    return [answer.grid.comparison.differences[pair] for pair in combinations(names, 2)]


def _verdicts(answer: Answer, names: Sequence[Objective]) -> set[Verdict]:
    return {change.verdict for change in _differences(answer, names)} - {"unknown"}


def _where(tables: Collection[Answer], here: Collection[Answer], before: str = "in") -> str:
    """In which of the tables something holds: the direction of one block, or how many of them; empty for all."""
    if len(tables) == len(here):
        return ""
    if len({answer.block.slug for answer in here}) > 1:
        return f" {before} {len(tables)} of {len(here)} tables"
    return f" ({_direction_text(next(iter(tables)).metric.direction)})"


def _direction_text(direction: str) -> str:
    return DIRECTION_TITLES[direction].lower().replace("→", "to")


def _level_text(left: Mapping[Answer, Sequence[Objective]], level: Sequence[Answer]) -> list[str]:
    """In how many tables the objectives that are left over cannot be told apart."""
    if not level:
        return []
    sizes = {len(left[answer]) for answer in level}
    number = f" {sizes.pop()}" if len(sizes) == 1 else ""
    whole = all(len(left[answer]) == len(answer.judged) for answer in level)
    which = f"none of the{number} objectives can" if whole else f"the other{number} objectives cannot"
    unjudged = {len(answer.grid.means) - len(answer.judged) for answer in level}
    rest = f"; {max(unjudged)} not judged" if any(unjudged) else ""
    return [f"{which} be told apart{_where(level, left)}{rest}"]


def _below_text(here: Sequence[Answer], judged: Sequence[Answer]) -> str:
    """What is told apart from the highest mean in all of some of the tables that are judged."""
    below = [
        {name for name in answer.others if answer.grid.comparison.differences[answer.best, name].verdict == "better"}
        for answer in here
    ]
    names = ["/".join(name) for name in here[0].others if all(name in own for own in below)]
    where = _where(here, judged) or " in every table" * (len(here) > 1)
    if all(len(answer.grid.comparison.unjudged) == len(answer.others) for answer in here):
        return "the highest mean has too few runs to be compared with"
    if not names and any(below):
        return f"the tables differ in what is below the highest mean by more than noise{_where(here, judged)}"
    if not names:
        return f"no objective is below the highest mean by more than noise{_where(here, judged)}"
    return f"below the highest mean by more than noise{where}: {list_text(names)}"


def _baseline_text(here: Sequence[Answer]) -> str:
    """What is better than con/con, and in how many tables."""
    compared = {answer: answer.grid.comparison.from_baseline for answer in here}
    compared = {answer: changes for answer, changes in compared.items() if changes}
    if not compared:
        return "there is no con/con to compare with"
    verdicts = {change.verdict for changes in compared.values() for change in changes.values()}
    if verdicts == {"unknown"}:
        return "con/con has too few runs to be compared with"
    if verdicts == {"worse"}:
        return "every other finished objective is worse than con/con"
    gains: dict[Objective, dict[Answer, float]] = {}
    for answer, changes in compared.items():
        for name, change in changes.items():
            if change.verdict == "better":
                gains.setdefault(name, {})[answer] = change.estimate
    if not gains:
        return "no objective is better than con/con by more than noise"
    most = max(map(len, gains.values()))
    which = sorted((name for name in gains if len(gains[name]) == most), key=lambda name: -max(gains[name].values()))
    points = [signed(point) for point in sorted(point for name in which for point in gains[name].values())]
    size = points[0] if points[0] == points[-1] else f"{points[0]} to {points[-1]}"
    others = len(gains) - len(which)
    if most == len(compared):
        where = " in every table" * bool(others)
    elif not others and all(gains[name].keys() == gains[which[0]].keys() for name in which):
        where = _where(gains[which[0]], compared)
    else:
        where = f"{' most often,' * bool(others)} in {most} of {len(compared)} tables"
    more = f", and {others} more in some" if others and most == len(compared) else ""
    return f"better than con/con{where}: {list_text(['/'.join(name) for name in which])} ({size}){more}"


def _more_seeds(left: Mapping[Answer, Sequence[Objective]], points: float) -> list[str]:
    """How many more seeds would tell a measured difference, by the intervals of what cannot be told apart.

    An interval's square is the sum of a part that falls with the number of seeds and one, of test images and searches,
    that does not. The factor of both falls with the seeds too, which is left out: the number is an upper one.
    """
    level = [change for own in left.items() for change in _differences(*own) if change.verdict == "level"]
    if not level:
        return []
    of_seeds = median((change.seed_ends[1] - change.seed_ends[0]) / 2 for change in level)
    reach = median((change.ends[1] - change.ends[0]) / 2 for change in level)
    runs = median(answer.grid.cells[name].n for answer, names in left.items() for name in names)
    if reach <= points:
        return []
    size, rest = count_text(int(points), "point"), points**2 - max(0.0, reach**2 - of_seeds**2)
    if rest <= 0:
        beyond = " or ".join(dict.fromkeys(what for own in left for what in own.grid.comparison.beyond_seeds))
        takes = f"more seeds, and perhaps more {beyond}" if runs < _SETTLED else f"more {beyond}"
        return [f"to tell a measured difference of {size} takes {takes}"]
    more = ceil(runs * of_seeds**2 / rest - runs)
    if more > _MANY:
        return [f"to tell a measured difference of {size} may take more than {_MANY} more seeds"]
    return [f"at most about {count_text(more, 'more seed')} would tell a measured difference of {size}"]


def tuning_answers(inputs: Inputs, measure: str) -> tuple[tuple[str, str], ...]:
    """The questions of a tuned sweep with their answers by one measure; empty without both grids."""
    if not inputs.pairs:
        return ()
    tuned = [answer for answer in answers_of(inputs.answered) if answer.metric.name == measure]
    return (
        ("Which objective is best when tuned?", _best_text([own for own in tuned if own.block.key.grid == TUNED])),
        ("What did tuning gain?", _gain_text(inputs, measure)),
        ("Which differences of the default grid does tuning confirm?", _fates_text(inputs, measure)),
    )


def _best_text(tuned: Sequence[Answer]) -> str:
    if len({answer.block.slug for answer in tuned}) > 1:
        alone = sum(answer.is_judged and answer.level_text == "none" and len(answer.top) == 1 for answer in tuned)
        return _sentence(f"{_highest_text(tuned)}; it is told apart from all others in {count_text(alone, 'table')}")
    said = []
    for answer in tuned:
        where = "" if answer.metric.direction == "both" else f"{answer.metric.title}: "
        if answer.all_equal:
            said.append(f"{where}all have the same mean, {answer.mean}")
            continue
        several, level = len(answer.top) > 1, "not told apart" * answer.is_judged
        level = f"{level} from {'them' if several else 'it'}: " * answer.is_judged + answer.level_text
        said.append(f"{where}highest mean {answer.best_text}, {answer.mean}, {level}")
    return _sentence("; ".join(said))


def _gain_text(inputs: Inputs, measure: str) -> str:
    """How many objectives tuning raises and lowers by more than noise, over all tables of a measure."""
    gains = [gain for own in inputs.gained.values() for m, g in own.items() if m.name == measure for gain in g.values()]
    same = sum(gain.same for gain in gains if gain.difference is not None)
    kept = f" In {count_text(same, 'square')} of the tables the choice was the default." if same else ""
    text = changes_text(gains)
    if text:
        return f"{_sentence(text)}{kept}"
    return f"Nothing.{kept}" if same else "No objective has results in both grids."


def _fates_text(inputs: Inputs, measure: str) -> str:
    """What becomes of the pairs that the default grid tells apart, over all tables of a measure."""
    counts = Counter[str]()
    for pair in inputs.pairs:
        for default in pair.default.grids_of(measure):
            gained = inputs.gained[pair][default.metric]
            unmoved = {name for name, gain in gained.items() if gain.same}
            counts.update(fates(default.comparison, pair.tuned.grids[default.metric.key].comparison, unmoved))
    if not counts.total():
        return "The default grid tells no two objectives apart."
    same = f"; {counts['unmoved']} are of the same runs in both grids" if counts["unmoved"] else ""
    return (
        f"Of {count_text(counts.total(), 'pair')} told apart by default, the tuned grid confirms "
        f"{counts['confirmed']}, reverses {counts['reversed']} and leaves {counts['undecided']} undecided{same}."
    )


def axis_answers(inputs: Inputs, measure: str) -> tuple[tuple[str, str], ...]:
    """What each axis of a sweep changes by one measure, over all tables, with the other axes at their first value."""
    asked: dict[str, dict[str, list[Gain]]] = {}
    for own, changes in inputs.ablated.items():
        for metric, by_value in changes.items():
            for value, moved in zip(own.values[1:], by_value, strict=True):
                if metric.name == measure:
                    instead = f"{value} instead of {own.values[0]}"
                    asked.setdefault(own.axis, {}).setdefault(instead, []).extend(moved.values())
    said = {
        axis: "; ".join(f"{instead}: {text}" for instead, moved in own.items() if (text := changes_text(moved)))
        for axis, own in asked.items()
    }
    return tuple((f"What does {axis} change?", _sentence(text)) for axis, text in said.items() if text)


def answers_to(inputs: Inputs, measure: str) -> tuple[tuple[str, str], ...]:
    """What a report says first by one measure: questions with their answers; the finding has no question."""
    asked = tuning_answers(inputs, measure)
    if not asked and (text := finding(answers_of(inputs.answered), measure)):
        asked = (("", text),)
    return (*asked, *axis_answers(inputs, measure))


def first_words(inputs: Inputs, measures: Sequence[str]) -> tuple[str, ...]:
    """The same by some measures, in lines; of a sweep that still searches how far it is.

    Args:
        inputs: of the report.
        measures: by which.
    """
    if inputs.results.is_searching:
        return (progress_text(inputs.results),)
    said = [(measure, *own) for measure in measures for own in answers_to(inputs, measure)]
    lines = tuple(f"{measure}. {question} {text}" if question else text for measure, question, text in said)
    return lines or (_without_results(inputs),)


def _without_results(inputs: Inputs) -> str:
    """That nothing is finished, and why most often."""
    gaps = [gap for block in inputs.blocks for _, gap in block.gaps]
    reasons = Counter(f"{gap.status}: {gap.reason}" for gap in gaps if gap.reason)
    often = [f" {number} of {len(gaps)}: {reason}" for reason, number in reasons.most_common(1)]
    return f"Nothing is finished, so nothing can be said.{''.join(often)}"
