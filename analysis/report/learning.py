"""The sections on learning curves, triplet diagrams and costs, with their figures and data."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis.blocks import Block, list_text, mean_text
from analysis.figures import FigureWriter, draw_curves, draw_triplets
from analysis.report.document import ReportFolder, Section
from analysis.report.drawing import linked_figure
from analysis.report.tables import TextTable
from analysis.run_schema import BASELINE, PAIRS, RSUM, TRIPLETS, in_order
from analysis.statistics import COSTS, CURVES, costs, counted, curves, drawn_runs, of_block, runs_without, seeds_note
from analysis.tracking import SweepRuns, TripletRecord, fetch_history, fetch_records, pooled

_ByBlock = list[tuple[Block, pd.DataFrame]]
_MAX_PROBLEMS = 3
_CURVES_NOTE = (
    "The best objective by test rsum, con/con and the worst stand out, with a band from the lowest to the highest "
    "seed; grey lines are the other objectives. Lines are means over seeds. s_p, s_n, the share of active triplets and "
    "the gradient norm are means over an epoch's training batches. A triplet is active while its negative is within "
    "the margin. The gradient is that of the objective with respect to the embeddings, before clipping. Epochs to the "
    "left of a dotted line are warm-up with another gradient."
)
_TRIPLETS_NOTE = (
    "s_p is the similarity of an anchor and its positive, s_n that of the anchor and its hardest negative in the "
    "batch. Grey shows the triplet weight T (darker is larger; the line is at 1/2). Colour shows the share of the "
    "triplets after the warm-up in each bin of 0.025 x 0.025, on a logarithmic scale. The red line joins the mean "
    "triplets of the epochs, from the circle to the square, and is dashed during the warm-up. Above the dotted line, "
    "the negative is more similar than the positive."
)


def learning_sections(
    sweep: SweepRuns, blocks: Iterable[Block], folder: ReportFolder, figures: FigureWriter
) -> list[Section | None]:
    """Read the epochs and triplet records of a sweep and draw them.

    Files: ``curves/BLOCK.{png,pdf}``, ``triplets/BLOCK.{png,pdf}``, ``costs.csv``.

    Args:
        sweep: the sweep and its runs.
        blocks: the report's blocks; those without a number are omitted.
        folder: the report's folder.
        figures: writes the figures to it.

    Returns:
        Learning curves, triplet diagrams and costs. A section that cannot be drawn says why; None stands in place of
        each while no training is finished.

    Raises:
        AnalysisError: tracking cannot be read.
    """
    runs = drawn_runs(sweep)
    history = fetch_history(sweep.tracking_uri, list(runs["run_id"]), [*CURVES, *COSTS])
    by_block = [(block, of_block(runs, block.key)) for block in blocks if not block.is_empty]
    return [
        _curves_section(sweep, by_block, history, folder, figures),
        _triplets_section(sweep, by_block, folder, figures),
        _costs_section(sweep, by_block, history, folder),
    ]


def _curves_section(
    sweep: SweepRuns, by_block: _ByBlock, history: pd.DataFrame, folder: ReportFolder, figures: FigureWriter
) -> Section | None:
    links, without, short = [], [], []
    for block, runs in by_block:
        rows = {name: found for metric, name in CURVES.items() if (found := curves(runs, history, metric))}
        without += runs_without(runs, history, list(CURVES))
        if rows and all(len(curve.epochs) < 2 for found in rows.values() for curve in found.values()):
            short.append(block.key.title)
        elif rows:
            arguments = block.key.title, rows, _roles(block), _warmup(sweep, block, runs)
            stem, title = f"curves/{block.slug}", f"Learning curves: {block.key.title}"
            links.append(linked_figure(folder, figures, stem, title, draw_curves, *arguments))
    missing = _list_sentence("Without an epoch in tracking", without)
    if not links:
        return _undrawn("curves", "Learning curves", by_block, missing)
    one = _list_sentence("No curves, because there is one epoch", short)
    paragraphs = _nonempty(_CURVES_NOTE, seeds_note(sweep), one, missing)
    return Section(anchor="curves", title="Learning curves", paragraphs=paragraphs, figures=tuple(links))


def _roles(block: Block) -> dict[tuple[str, str], str]:
    """The objectives whose curves stand out."""
    means = block.grids[RSUM.key].means
    best, worst = (choose(means, key=lambda key: means[key]) for choose in (max, min))
    roles = {"best": best, "baseline": BASELINE, "worst": worst}
    shown = [key for key in dict.fromkeys(roles.values()) if key in means]
    return {key: ", ".join(role for role, own in roles.items() if own == key) for key in shown}


def _triplets_section(
    sweep: SweepRuns, by_block: _ByBlock, folder: ReportFolder, figures: FigureWriter
) -> Section | None:
    links, problems, without = [], [], []
    for block, runs in by_block:
        without += [str(name) for name in runs[runs["triplets"] == ""]["run_name"]]
        records, notes, unusable = _records(sweep, block, runs[runs["triplets"] != ""])
        problems += unusable
        if records:
            arguments = block.key.title, records, notes, _warmup(sweep, block, runs) or 0
            stem, title = f"triplets/{block.slug}", f"Triplet diagrams: {block.key.title}"
            links.append(linked_figure(folder, figures, stem, title, draw_triplets, *arguments))
    reasons = _nonempty(_list_sentence("Without a triplet record", without), *_shortened(problems))
    if not links:
        return _undrawn("triplets", "Triplet diagrams", by_block, *reasons)
    paragraphs = _nonempty(_TRIPLETS_NOTE, seeds_note(sweep), *reasons)
    return Section(anchor="triplets", title="Triplet diagrams", paragraphs=paragraphs, figures=tuple(links))


def _records(
    sweep: SweepRuns, block: Block, runs: pd.DataFrame
) -> tuple[dict[tuple[str, str], TripletRecord], dict[tuple[str, str], str], list[str]]:
    """The pooled record of each objective, its number of seeds, and a line for each record that cannot be used."""
    found, problems = fetch_records(sweep.tracking_uri, dict(zip(runs["run_id"], runs["artifact_uri"], strict=True)))
    records, notes = {}, {}
    for (pair, triplet), part in runs.groupby(["pair", "triplet"]):
        of_objective = [found[run_id] for run_id in part["run_id"] if run_id in found]
        if not of_objective:
            continue
        try:
            records[str(pair), str(triplet)] = pooled(of_objective)
        except ValueError as error:
            problems.append(f"{block.key.title}, {pair}/{triplet}: not drawn because {error}.")
            continue
        notes[str(pair), str(triplet)] = f"n={len(of_objective)}"
    return records, notes, problems


def _costs_section(sweep: SweepRuns, by_block: _ByBlock, history: pd.DataFrame, folder: ReportFolder) -> Section | None:
    tables, frames = [], []
    for block, runs in by_block:
        found = _in_table_order(costs(runs, history))
        if found.empty:
            continue
        frames.append(found.assign(block=block.slug))
        tables.append(_cost_table(block, found))
    if not tables:
        return _undrawn("costs", "Time and cost", by_block, "No run recorded the time of an epoch.")
    folder.write("costs.csv", pd.concat(frames).to_csv(index=False, lineterminator="\n"))
    paragraphs = _nonempty(
        "Seconds per cell, mean over its seeds: all training steps of the stage, and all passes over the val split. A "
        "cell of a shared unit is charged its own steps and its share of the work that the unit did for all its cells. "
        "Times from different or busy machines cannot be compared. The last column is the share of the steps' time in "
        "which a unit waited for its data; more resources.loader_workers, or a pack, shorten it.",
        seeds_note(sweep),
        f"The sweep's {len(counted(sweep))} finished trainings ran code {_commits(sweep)}.",
    )
    return Section(anchor="costs", title="Time and cost", paragraphs=paragraphs, tables=tuple(tables))


def _in_table_order(found: pd.DataFrame) -> pd.DataFrame:
    pairs, triplets = in_order(found["pair"], PAIRS), in_order(found["triplet"], TRIPLETS)
    rank = found["pair"].map(pairs.index) * len(triplets) + found["triplet"].map(triplets.index)
    return found.iloc[rank.argsort()]


def _cost_table(block: Block, found: pd.DataFrame) -> TextTable:
    base = found[(found["pair"] == BASELINE[0]) & (found["triplet"] == BASELINE[1])]["step_ms"]
    rows = [
        (
            f"{row['pair']}/{row['triplet']}",
            f"{row['n']}",
            f"{row['epochs']:.0f}",
            mean_text(row["train_s"], row["train_s_std"], always_std=False),
            "--" if pd.isna(row["val_s"]) else f"{row['val_s']:.1f}",
            f"{row['step_ms']:.1f}",
            f"{row['step_ms'] / base.iloc[0]:.2f}" if len(base) else "--",
            "--" if pd.isna(row["data_wait"]) else f"{100 * row['data_wait']:.0f} %",
        )
        for row in found.to_dict("records")
    ]
    hours = ((found["train_s"] + found["val_s"].fillna(0)) * found["n"]).sum() / 3600
    return TextTable(
        title=block.key.title,
        head=("objective", "n", "epochs", "training s", "val s", "ms per step", "x con/con", "waiting for data"),
        rows=tuple(rows),
        note=f"{hours:.2f} device hours in total for the {found['n'].sum()} cells counted here, without tests.",
    )


def _undrawn(anchor: str, title: str, by_block: _ByBlock, *reasons: str) -> Section | None:
    if not by_block:
        return None
    return Section(anchor=anchor, title=title, paragraphs=_nonempty("Nothing can be shown here.", *reasons))


def _shortened(problems: list[str]) -> list[str]:
    more = len(problems) - _MAX_PROBLEMS
    return [*problems[:_MAX_PROBLEMS], f"{more} more cannot be used."] if more > 0 else problems


def _nonempty(*paragraphs: str) -> tuple[str, ...]:
    return tuple(paragraph for paragraph in paragraphs if paragraph)


def _list_sentence(what: str, names: list[str]) -> str:
    return f"{what}: {list_text(names)}." if names else ""


def _warmup(sweep: SweepRuns, block: Block, runs: pd.DataFrame) -> int | None:
    """The warm-up epochs of a block's stage; None unless all its runs agree."""
    column = f"stages.{block.key.stage}.warmup_epochs"
    if column not in sweep.settings.columns:
        return None
    found = set(sweep.settings.loc[runs["run_id"], column])
    text = found.pop() if len(found) == 1 else ""
    return int(text) if text.isdigit() else None


def _commits(sweep: SweepRuns) -> str:
    commits = sorted({str(commit)[:12] or "unknown" for commit in counted(sweep)["git_commit"]})
    return ", ".join(commits)
