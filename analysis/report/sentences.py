"""What a report says in sentences.

Before any number: how complete it is, and what speaks against its numbers. Below the tables: what follows from their
comparisons, by measure. Over several blocks these sentences say in how many tables they hold.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from goal_sweep.analysis.blocks import ALPHA, BlockResults
from goal_sweep.analysis.report.answer import Answer, answers_of, weight_changes
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics import aggregation
from goal_sweep.analysis.statistics.comparison import FACTORS
from goal_sweep.analysis.wording import count_text, list_text, objectives_text, seeds_text, span_text
from goal_sweep.sweeps.results import TUNED

_FLAWS: Final = {
    "below_warmup": "BELOW THE WARM-UP: {} reached a val rsum more than 5 % below that of their own warm-up epochs. "
    "Their numbers show how much an objective undid, not what it can do",
    "weak_objective": "WEAK OBJECTIVE: in {} the objective's gradient was below 1 % of that of matching in at least "
    "one epoch. Matching alone may have trained these models",
}
"""What speaks against a training's numbers: the column that says so, and the words of the report."""


def summary(results: SweepResults, blocks: Sequence[BlockResults]) -> str:
    """For example "132 of 135 trainings are finished; missing: 2 failed, 1 waiting."."""
    gaps, done, header = aggregation.missing_counts(results, blocks), len(results.counted), results.header
    missing = f"; missing: {', '.join(f'{count} {status}' for status, count in gaps.items())}" if gaps else ""
    scope = f"{count_text(len(header.objectives), 'objective')}, {seeds_text(header.seeds)}"
    tuning = f"{progress_text(results)} " if results.is_searching else ""
    return f"{tuning}{done} of {done + gaps.total()} trainings are finished{missing}. {scope}."


def progress_text(results: SweepResults) -> str:
    """How far a sweep that has not chosen yet has come: "Still tuning: 12 of 16 candidates per objective; ..."."""
    ended: Counter[tuple[str, ...]] = Counter()
    for key, runs in results.candidates.groupby(["backbone", "pair", "triplet", "candidate"]):
        ended[tuple(map(str, key[:-1]))] += int(runs["status"].isin(("done", "failed")).all())
    budget = results.header.tune.budget if results.header.tune else 0
    low, high = min(ended.values(), default=0), max(ended.values(), default=0)
    number = str(low) if low == high else f"{low} to {high}"
    done = len(results.counted)
    cells = f"{count_text(done, 'reporting run')} done" if done else "no reporting cell yet"
    return f"Still tuning: {number} of {budget} candidates per objective; {cells}."


def notes(inputs: aggregation.Inputs) -> list[str]:
    """All notes, the most important first."""
    results, blocks = inputs.results, inputs.blocks
    first = [*_tuning_note(results), *_selection_note(results, blocks)]
    return [*first, *_source_note(results), *flaws(results, blocks)]


def _tuning_note(results: SweepResults) -> list[str]:
    tune = results.header.tune
    if tune is None:
        return []
    if results.is_searching:
        return ["STILL TUNING: nothing is chosen yet, so there is no tuned grid. No candidate is in any table."]
    speak = "tuned grid" if results.main_grid == TUNED else "default grid, for the tuned one has no number yet"
    return [
        f"TUNED: each objective had a budget of {count_text(tune.budget, 'candidate')} ({tune.search} search, seed "
        f"{tune.search_seed}) over {', '.join(results.header.dimensions)}, scored by {tune.metric} with "
        f"{seeds_text(tune.seeds)}. Curves and weights are those of the {speak}. No candidate is in any table, and "
        "none has a test number. Another search might choose other settings; intervals do not count that."
    ]


def _selection_note(results: SweepResults, blocks: Iterable[BlockResults]) -> list[str]:
    titles = "; ".join(one.key.title for one in blocks if aggregation.stages_selected_on_test(results, one.key))
    said = f"SELECTED ON TEST, directly or in an earlier stage: {titles}. {aggregation.TEST_SELECTION_WARNING}"
    return [said] if titles else []


def _source_note(results: SweepResults) -> list[str]:
    """The number of counted trainings that cannot be reproduced from a commit alone."""
    changes = results.counted["git_diff"]
    kinds = sorted(set(changes) - {""})
    if not kinds:
        return []
    which = f"{len(kinds)} different: {list_text(kinds)}" if len(kinds) > 1 else f"all the same: {kinds[0]}"
    modified = f"{(changes != '').sum()} of {len(changes)} trainings"
    return [f"{modified} ran from a source tree with uncommitted changes ({which})."]


