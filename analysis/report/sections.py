"""The sections on blocks, missing results, single weights, differences, settings and runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import pandas as pd

from analysis import run_schema as schema
from analysis.blocks import Block, BlockKey, Grid, list_text, mean_text, number_text, p_text, seeds_text
from analysis.report.document import FigureLink, GridTable, Section
from analysis.report.tables import TextTable
from analysis.statistics import MARGINAL_COLUMNS, MAX_EXACT, can_be_significant, counted, of_block, of_grid
from analysis.tracking import SweepRuns


def block_section(block: Block, colour: str) -> Section:
    """A block's tables and heatmaps in its full ``colour``, or a warning if nothing is finished."""
    title, num_gaps = block.key.title, len(block.gaps)
    if block.is_empty:
        warning = f"Nothing of this block is finished: {num_gaps} runs are missing. {block.protocol}"
        return Section(anchor=block.slug, title=title, num_missing=num_gaps, warnings=(warning,))
    grids = []
    for measure in schema.MEASURES:
        path = f"heatmaps/{block.slug}-{schema.measure_slug(measure)}.png"
        heatmap = FigureLink(path=path, title=f"Heatmap of {measure}: {title}")
        grids.append(GridTable(block=block, measure=measure, colour=colour, heatmap=heatmap))
    return Section(anchor=block.slug, title=title, num_missing=num_gaps, tables=tuple(grids))


def recalls_section(blocks: Iterable[Block]) -> Section | None:
    """A table for each block with a number: all recalls, a row for each objective; None without such a block."""
    tables = tuple(_recalls(block) for block in blocks if not block.is_empty)
    return Section(anchor="recalls", title="All recalls by objective", tables=tables) if tables else None


def _recalls(block: Block) -> TextTable:
    """All recalls of a block: a row for each objective, highest mean rsum first."""
    grids = list(block.grids.values())
    cells = grids[-1].cells
    ordered = sorted((key for key, c in cells.items() if c.requested), key=lambda key: -(cells[key].mean or 0.0))
    return TextTable(
        title=block.key.title,
        head=("objective", *(grid.metric.label for grid in grids), "n"),
        rows=tuple(
            ("/".join(key), *(number_text(grid.cells[key], with_n=False) for grid in grids), str(cells[key].n))
            for key in ordered
        ),
        note="Mean ± standard deviation (ddof = 1) over n seeds.",
        page_only=True,
    )


def missing_section(sweep: SweepRuns, blocks: Iterable[Block]) -> Section | None:
    """All missing results, and the runs that do not count; None if there are neither."""
    tables = []
    if rows := [row for block in blocks for row in _missing_rows(block)]:
        columns = ("block", "objectives", "seeds", "status", "reason")
        tables.append(TextTable(title="Missing", head=columns, rows=tuple(rows), words=len(columns)))
    uncounted = sweep.runs[(sweep.runs["excluded"] != "") & ~sweep.runs["excluded"].isin(schema.STATUSES)]
    if not uncounted.empty:
        reasons = tuple(
            (str(r["run_name"]), str(r["run_id"]), str(r["excluded"])) for r in uncounted.to_dict("records")
        )
        head = ("run", "MLflow id", "reason")
        tables.append(TextTable(title="Runs that do not count", head=head, rows=reasons, words=3))
    return Section(anchor="missing", title="Missing and uncounted results", tables=tuple(tables)) if tables else None


def _missing_rows(block: Block) -> list[tuple[str, ...]]:
    """A row for all objectives that lack the same seeds for the same reason, so that a lost stage is one row."""
    seeds: dict[tuple[str, str, str], list[int]] = {}
    for objective, gap in block.gaps:
        seeds.setdefault((objective, gap.status, gap.reason), []).append(gap.seed)
    objectives: dict[tuple[str, str, str], list[str]] = {}
    for (objective, status, reason), numbers in seeds.items():
        objectives.setdefault((", ".join(map(str, numbers)), status, reason), []).append(objective)
    requested = sum(cell.requested for cell in next(iter(block.grids.values())).cells.values())
    return [
        (block.key.title, f"all {requested}" if len(names) == requested > 1 else ", ".join(names), *rest)
        for rest, names in objectives.items()
    ]


