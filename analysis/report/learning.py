"""The chapters on how the cells learned and what they cost, with their figures and data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.curves import draw_curves
from analysis.figures.triplets import draw_triplets
from analysis.figures.worker import Drawing
from analysis.report.chapter import Chapter, FigureLink
from analysis.report.manifest import ReportFolder
from analysis.report.sections import TextTable
from analysis.statistics.aggregate import counted, of_block
from analysis.statistics.epoch_curves import COSTS, CURVES, Curve, costs, curves, lacking
from analysis.tracking.blocks import Block
from analysis.tracking.drawn_runs import drawn_runs, seeds_note
from analysis.tracking.fetch import SweepRuns
from analysis.tracking.history import fetch_history
from analysis.tracking.run_schema import BASELINE, PAIRS, TRIPLETS, in_order
from analysis.tracking.triplet_record import TripletRecord, fetch_records, pooled

_ByBlock = list[tuple[Block, pd.DataFrame]]
_CURVES_NOTE = (
    "Lines are means over seeds, bands reach from the smallest to the largest seed, and every panel of a row has the "
    "same axis. s_p, s_n, the active share and the gradient norm are means over an epoch's training batches; a triplet "
    "is active while its negative is within the margin; the gradient is that of the objective with respect to the "
    "embeddings, before clipping. Epochs left of a dotted line are warm-up, in which another gradient was applied."
)
_TRIPLETS_NOTE = (
    "s_p is the similarity of an anchor and its positive, s_n that of it and its hardest negative in the batch. "
    "Grey is the triplet weight T (darker weighs more, the line is 1/2); colour is the share of the triplets after the "
    "warm-up in a bin of 0.025 x 0.025, logarithmic; the red line joins the epochs' mean triplets, from the circle to "
    "the square, dashed in the warm-up. Above the dotted line the negative is the more similar."
)


def learning_chapters(
    sweep: SweepRuns, blocks: Iterable[Block], folder: ReportFolder, drawing: Drawing
) -> tuple[Chapter, ...]:
    """Read the epochs and records of a sweep, draw them into the report's folder, and say what there is to see.

    Files: ``curves/BLOCK.{png,pdf}``, ``triplets/BLOCK.{png,pdf}``, ``costs.csv``.

    Args:
        sweep: the runs.
        blocks: the report's blocks; those without a number are left out.
        folder: the report's folder.
        drawing: draws the learning curves.

    Returns:
        The chapters that have something to show.

    Raises:
        AnalysisError: tracking does not answer.
    """
    filled = [block for block in blocks if not block.is_empty]
    runs = drawn_runs(sweep)
    history = fetch_history(sweep.tracking_uri, list(runs["run_id"]), [*CURVES, *COSTS])
    by_block = [(block, of_block(runs, block.key)) for block in filled]
    chapters = [
        _curves_chapter(sweep, by_block, history, folder, drawing),
        _triplets_chapter(sweep, by_block, folder, drawing),
        _costs_chapter(sweep, by_block, history, folder),
    ]
    return tuple(chapter for chapter in chapters if chapter is not None)


def _curves_chapter(
    sweep: SweepRuns, by_block: _ByBlock, history: pd.DataFrame, folder: ReportFolder, drawing: Drawing
) -> Chapter | None:
    figures, without = [], []
    for block, runs in by_block:
        rows = {name: found for metric, name in CURVES.items() if (found := curves(runs, history, metric))}
        without += lacking(runs, history, list(CURVES))
        if rows:
            stem = f"curves/{block.slug}"
            paths = [folder.path(f"{stem}.{ending}") for ending in ("png", "pdf")]
            drawing.draw(_save_curves, block.key.title, rows, _warmup(sweep, block, runs), *paths)
            figures.append(FigureLink(path=f"{stem}.png", title=f"Learning curves: {block.key.title}"))
    if not figures:
        return None
    paragraphs = [_CURVES_NOTE, seeds_note(sweep), _named("No epoch in tracking", without)]
    return _chapter("curves", "Learning curves", paragraphs, figures)


def _triplets_chapter(sweep: SweepRuns, by_block: _ByBlock, folder: ReportFolder, drawing: Drawing) -> Chapter | None:
    figures, problems, without = [], [], []
    for block, runs in by_block:
        has = runs[runs["triplets"] != ""]
        without += [str(name) for name in runs[runs["triplets"] == ""]["run_name"]]
        found, unread = fetch_records(sweep.tracking_uri, dict(zip(has["run_id"], has["artifact_uri"], strict=True)))
        problems += unread
        records: dict[tuple[str, str], TripletRecord] = {}
        notes: dict[tuple[str, str], str] = {}
        for (pair, triplet), part in has.groupby(["pair", "triplet"]):
            mine = [found[run_id] for run_id in part["run_id"] if run_id in found]
            if not mine:
                continue
            try:
                records[str(pair), str(triplet)] = pooled(mine)
            except ValueError as error:
                problems.append(f"{block.key.title}, {pair}/{triplet}: not drawn, {error}.")
                continue
            notes[str(pair), str(triplet)] = f"n={len(mine)}"
        if records:
            stem = f"triplets/{block.slug}"
            paths = [folder.path(f"{stem}.{ending}") for ending in ("png", "pdf")]
            drawing.draw(_save_triplets, block.key.title, records, notes, _warmup(sweep, block, runs) or 0, *paths)
            figures.append(FigureLink(path=f"{stem}.png", title=f"Triplet diagrams: {block.key.title}"))
    if not figures:
        return None
    paragraphs = [_TRIPLETS_NOTE, seeds_note(sweep), _named("Without a triplet record", without), *problems]
    return _chapter("triplets", "Triplet diagrams", paragraphs, figures)


def _costs_chapter(sweep: SweepRuns, by_block: _ByBlock, history: pd.DataFrame, folder: ReportFolder) -> Chapter | None:
    tables, frames = [], []
    for block, runs in by_block:
        found = _in_table_order(costs(runs, history))
        if found.empty:
            continue
        frames.append(found.assign(block=block.slug))
        tables.append(_cost_table(block, found))
    if not tables:
        return None
    folder.write("costs.csv", pd.concat(frames).to_csv(index=False, lineterminator="\n"))
    paragraphs = [
        "Seconds of one cell, mean over its seeds: all training steps of the stage, and all passes over the val split. "
        "A cell of a shared unit is charged its own steps and its share of what the unit did for all its cells. Times "
        "of runs on different machines, or on a busy one, do not compare.",
        seeds_note(sweep),
        f"The sweep's {len(counted(sweep))} finished trainings are of code {_commits(sweep)}.",
    ]
    return _chapter("costs", "Time and cost", paragraphs, tables=tables)


def _in_table_order(found: pd.DataFrame) -> pd.DataFrame:
    pairs, triplets = in_order(found["pair"], PAIRS), in_order(found["triplet"], TRIPLETS)
    place = found["pair"].map(pairs.index) * len(triplets) + found["triplet"].map(triplets.index)
    return found.iloc[place.argsort()]


def _cost_table(block: Block, found: pd.DataFrame) -> TextTable:
    base = found[(found["pair"] == BASELINE[0]) & (found["triplet"] == BASELINE[1])]["step_ms"]
    rows = [
        (
            f"{row['pair']}/{row['triplet']}",
            f"{row['n']}",
            f"{row['epochs']:.0f}",
            f"{row['train_s']:.1f}" + ("" if pd.isna(row["train_s_std"]) else f" ± {row['train_s_std']:.1f}"),
            "--" if pd.isna(row["val_s"]) else f"{row['val_s']:.1f}",
            f"{row['step_ms']:.1f}",
            f"{row['step_ms'] / base.iloc[0]:.2f}" if len(base) else "--",
        )
        for row in found.to_dict("records")
    ]
    hours = ((found["train_s"] + found["val_s"].fillna(0)) * found["n"]).sum() / 3600
    return TextTable(
        title=block.key.title,
        head=("objective", "n", "epochs", "training s", "val s", "ms a step", "x con/con"),
        rows=tuple(rows),
        note=f"Together {hours:.2f} device hours for the {found['n'].sum()} cells counted here, tests not included.",
    )


def _chapter(
    anchor: str,
    title: str,
    paragraphs: Iterable[str],
    figures: Iterable[FigureLink] = (),
    tables: Iterable[TextTable] = (),
) -> Chapter:
    said = tuple(paragraph for paragraph in paragraphs if paragraph)
    return Chapter(anchor=anchor, title=title, paragraphs=said, figures=tuple(figures), tables=tuple(tables))


def _save_curves(
    title: str, rows: dict[str, dict[tuple[str, str], Curve]], warmup: int | None, png: Path, pdf: Path
) -> None:
    _save(draw_curves(title, rows, warmup), png, pdf)


def _save_triplets(
    title: str,
    records: dict[tuple[str, str], TripletRecord],
    notes: dict[tuple[str, str], str],
    warmup: int,
    png: Path,
    pdf: Path,
) -> None:
    _save(draw_triplets(title, records, notes, warmup), png, pdf)


def _save(figure: Figure, png: Path, pdf: Path) -> None:
    figure.savefig(png, metadata={"Software": None})
    figure.savefig(pdf, metadata={"CreationDate": None, "Creator": None, "Producer": None})


def _named(what: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{what}: {', '.join(names[:5])}{more}."


def _warmup(sweep: SweepRuns, block: Block, runs: pd.DataFrame) -> int | None:
    """Warm-up epochs of a block's stage, where all its runs have the same."""
    column = f"stages.{block.key.stage}.warmup_epochs"
    if column not in sweep.settings.columns:
        return None
    found = set(sweep.settings.loc[runs["run_id"], column])
    text = found.pop() if len(found) == 1 else ""
    return int(text) if text.isdigit() else None


def _commits(sweep: SweepRuns) -> str:
    commits = sorted({str(commit)[:12] or "unknown" for commit in counted(sweep)["git_commit"]})
    return ", ".join(commits)