def flaws(results: SweepResults, blocks: Iterable[BlockResults]) -> list[str]:
    """What the epochs of a block's trainings say against them."""
    warnings = []
    for block in blocks:
        here, title = results.of_block(results.counted, block.key), block.key.title
        for column, text in _FLAWS.items():
            flawed = here[here[column] != ""]
            seeds = flawed.groupby(["pair", "triplet"], sort=False)["seed"]
            names = {objectives_text([(str(p), str(t))]): seeds_text(sorted(own)) for (p, t), own in seeds}
            which = list_text([f"{name} ({own})" for name, own in names.items()])
            if which:
                warnings.append(f"{text.format(f'{len(flawed)} of {len(here)} trainings of {title}')}: {which}.")
    return warnings


_MOST = 3
"""Weights that a sentence names, the largest differences first."""


def sentences(answers: Sequence[Answer], measure: str) -> list[str]:
    """What the tables of a measure say beside the answer table: which weight costs or gains how much against con."""
    here = [answer for answer in answers if answer.grid.metric.name == measure]
    tested = [answer for answer in here if answer.grid.comparison.is_tested]
    if not tested:
        return _untested(here)
    said = _weights(tested)
    if len(tested) < len(here):
        left = count_text(len(here) - len(tested), "table")
        said.append(f"{left} cannot be tested: runs are missing, or no difference varies between seeds.")
    return said


def _untested(here: Sequence[Answer]) -> list[str]:
    cells = [cell for answer in here for cell in answer.grid.cells.values() if len(answer.grid.means) > 1]
    if not cells:
        return []
    if all(cell.n < 2 for cell in cells):
        return ["No objective has two seeds, so nothing is tested."]
    why = "runs are missing" if any(cell.gaps for cell in cells) else "no difference varies between seeds"
    return [f"Nothing is tested, because {why}."]


def _weights(tested: Sequence[Answer]) -> list[str]:
    """For example "Against con, averaged over the other weight: triplet weight cir costs 7.1 to 9.6 points."."""
    tables = [answer.grid.weights.comparisons for answer in tested if answer.grid.weights.comparisons]
    if not any("con" in own[factor].names for own in tables for factor in FACTORS):
        return []
    clauses = [
        f"{what} {'gains' if verdict == 'better' else 'costs'} {span_text(sizes)} points{_where(len(sizes), tables)}"
        for (what, verdict), sizes in sorted(weight_changes(tested).items(), key=lambda own: -max(own[1]))
    ]
    mixed = sum(own["interaction"].smallest_p < ALPHA for own in tables)
    depends = f"; pair and triplet weights interact{_where(mixed, tables)}" if mixed and clauses else ""
    less = f", {len(clauses) - _MOST} others less" if len(clauses) > _MOST else ""
    text = ", ".join(clauses[:_MOST]) + less or "no weight differs significantly"
    return [f"Against con, averaged over the other weight: {text}{depends}."]


def _where(number: int, tables: Sequence[object]) -> str:
    return "" if number == len(tables) else f" ({number} of {len(tables)} tables)"


def first_words(inputs: aggregation.Inputs, measures: Sequence[str]) -> tuple[str, ...]:
    """What a report says first by some measures, a line for each grid; of a sweep that still searches how far it is."""
    if inputs.results.is_searching:
        return (progress_text(inputs.results),)
    found = [(measure, grid, texts) for measure in measures for grid, texts in said(inputs, measure).items()]
    lines = [f"{measure}{f', {grid}' if grid else ''}: {' '.join(texts)}" for measure, grid, texts in found]
    return tuple(lines) or (_without_results(inputs),)


def said(inputs: aggregation.Inputs, measure: str) -> dict[str, list[str]]:
    """The sentences by grid: ``default grid`` and ``tuned grid`` of a tuned sweep, else an empty name."""
    answers, found = answers_of(inputs.answered), {}
    for grid in dict.fromkeys(answer.block.key.grid for answer in answers):
        here = [answer for answer in answers if answer.block.key.grid == grid]
        found[f"{grid} grid" if grid else ""] = sentences(here, measure)
    return found


def _without_results(inputs: aggregation.Inputs) -> str:
    """That nothing is finished, and why most often."""
    gaps = [gap for block in inputs.blocks for _, gap in block.gaps]
    reasons = Counter(f"{gap.status}: {gap.reason}" for gap in gaps if gap.reason)
    often = [f" {number} of {len(gaps)}: {reason}" for reason, number in reasons.most_common(1)]
    return f"Nothing is finished, so nothing can be said.{''.join(often)}"
