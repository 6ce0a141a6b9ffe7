"""What a report says first: the finding of its tables in a few sentences, and the answers of a tuned sweep.

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
from goal_sweep.analysis.statistics.gains import fates
from goal_sweep.analysis.statistics.trails import progress_text
from goal_sweep.analysis.wording import count_text, list_text, objectives_text, signed
from goal_sweep.sweeps.results import DIRECTION_TITLES, TUNED

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
    return f"{text[:1].upper()}{text[1:]}."


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

    In more than half of the rows, or columns, of all tables; or of those of each direction, where the sides differ.
    """
    found: dict[str, dict[str, list[Difference | None]]] = {}
    for answer in here:
        asked = [key for key, cell in answer.grid.cells.items() if cell.requested]
        for key in asked:
            for name, other in ((f"T {key[1]}", (key[0], "con")), (f"P {key[0]}", ("con", key[1]))):
                if key != other and other in asked:
                    of_direction = found.setdefault(name, {}).setdefault(answer.metric.direction, [])
                    of_direction.append(answer.grid.comparison.differences.get((key, other)))
    said = dict[str, tuple[float, str]]()
    for name, own in found.items():
        kind, line = ("triplet", "row") if name.startswith("T") else ("pair", "column")
        every = [one for differences in own.values() for one in differences]
        texts = [_cost_text(every, line)]
        if not texts[0]:
            parts = {direction: _cost_text(differences, line) for direction, differences in own.items()}
            texts = [text and f"{text} ({_direction_text(direction)})" for direction, text in parts.items()]
        if all(texts):
            largest = max(abs(one.estimate) for one in every if one and one.told_apart)
            said[name] = (largest, f"{kind} weight {name[2:]} {' and '.join(texts)}")
    return {name: text for name, (_, text) in sorted(said.items(), key=lambda own: -own[1][0])[:2]}


def _cost_text(differences: Sequence[Difference | None], line: str) -> str:
    """What a weight costs or gains in its rows or columns; empty if too few of them say so, or not all the same."""
    apart = sorted((one.estimate for one in differences if one and one.told_apart), key=abs)
    if len(apart) <= max(1, len(differences) / 2) or len({points > 0 for points in apart}) > 1:
        return ""
    low, high = (f"{abs(size):.1f}" for size in (apart[0], apart[-1]))
    where = f"every {line}" if len(apart) == len(differences) else f"{len(apart)} of {len(differences)} {line}s"
    size = low if low == high else f"{low} to {high}"
    return f"{'gains' if apart[0] > 0 else 'costs'} {size} points against con in {where}"


def _names(key: Objective) -> set[str]:
    return {f"P {key[0]}", f"T {key[1]}"}


def _differences(answer: Answer, names: Sequence[Objective]) -> list[Difference]:
    """Those between some objectives, each once."""
    return [answer.grid.comparison.differences[pair] for pair in combinations(names, 2)]


def _verdicts(answer: Answer, names: Sequence[Objective]) -> set[Verdict]:
    return {change.verdict for change in _differences(answer, names)} - {"unknown"}


def _where(tables: Collection[Answer], here: Collection[Answer]) -> str:
    """In which of the tables something holds: the direction of one block, or how many of them; empty for all."""
    if len(tables) == len(here):
        return ""
    if len({answer.block.slug for answer in here}) > 1:
        return f" in {len(tables)} of {len(here)} tables"
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
    alike = len(which) == len(gains) and all(gains[name].keys() == gains[which[0]].keys() for name in which)
    often = " most often," * (len(which) < len(gains))
    where = _where(gains[which[0]], compared) if alike else f"{often} in {most} of {len(compared)} tables"
    return f"better than con/con{where}: {list_text(['/'.join(name) for name in which])} ({size})"


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
        beyond = dict.fromkeys(what for answer in left for what in answer.grid.comparison.beyond_seeds)
        return [f"to tell a measured difference of {size} takes more seeds, and perhaps more {' or '.join(beyond)}"]
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


def first_words(inputs: Inputs, measures: Sequence[str]) -> tuple[str, ...]:
    """What a report says first: the findings, of a tuned sweep these answers, of one that still searches how far it is.

    Args:
        inputs: of the report.
        measures: by which.
    """
    if inputs.results.is_searching:
        return (progress_text(inputs.results),)
    tuned = [(measure, *own) for measure in measures for own in tuning_answers(inputs, measure)]
    if tuned:
        return tuple(f"{measure}. {question} {text}" for measure, question, text in tuned)
    answers = answers_of(inputs.answered)
    said = tuple(filter(None, (finding(answers, measure) for measure in measures)))
    return said or (_without_results(inputs),)


def _without_results(inputs: Inputs) -> str:
    """That nothing is finished, and why most often."""
    gaps = [gap for block in inputs.blocks for _, gap in block.gaps]
    reasons = Counter(f"{gap.status}: {gap.reason}" for gap in gaps if gap.reason)
    often = [f" {number} of {len(gaps)}: {reason}" for reason, number in reasons.most_common(1)]
    return f"Nothing is finished, so nothing can be said.{''.join(often)}"
