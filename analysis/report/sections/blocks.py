"""The sections on single blocks: their tables and heatmaps, what is missing, and the settings."""

from __future__ import annotations

import pandas as pd

from goal_sweep.analysis.blocks import BlockResults
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import GridTable, Section, TextTable
from goal_sweep.analysis.wording import numbers_text, seeds_text
from goal_sweep.goal_core.evaluation.metrics import MEASURES


def block_section(block: BlockResults, colour: str, *, folded: bool) -> Section:
    """A block's tables and heatmaps in its full ``colour``, or a warning if nothing is finished."""
    num_gaps, grids, warnings = len(block.gaps), tuple[GridTable, ...](), tuple[str, ...]()
    if block.is_empty:
        warnings = (f"Nothing of this block is finished: {num_gaps} runs are missing. {block.protocol}",)
    else:
        grids = tuple(GridTable(block=block, measure=measure, colour=colour) for measure in MEASURES)
    return Section(
        anchor=block.key.slug,
        title=block.key.title,
        num_missing=num_gaps,
        warnings=warnings,
        grids=grids,
        folded=folded and not block.is_empty,
    )


def missing_section(inputs: Inputs) -> Section | None:
    """All missing results: a row for the objectives that lack the same seeds for the same reason; None without any."""
    gaps = [(b.key.title, name, gap.seed, gap.status, gap.reason) for b in inputs.blocks for name, gap in b.gaps]
    if not gaps:
        return None
    head = ["block", "objectives", "seeds", "status", "reason"]
    of_objectives = pd.DataFrame(gaps, columns=head).groupby([head[0], head[1], *head[3:]], sort=False)["seeds"]
    rows = (
        of_objectives.agg(numbers_text).reset_index().groupby([head[0], "seeds", *head[3:]], sort=False)["objectives"]
    )
    asked = {b.key.title: sum(cell.requested for cell in b.cells.values()) for b in inputs.blocks}
    listed = [
        (title, f"all {len(names)}" if len(names) == asked[title] > 1 else ", ".join(names), *rest)
        for (title, *rest), names in ((list(map(str, place)), own) for place, own in rows)
    ]
    table = TextTable(title="By block and reason", head=tuple(head), rows=tuple(listed), words=len(head))
    return Section(anchor="missing", title="Missing results", tables=(table,))


def settings_section(inputs: Inputs) -> Section | None:
    """The settings of the trainings, each with all values that occur."""
    results = inputs.results
    runs = results.counted
    if runs.empty:
        return None
    values = {str(name): sorted(set(own) - {""}) for name, own in results.settings(runs).items() if name != "seed"}
    rows = tuple((name, ", ".join(own)) for name, own in sorted(values.items()) if own)
    data = ", ".join(sorted(set(runs["data_fingerprint"])))
    paragraph = f"{seeds_text(results.header.seeds).capitalize()}. Data fingerprint {data}."
    if stacked := int(runs["stacked"].notna().sum()):
        paragraph += f" In {stacked} of {len(runs)} trainings the heads trained as a stack with those of other cells."
    table = TextTable(title="All trainings", head=("setting", "values"), rows=rows, words=2)
    tables = (table,) if rows else ()
    return Section(anchor="settings", title="Settings", paragraphs=(paragraph,), tables=tables)
