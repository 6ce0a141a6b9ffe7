"""What a report says first: the finding of its tables in a few sentences, and the answers of a tuned sweep.

Every clause follows from the differences of single tables, which hold together at 5 %; over several tables it says in
how many of them it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from statistics import median

from goal_sweep.analysis.blocks import Difference, Objective
from goal_sweep.analysis.report.answer import Answer, answers_of
from goal_sweep.analysis.report.changes import changes_text
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.statistics.gains import fates
from goal_sweep.analysis.statistics.trails import progress_text
from goal_sweep.analysis.wording import count_text, list_text, objectives_text, signed
from goal_sweep.sweeps.results import DIRECTION_TITLES, MEASURES, TUNED


def finding(answers: Sequence[Answer], measure: str) -> str:
    """What the tables of a measure show: whole rows or columns, what is level, what beats con/con; empty without one.

    For example "R@1: T cir costs 3.0 to 15.1 points in every row. The other 10 objectives cannot be told apart. Nothing
    is better than con/con."
    """
    here = [answer for answer in answers if answer.metric.name == measure]
    if not here:
        return ""
    if why := _nothing_to_say(here):
        return f"{measure}: {why}"
    judged = [answer for answer in here if answer.is_judged]
    rest = f" {count_text(len(here) - len(judged), 'table')} cannot be judged." if len(judged) < len(here) else ""
    parts = [*_whole_weights(judged), *_level_text(judged), _baseline_text(judged)]
    return f"{measure}: {' '.join(parts)}{rest}{_more_seeds(judged, 5.0 if measure == 'rsum' else 1.0)}"


def _nothing_to_say(here: Sequence[Answer]) -> str:
    """Why the tables allow no statement; empty if they allow one."""
    if not any(answer.others for answer in here):
        only = objectives_text(dict.fromkeys(answer.best for answer in here))
        return f"Only {only} has results, so there is nothing to compare it with."
    if all(answer.all_equal for answer in here):
        return "All objectives have the same mean."
    if not any(cell.n > 1 for answer in here for cell in answer.grid.cells.values()):
        best = Counter(key for answer in here for key in answer.top).most_common(1)[0][0]
        return f"No objective has two seeds, so no difference can be judged; {'/'.join(best)} has the highest mean."
    if not any(answer.is_judged for answer in here):
        return "Too many runs are missing to judge a difference."
    return ""


def _whole_weights(here: Sequence[Answer]) -> list[str]:
    """A sentence for each weight that is told apart from ``con`` in every row or column that can be judged."""
    found: dict[tuple[str, str], dict[Answer, tuple[float, ...]]] = {}
    for answer in here:
        for name, points in _told_apart(answer).items():
            found.setdefault((name, "costs" if points[0] < 0 else "gains"), {})[answer] = points
    said = []
    for (name, verb), tables in sorted(found.items(), key=lambda own: -max(abs(p) for t in own[1].values() for p in t)):
        sizes = sorted(abs(points) for own in tables.values() for points in own)
        lines = "row" if name.startswith("T") else "column"
        where = _where(list(tables), here)
        said.append(f"{name} {verb} {sizes[0]:.1f} to {sizes[-1]:.1f} points in every {lines}{where}.")
    return said[:3]


def _where(tables: Sequence[Answer], here: Sequence[Answer]) -> str:
    """In which of the tables something holds: the direction of one block, or how many of them; empty for all."""
    if len(tables) == len(here):
        return ""
    if len({answer.block.slug for answer in here}) > 1:
        return f", in {len(tables)} of {len(here)} tables"
    return f", {DIRECTION_TITLES[tables[0].metric.direction].lower().replace('→', 'to')}"


def _told_apart(answer: Answer) -> dict[str, tuple[float, ...]]:
    """Weights whose differences from the weight ``con`` in their rows or columns are all on one side of 0."""
    grid, made = answer.grid, {}
    for letter, names, others in (("T", grid.triplets, grid.pairs), ("P", grid.pairs, grid.triplets)):
        for name in names:
            lines = [((o, name), (o, "con")) if letter == "T" else ((name, o), ("con", o)) for o in others]
            found = (grid.comparison.differences.get(line) for line in lines)
            known = [change for change in found if change is not None and change.verdict != "unknown"]
            verdicts = {change.verdict for change in known}
            if len(known) > max(1, len(others) / 2) and verdicts in ({"worse"}, {"better"}):
                made[f"{letter} {name}"] = tuple(change.estimate for change in known)
    return made


def _left_over(answer: Answer) -> list[Objective]:
    """The objectives outside the rows and columns that cost something."""
    costly = {name for name, points in _told_apart(answer).items() if points[0] < 0}
    return [key for key in answer.grid.means if not {f"P {key[0]}", f"T {key[1]}"} & costly]


def _differences(answer: Answer) -> list[Difference]:
    """Those between the objectives that are left over, each once."""
    left, known = _left_over(answer), answer.grid.comparison.differences
    return [known[one, other] for at, one in enumerate(left) for other in left[at + 1 :]]


def _level_text(here: Sequence[Answer]) -> list[str]:
    """In how many tables the objectives that are left over cannot be told apart."""
    level = [
        answer for answer in here if {change.verdict for change in _differences(answer)} - {"unknown"} == {"level"}
    ]
    if not level:
        return []
    sizes = {len(_left_over(answer)) for answer in level}
    whole = len(sizes) == 1 and all(len(_left_over(answer)) == len(answer.grid.means) for answer in level)
    number = f" {sizes.pop()}" if len(sizes) == 1 else ""
    which = f"None of the{number} objectives can" if whole else f"The other{number} objectives cannot"
    return [f"{which} be told apart{_where(level, here)}."]


def _baseline_text(here: Sequence[Answer]) -> str:
    """What is better than con/con, and in how many tables."""
    compared = [answer for answer in here if answer.grid.comparison.from_baseline]
    if not compared:
        return "con/con is not among the finished objectives, so there is no gain over it."
    gains: dict[Objective, list[float]] = {}
    for answer in compared:
        for name, change in answer.grid.comparison.from_baseline.items():
            if change.verdict == "better":
                gains.setdefault(name, []).append(change.estimate)
    if not gains:
        return "Nothing is better than con/con beyond noise."
    tables = sum(any(c.verdict == "better" for c in a.grid.comparison.from_baseline.values()) for a in compared)
    most = max(map(len, gains.values()))
    which = sorted((name for name in gains if len(gains[name]) == most), key=lambda name: -max(gains[name]))
    points = [point for name in which for point in gains[name]]
    size = signed(points[0]) if len(points) == 1 else f"{signed(min(points))} to {signed(max(points))}"
    often = f" in {tables} of {len(compared)} tables, most often" if len(compared) > 1 else ":"
    return f"Better than con/con{often} {list_text(['/'.join(name) for name in which])} ({size})."


def _more_seeds(here: Sequence[Answer], points: float) -> str:
    """How many more seeds would tell a difference of some points, by the intervals of what cannot be told apart.

    An interval's square is the sum of a part that falls with the number of seeds and one, of test images and searches,
    that does not. The factor of both falls with the seeds too, which is left out: the number is an upper one.
    """
    level = [change for answer in here for change in _differences(answer) if change.verdict == "level"]
    if not level:
        return ""
    of_seeds = median((change.seed_ends[1] - change.seed_ends[0]) / 2 for change in level)
    reach = median((change.ends[1] - change.ends[0]) / 2 for change in level)
    runs = median(answer.grid.cells[name].n for answer in here for name in _left_over(answer))
    if reach <= points:
        return ""
    size, left = count_text(int(points), "point"), points**2 - max(0.0, reach**2 - of_seeds**2)
    if left <= 0:
        beyond = dict.fromkeys(what for answer in here for what in answer.grid.comparison.beyond_seeds)
        return f" A difference of {size} would take more seeds, and perhaps more {' or '.join(beyond)}."
    more = ceil(runs * of_seeds**2 / left - runs)
    return f" At most about {count_text(more, 'more seed')} would tell a difference of {size}."


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
        wins = Counter(key for answer in tuned for key in answer.top)
        most = max(wins.values())
        names = list_text(["/".join(key) for key, number in wins.items() if number == most])
        return f"{names}: the highest mean in {most} of {len(tuned)} tables."
    said = []
    for answer in tuned:
        where = "" if answer.metric.direction == "both" else f"{answer.metric.title}: "
        level = "not told apart from it: " * answer.is_judged + answer.level_text
        said.append(f"{where}{answer.best_text}, {answer.mean}; {level}.")
    return " ".join(said)


def _gain_text(inputs: Inputs, measure: str) -> str:
    """How many objectives tuning raises and lowers by more than noise, over all tables of a measure."""
    gains = [gain for own in inputs.gained.values() for m, g in own.items() if m.name == measure for gain in g.values()]
    same = sum(gain.same for gain in gains if gain.difference is not None)
    kept = f" In {count_text(same, 'square')} of the tables the choice was the default." if same else ""
    text = changes_text(gains)
    if text:
        return f"{text[0].upper()}{text[1:]}.{kept}"
    return f"Nothing.{kept}" if same else "No objective has results in both grids."


def _fates_text(inputs: Inputs, measure: str) -> str:
    """What becomes of the pairs that the default grid tells apart, over all tables of a measure."""
    counts = Counter[str]()
    for pair in inputs.pairs:
        for default in pair.default.grids_of(measure):
            counts.update(fates(default.comparison, pair.tuned.grids[default.metric.key].comparison))
    if not counts.total():
        return "The default grid tells no two objectives apart."
    return (
        f"Of {count_text(counts.total(), 'pair')} told apart by default, the tuned grid confirms "
        f"{counts['confirmed']}, reverses {counts['reversed']} and leaves {counts['undecided']} undecided."
    )


def tuning_notes(inputs: Inputs) -> tuple[str, ...]:
    """The same for a terminal, or how far the search is; empty unless the sweep is tuned."""
    if inputs.results.is_searching:
        return (progress_text(inputs.results),)
    said: Mapping[str, tuple[tuple[str, str], ...]] = {
        m: tuning_answers(inputs, m) for m in (MEASURES[0], MEASURES[-1])
    }
    return tuple(f"{measure}. {question} {text}" for measure, own in said.items() for question, text in own)