def weights_section(marginals: pd.DataFrame) -> Section | None:
    """A table for each block with the mean of each weight, from `analysis.statistics.marginals` of both factors."""
    tables = []
    for key, frame in marginals.groupby(list(MARGINAL_COLUMNS)):
        if not frame["n"].any():
            continue  # an incomplete grid may have no complete row or column
        rows = [
            (f"{'P' if factor == 'pair' else 'T'} {level}", *_marginal_numbers(part), str(part["n"].iloc[0]))
            for (factor, level), part in frame.groupby(["factor", "level"], sort=False)
        ]
        tables.append(
            TextTable(
                title=BlockKey(**dict(zip(MARGINAL_COLUMNS, map(str, key), strict=True))).title,
                head=("weight", *(metric.title for metric in schema.MAIN_METRICS), "n seeds"),
                rows=tuple(rows),
                note="Mean over the other weight within each seed, then mean ± standard deviation (ddof = 1) over "
                "the n seeds with every cell of that row or column.",
            )
        )
    return Section(anchor="marginals", title="Each weight on its own", tables=tuple(tables)) if tables else None


def _marginal_numbers(part: pd.DataFrame) -> list[str]:
    rows = [_of_metric(part, metric).iloc[0] for metric in schema.MAIN_METRICS]
    return [mean_text(row["mean"], row["std"]) if row["n"] else "--" for row in rows]


def differences_section(differences: pd.DataFrame, blocks: Sequence[Block]) -> Section | None:
    """A table of the differences from con/con for each stage and main metric.

    A stage of one block is judged by the rule of the marks. Over several blocks the pairs of all blocks are pooled, and
    p-values are shown only if their number allows any to be significant.

    Args:
        differences: from `analysis.statistics.paired_differences`.
        blocks: all blocks of the sweep.
    """
    tables = []
    for stage, frame in differences.groupby("stage", sort=False):
        here = [block for block in blocks if block.key.stage == stage and not block.is_empty]
        for metric in schema.MAIN_METRICS:
            rows = _of_metric(frame, metric)
            if not rows.empty:
                of_stage = _of_block(here[0].grids[metric.key], rows) if len(here) == 1 else _pooled(rows)
                tables.append(replace(of_stage, title=f"{metric.title}, stage {stage}"))
    return Section(anchor="differences", title="Differences from con/con", tables=tuple(tables)) if tables else None


def _of_block(grid: Grid, frame: pd.DataFrame) -> TextTable:
    rows = []
    for row in frame.to_dict("records"):
        found = grid.from_baseline[row["pair"], row["triplet"]]
        p = "--" if found.p is None else p_text(found.p)
        name = f"{row['pair']}/{row['triplet']}"
        rows.append((name, f"{found.estimate:+.2f}", _interval(found.low, found.high), str(row["n"]), p))
    note = (
        "Objective minus con/con, of runs with the same seed. Intervals and p are corrected for the comparisons of all "
        "objectives with each other, with their noise pooled. An objective that may be far noisier than the others has "
        "a wider interval of its own."
    )
    head = ("objective", "difference", "95 % interval", "n pairs", "p")
    return TextTable(title="", head=head, rows=tuple(rows), note=note)


def _pooled(frame: pd.DataFrame) -> TextTable:
    n, with_p = int(frame["n"].max()), can_be_significant(frame)
    rows = tuple(
        (
            f"{r['pair']}/{r['triplet']}",
            f"{r['difference']:+.2f}",
            _interval(r["low"], r["high"]),
            str(r["n"]),
            *((p_text(r["p"]), p_text(r["p_holm"])) if with_p else ()),
        )
        for r in frame.to_dict("records")
    )
    note = (
        "Objective minus con/con, paired by model and seed. Intervals are by Student's t, each on its own, for the "
        "mean over these blocks; they generalise to other seeds of these blocks."
    )
    kind = "exact" if n <= MAX_EXACT else "normal approximation"
    tested = (
        f" p is by the two-sided Wilcoxon signed rank test ({kind}), p (Holm) corrects for the {len(frame)} "
        "comparisons of this table; a small p means that the objective differs in at least one block."
    )
    head = ("objective", "difference", "95 % interval", "n pairs", *(("p", "p (Holm)") if with_p else ()))
    return TextTable(title="", head=head, rows=rows, note=note + (tested if with_p else ""))


