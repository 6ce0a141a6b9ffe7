"""What a reader must know of a whole report before any number: how complete it is, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.blocks import Block, count_text, list_text, seeds_text
from analysis.figures import undrawable
from analysis.report.tuning import still_tuning
from analysis.statistics import TEST_SELECTION_WARNING, counted, missing_counts, stages_selected_on_test
from analysis.tracking import SweepRuns


def font_note(names: Iterable[str], blocks: Iterable[Block]) -> list[str]:
    """Which characters of the names of sweeps, blocks and objectives figures cannot show."""
    blocks = tuple(blocks)
    cells = {"".join(objective) for block in blocks for grid in block.grids.values() for objective in grid.cells}
    lost = undrawable("".join([*names, *(block.key.title for block in blocks), *sorted(cells)]))
    if not lost:
        return []
    return [
        f"No font on this machine has {' '.join(lost)}; figures show the code points of these characters. Install a "
        "font that has them, such as one of the Noto fonts, and write the report again."
    ]


def selection_note(sweep: SweepRuns, blocks: Iterable[Block]) -> list[str]:
    """Which blocks were selected on the test split."""
    on_test = [block.key.title for block in blocks if stages_selected_on_test(sweep, block.key)]
    if not on_test:
        return []
    return [f"SELECTED ON TEST, directly or in an earlier stage: {'; '.join(on_test)}. {TEST_SELECTION_WARNING}"]


def source_note(sweep: SweepRuns) -> list[str]:
    """The number of counted trainings that cannot be reproduced from a commit alone."""
    changes = counted(sweep)["git_diff"]
    kinds = sorted(set(changes) - {""})
    if not kinds:
        return []
    which = f"{len(kinds)} different: {list_text(kinds)}" if len(kinds) > 1 else f"all the same: {kinds[0]}"
    modified = f"{(changes != '').sum()} of {len(changes)} trainings"
    return [f"{modified} ran from a source tree with uncommitted changes ({which})."]


def imported_note(sweep: SweepRuns) -> list[str]:
    """How many of the counted trainings were computed elsewhere, and which archives they came from."""
    origins = counted(sweep)["imported"]
    archives = sorted(set(origins) - {""})
    if not archives:
        return []
    imported = f"{(origins != '').sum()} of {len(origins)} trainings"
    return [
        f"IMPORTED: the numbers of {imported} were computed elsewhere and are not verified. "
        f"Archives: {list_text(archives)}."
    ]


def summary(sweep: SweepRuns, blocks: Sequence[Block]) -> str:
    """For example "132 of 135 trainings (cell and stage) are finished; missing: 2 failed, 1 waiting."."""
    gaps = missing_counts(sweep, blocks)
    counts = ", ".join(f"{count} {status}" for status, count in gaps.items())
    done = len(counted(sweep))
    missing = f"; missing: {counts}" if gaps else ""
    scope = f"{count_text(len(sweep.objectives), 'objective')}, {seeds_text(sweep.seeds)}"
    tuning = f"{still_tuning(sweep)} " if sweep.grids and sweep.tuning is None else ""
    return f"{tuning}{done} of {done + gaps.total()} trainings (cell and stage) are finished{missing}. {scope}."
