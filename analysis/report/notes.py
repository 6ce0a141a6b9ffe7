"""What a reader must know of a whole report before any number: how complete it is, and what speaks against numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from goal_sweep.analysis.blocks import BlockResults
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import TEST_SELECTION_WARNING, missing_counts, stages_selected_on_test
from goal_sweep.analysis.wording import count_text, list_text, seeds_text
from goal_sweep.sweeps.axes import value_text
from goal_sweep.sweeps.results import TUNED

_FLAWS: Final = {
    "below_warmup": "BELOW THE WARM-UP: {} reached a val rsum more than 5 % below that of their own warm-up epochs. "
    "Their numbers show how much an objective undid, not what it can do",
    "weak_objective": "WEAK OBJECTIVE: in {} the objective's gradient was below 1 % of that of matching in at least "
    "one epoch. Matching alone may have trained these models",
}
"""What speaks against a training's numbers: the column that says so, and the words of the report."""


def summary(results: SweepResults, blocks: Sequence[BlockResults]) -> str:
    """For example "132 of 135 trainings (cell and stage) are finished; missing: 2 failed, 1 waiting."."""
    gaps, done, header = missing_counts(results, blocks), len(results.counted), results.header
    missing = f"; missing: {', '.join(f'{count} {status}' for status, count in gaps.items())}" if gaps else ""
    scope = f"{count_text(len(header.objectives), 'objective')}, {seeds_text(header.seeds)}"
    tuning = f"{progress_text(results)} " if results.is_searching else ""
    return f"{tuning}{done} of {done + gaps.total()} trainings (cell and stage) are finished{missing}. {scope}."


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


def notes(inputs: Inputs) -> list[str]:
    """All notes, the most important first."""
    results, blocks = inputs.results, inputs.blocks
    return [
        *_axes_note(results),
        *_tuning_note(results),
        *_selection_note(results, blocks),
        *_source_note(results),
        *_flaw_notes(results, blocks),
    ]


def _axes_note(results: SweepResults) -> list[str]:
    """Of which configuration of the axes the report speaks first."""
    header = results.header
    if not header.axes:
        return []
    last = header.stages[-1]
    axes = "; ".join(f"{name} {', '.join(map(value_text, axis.values))}" for name, axis in header.axes_of(last).items())
    return [
        f"AXES: {axes}. The first sentences and the statistics are those of the first values "
        f"({header.configurations[last][0]}), not of the highest; the highest mean of each is under Ablations."
    ]


def _tuning_note(results: SweepResults) -> list[str]:
    """What a reader must know of a tuned sweep."""
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
    """Which blocks were selected on the test split."""
    on_test = [block.key.title for block in blocks if stages_selected_on_test(results, block.key)]
    if not on_test:
        return []
    return [f"SELECTED ON TEST, directly or in an earlier stage: {'; '.join(on_test)}. {TEST_SELECTION_WARNING}"]


def _source_note(results: SweepResults) -> list[str]:
    """The number of counted trainings that cannot be reproduced from a commit alone."""
    changes = results.counted["git_diff"]
    kinds = sorted(set(changes) - {""})
    if not kinds:
        return []
    which = f"{len(kinds)} different: {list_text(kinds)}" if len(kinds) > 1 else f"all the same: {kinds[0]}"
    modified = f"{(changes != '').sum()} of {len(changes)} trainings"
    return [f"{modified} ran from a source tree with uncommitted changes ({which})."]


def _flaw_notes(results: SweepResults, blocks: Iterable[BlockResults]) -> list[str]:
    """What speaks against trainings of a block: their own epochs, and heads that were stacked for some alone."""
    warnings = []
    for block in blocks:
        here, title = results.of_block(results.counted, block.key), block.key.title
        for column, text in _FLAWS.items():
            flawed = here[here[column] != ""]
            seeds = flawed["seed"].groupby(flawed["pair"] + "/" + flawed["triplet"], sort=False)
            which = list_text([f"{name} ({seeds_text(sorted(own))})" for name, own in seeds])
            if which:
                warnings.append(f"{text.format(f'{len(flawed)} of {len(here)} trainings of {title}')}: {which}.")
        whole, stacked = int((here["stacked"] == 1).sum()), int(here["stacked"].notna().sum())
        if stacked and whole < len(here):
            warnings.append(
                f"{title}: the heads of {whole} of {len(here)} trainings were stacked in every step, and those of "
                f"{stacked - whole} in some. Stacked and single heads agree but for rounding, which training enlarges."
            )
    return warnings