def _interval(low: float | None, high: float | None) -> str:
    return "--" if low is None or pd.isna(low) else f"{low:+.2f} to {high:+.2f}"


def _of_metric(frame: pd.DataFrame, metric: schema.Metric) -> pd.DataFrame:
    return frame[(frame["direction"] == metric.direction) & (frame["metric"] == metric.name)]


def settings_section(sweep: SweepRuns, blocks: Iterable[Block]) -> Section | None:
    """The settings of the counted runs: a table of those that all share, and one per block of its own.

    A block's own settings are those of its stage and those in which runs differ.

    Returns:
        The section; None if no counted run has a parameter.
    """
    runs = counted(sweep)
    settings = _settings(sweep, runs)
    shared = _shared(settings)
    if runs.empty or not shared:
        return None
    same = [name for name in shared if settings[name].nunique() == 1 and _stage_of(name) is None]
    tables = [_setting_table("All trainings", [(name, str(settings[name].iloc[0])) for name in same])]
    for block in blocks:
        of_runs = settings.loc[of_block(runs, block.key).index]
        own = [name for name in shared if name not in same and _stage_of(name) in (None, block.key.stage)]
        rows = [(name, _values(of_runs[name])) for name in own if (of_runs[name] != "").any()]
        tables.append(_setting_table(block.key.title, rows))
    own_runs = of_grid(runs, schema.GRID_DEFAULT) if sweep.grids else runs
    tables.append(_objective_table(sweep, own_runs, settings.loc[own_runs.index]))
    fingerprints = ", ".join(sorted(set(runs["data_fingerprint"])))
    paragraph = f"Seeds {', '.join(map(str, sweep.seeds))}. Data fingerprint {fingerprints}."
    if stacked := int((runs["stacked"] != "").sum()):
        paragraph += f" In {stacked} of {len(runs)} trainings the heads trained as a stack with those of other cells."
    nonempty = tuple(table for table in tables if table.rows)
    return Section(anchor="settings", title="Settings", paragraphs=(paragraph,), tables=nonempty)


def settings_notes(sweep: SweepRuns, blocks: Iterable[Block]) -> list[str]:
    """A warning for each block whose counted runs differ in settings, with the settings and the seeds."""
    runs = counted(sweep)
    settings = _settings(sweep, runs)
    own = [name for name in settings.columns if name.startswith("objective.")]
    notes = []
    for block in blocks:
        here = of_block(runs, block.key)
        until = sweep.stages[: sweep.stages.index(block.key.stage) + 1]
        chosen = sweep.chosen_settings if block.key.grid == schema.GRID_TUNED else frozenset()
        shared = [name for name in _shared(settings) if _stage_of(name) in (None, *until) and name not in chosen]
        differing = _differing(here, settings, shared)
        for (pair, triplet), part in here.groupby(["pair", "triplet"]):
            differing += [f"{pair}/{triplet} {text}" for text in _differing(part, settings, own)]
        keys = set(here["settings_key"]) - {""}
        if not differing and not chosen and len(keys) > 1:
            differing = [f"{schema.TAG_SETTINGS_KEY} ({', '.join(sorted(keys))})"]
        if differing:
            notes.append(f"{block.key.title}: averaged runs differ in their settings: {'; '.join(differing)}.")
    return notes


def stacked_notes(sweep: SweepRuns, blocks: Iterable[Block]) -> list[str]:
    """A warning for each block in which the heads of some trainings were stacked and those of others not."""
    runs = counted(sweep)
    notes = []
    for block in blocks:
        here = of_block(runs, block.key)
        whole, stacked = int((here["stacked"] == "1").sum()), int((here["stacked"] != "").sum())
        if stacked and whole < len(here):
            notes.append(
                f"{block.key.title}: the heads of {whole} of {len(here)} trainings were stacked in every step, and "
                f"those of {stacked - whole} in some. Stacked and single heads agree but for rounding, which training "
                "enlarges."
            )
    return notes


