"""What a reader must know of a whole report before any number: how complete it is, and what speaks against numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from goal_sweep.analysis.blocks import Block
from goal_sweep.analysis.figures.fonts import undrawable
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import TEST_SELECTION_WARNING, missing_counts, stages_selected_on_test
from goal_sweep.analysis.statistics.trails import progress_text, values_tried
from goal_sweep.analysis.wording import count_text, list_text, seeds_text
from goal_sweep.sweeps.axes import value_text
from goal_sweep.sweeps.results import TUNED, Header

_SEARCHES: Final = {"random": "random search", "tpe": "TPE"}
_FLAWS: Final = {
    "below_warmup": "BELOW THE WARM-UP: {} reached a val rsum more than 5 % below that of their own warm-up epochs. "
    "Their numbers show how much an objective undid, not what it can do",
    "weak_objective": "WEAK OBJECTIVE: in {} the objective's gradient was below 1 % of that of matching in at least "
    "one epoch. Matching alone may have trained these models",
}
"""What speaks against a training's numbers: the column that says so, and the words of the report."""


def summary(results: SweepResults, blocks: Sequence[Block]) -> str:
    """For example "132 of 135 trainings (cell and stage) are finished; missing: 2 failed, 1 waiting."."""
    gaps, done, header = missing_counts(results, blocks), len(results.counted), results.header
    missing = f"; missing: {', '.join(f'{count} {status}' for status, count in gaps.items())}" if gaps else ""
    scope = f"{count_text(len(header.objectives), 'objective')}, {seeds_text(header.seeds)}"
    tuning = f"{progress_text(results)} " if results.is_searching else ""
    return f"{tuning}{done} of {done + gaps.total()} trainings (cell and stage) are finished{missing}. {scope}."


def notes(inputs: Inputs) -> list[str]:
    """All notes, the most important first."""
    results, blocks = inputs.results, inputs.blocks
    return [
        *_axes_note(results),
        *_tuning_note(results),
        *_selection_note(results, blocks),
        *_source_note(results),
        *(f"Sweep {label!r}: {note}" for label, other in inputs.others.items() for note in imported_note(other)),
        *_font_note(inputs.sweeps, blocks),
        *_flaw_notes(results, blocks),
        *_stacked_notes(results, blocks),
    ]


def imported_note(results: SweepResults) -> list[str]:
    """How many of the counted trainings were computed elsewhere, and which archives they came from."""
    origins = results.counted["imported"]
    archives = sorted(set(origins) - {""})
    if not archives:
        return []
    imported = f"{(origins != '').sum()} of {len(origins)} trainings"
    return [
        f"IMPORTED: the numbers of {imported} were computed elsewhere and are not verified. "
        f"Archives: {list_text(archives)}."
    ]


def _axes_note(results: SweepResults) -> list[str]:
    """Of which point of the axes the report speaks first."""
    header = results.header
    if not header.axes:
        return []
    last = header.stages[-1]
    axes = "; ".join(f"{name} {', '.join(map(value_text, axis.values))}" for name, axis in header.axes_of(last).items())
    return [
        f"AXES: {axes}. The finding and the statistics are those of the first values ({header.points[last][0]}), not "
        "of the highest; the highest mean of each point is under Ablations."
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
        f"TUNED: each objective had a budget of {count_text(tune.budget, 'candidate')} ({_SEARCHES[tune.search]}, "
        f"search seed {tune.search_seed}) over {', '.join(results.header.dimensions)}, scored by {tune.metric} "
        f"with {seeds_text(tune.seeds)}.{_sizes_text(results.header)} The answer is given for both grids; curves and "
        f"statistics over blocks are those of the {speak}. No candidate is in any table, and none has a test number."
    ]


def _sizes_text(header: Header) -> str:
    """How much of its space each objective's budget covers, if they differ: the smallest space and the largest."""
    by_size = sorted(header.trails, key=lambda trail: -values_tried(header, trail))
    first, last = by_size[0], by_size[-1]
    if len(first.names) == len(last.names):
        return ""
    said = (
        f"{values_tried(header, own):.1f} values of each of the {len(own.names)} settings of {'/'.join(own.objective)}"
        for own in (first, last)
    )
    return f" The spaces differ in size: the candidates amount to {' and to '.join(said)}."


def _selection_note(results: SweepResults, blocks: Iterable[Block]) -> list[str]:
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


def _font_note(names: Iterable[str], blocks: Iterable[Block]) -> list[str]:
    """Which characters of the names of sweeps, blocks and objectives figures cannot show."""
    cells = {"".join(objective) for block in blocks for objective in block.cells}
    lost = undrawable("".join([*names, *(block.key.title for block in blocks), *sorted(cells)]))
    if not lost:
        return []
    return [
        f"No font on this machine has {' '.join(lost)}; figures show boxes for these characters. Install a font "
        "that has them, such as one of the Noto fonts, and write the report again."
    ]


def _flaw_notes(results: SweepResults, blocks: Iterable[Block]) -> list[str]:
    """Warnings for each block with trainings whose own epochs speak against their numbers, and which these are."""
    warnings = []
    for block in blocks:
        here = results.of_block(results.counted, block.key)
        for column, text in _FLAWS.items():
            flawed = here[here[column] != ""]
            if flawed.empty:
                continue
            seeds = flawed["seed"].groupby(flawed["pair"] + "/" + flawed["triplet"], sort=False)
            which = list_text([f"{name} ({seeds_text(sorted(own))})" for name, own in seeds])
            how_many = f"{len(flawed)} of {len(here)} trainings of {block.key.title}"
            warnings.append(f"{text.format(how_many)}: {which}.")
    return warnings


def _stacked_notes(results: SweepResults, blocks: Iterable[Block]) -> list[str]:
    """A warning for each block in which the heads of some trainings were stacked and those of others not."""
    warnings = []
    for block in blocks:
        shares = results.of_block(results.counted, block.key)["stacked"]
        whole, stacked = int((shares == 1).sum()), int(shares.notna().sum())
        if stacked and whole < len(shares):
            warnings.append(
                f"{block.key.title}: the heads of {whole} of {len(shares)} trainings were stacked in every step, and "
                f"those of {stacked - whole} in some. Stacked and single heads agree but for rounding, which training "
                "enlarges."
            )
    return warnings