_FLAWS: Final = {
    "below_warmup": "BELOW THE WARM-UP: {} reached a val rsum more than 5 % below that of their own warm-up epochs. "
    "Their numbers show how much an objective undid, not what it can do",
    "weak_objective": "WEAK OBJECTIVE: in {} the objective's gradient was below 1 % of that of matching in at least "
    "one epoch. Matching alone may have trained these models",
}
"""What speaks against a training's numbers: the column that says so, and the words of the report."""


def flaw_notes(sweep: SweepRuns, blocks: Iterable[Block]) -> list[str]:
    """Warnings for each block with trainings whose own epochs speak against their numbers, and which these are."""
    runs = counted(sweep)
    notes = []
    for block in blocks:
        here = of_block(runs, block.key)
        for column, text in _FLAWS.items():
            flawed = here[here[column] != ""]
            if flawed.empty:
                continue
            seeds = flawed["seed"].groupby(flawed["pair"] + "/" + flawed["triplet"], sort=False)
            which = list_text([f"{name} ({seeds_text(sorted(found))})" for name, found in seeds])
            how_many = f"{len(flawed)} of {len(here)} trainings of {block.key.title}"
            notes.append(f"{text.format(how_many)}: {which}.")
    return notes


def _settings(sweep: SweepRuns, runs: pd.DataFrame) -> pd.DataFrame:
    """The parameters of runs, with the same index.

    A parameter that a run does not record gets the value recorded by runs with the same key. The key is a hash of all
    parameters; a parameter added to the program later enters it only at values that change the training.
    """
    settings = sweep.settings.loc[runs["run_id"]].set_axis(runs.index)
    for name in map(str, settings.columns):
        key = runs["objective_key" if name.startswith("objective.") else "settings_key"]
        known = settings[name].where(settings[name] != "")
        settings[name] = known.fillna(known.groupby(key.where(key != "")).transform("first")).fillna("")
    return settings


def _shared(settings: pd.DataFrame) -> list[str]:
    """The settings in which the runs of a block should agree."""
    return sorted(name for name in map(str, settings.columns) if not name.startswith(("objective.", "seed")))


def _stage_of(setting: str) -> str | None:
    """The stage that a setting belongs to: ``frozen`` for ``stages.frozen.lr``; None if it belongs to none."""
    words = setting.split(".")
    return words[1] if words[0] == "stages" else None


def _differing(runs: pd.DataFrame, settings: pd.DataFrame, names: Iterable[str]) -> list[str]:
    """The settings in which runs differ, such as ``stages.frozen.lr (0.001: seeds 1, 2; 0.002: seed 3)``."""
    found = []
    for name in names:
        seeds = runs["seed"].groupby(settings.loc[runs.index, name]).unique()
        if len(seeds) > 1:
            values = [f"{value or 'not recorded'}: {seeds_text(sorted(own))}" for value, own in seeds.items()]
            found.append(f"{name} ({'; '.join(values)})")
    return found


def _values(column: pd.Series[str]) -> str:
    return ", ".join(sorted({value or "not recorded" for value in column}))


def _objective_table(sweep: SweepRuns, runs: pd.DataFrame, settings: pd.DataFrame) -> TextTable:
    names = [name for name in map(str, settings.columns) if name.startswith("objective.")]
    names = [name for name in names if name not in ("objective.pair", "objective.triplet")]
    rows = []
    for pair, triplet in sweep.objectives:
        found = settings[(runs["pair"] == pair) & (runs["triplet"] == triplet)]
        own = [f"{n.removeprefix('objective.')} {_values(found[n])}" for n in names if (found[n] != "").any()]
        if len(found):
            rows.append((f"{pair}/{triplet}", "; ".join(own) or "none"))
    title = "Parameters of the objectives" + (f", {schema.GRID_DEFAULT} grid" if sweep.grids else "")
    return TextTable(title=title, head=("objective", "parameters"), rows=tuple(rows), words=2)


def _setting_table(title: str, rows: list[tuple[str, str]]) -> TextTable:
    return TextTable(title=title, head=("setting", "value"), rows=tuple(rows), words=2)
