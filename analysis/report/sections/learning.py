"""The sections on learning curves, triplet diagrams and costs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from goal_sweep.analysis.blocks import Block, Objective
from goal_sweep.analysis.figures.training import draw_curves, draw_triplets
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Picture, Section, TextTable
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import values_in
from goal_sweep.analysis.statistics.curves import CURVES, MAX_SEEDS, curves, drawn_runs
from goal_sweep.analysis.triplets import TripletRecord, pooled, read_records
from goal_sweep.analysis.wording import list_text
from goal_sweep.sweeps.results import BASELINE, RSUM

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
_COSTS_NOTE = (
    "Means over seeds. A cell of a shared unit is charged its own steps and its share of the work that the unit did "
    "for all its cells; its wall-clock time is that of the unit. Times from different or busy machines cannot be "
    "compared."
)


def learning_sections(inputs: Inputs) -> list[Section | None]:
    """Learning curves, triplet diagrams and costs. A section that cannot be shown says why; None before any result."""
    results = inputs.results
    runs = drawn_runs(results)
    epochs = results.epochs(runs, [*CURVES])
    by_block = [(block, results.of_block(runs, block.key)) for block in inputs.first if not block.is_empty]
    if not by_block:
        return []
    return [
        _curves_section(results, by_block, epochs),
        _triplets_section(results, by_block),
        _costs_section(results, [block for block, _ in by_block]),
    ]


def _curves_section(results: SweepResults, by_block: _ByBlock, epochs: pd.DataFrame) -> Section:
    pictures, without, short = [], [], []
    recorded = set(epochs.dropna(subset=list(CURVES), how="all")["training"])
    for block, runs in by_block:
        lines = {name: own for metric, name in CURVES.items() if (own := curves(runs, epochs, metric))}
        without += [str(name) for key, name in zip(runs["training"], runs["name"], strict=True) if key not in recorded]
        if lines and all(len(curve) < 2 for own in lines.values() for curve in own.values()):
            short.append(block.key.title)
        elif lines:
            pictures.append(
                Picture(
                    stem=f"curves/{block.slug}",
                    title=f"Learning curves: {block.key.title}",
                    draw=draw_curves,
                    arguments=(block.key.title, lines, _roles(block), _warmup(block, runs)),
                )
            )
    reasons = _listed("No curves, because there is one epoch", short), _listed("Without a recorded epoch", without)
    return _section("curves", "Learning curves", _CURVES_NOTE, pictures, _seeds_note(results), *reasons)


def _roles(block: Block) -> dict[Objective, str]:
    """The objectives whose curves stand out."""
    means = block.grids[RSUM.key].means
    best, worst = (choose(means, key=lambda key: means[key]) for choose in (max, min))
    roles = {"best": best, "baseline": BASELINE, "worst": worst}
    shown = [key for key in dict.fromkeys(roles.values()) if key in means]
    return {key: ", ".join(role for role, own in roles.items() if own == key) for key in shown}


def _triplets_section(results: SweepResults, by_block: _ByBlock) -> Section:
    title = "Triplet diagrams"
    if results.fetch is None:
        reason = "There are no triplet diagrams, because the triplet records are in the results folder, not in MLflow."
        return Section(anchor="triplets", title=title, paragraphs=(reason,))
    pictures, problems, without = [], [], []
    for block, runs in by_block:
        known = runs[runs["triplets"] != ""]
        without += [str(name) for name in runs[runs["triplets"] == ""]["name"]]
        paths = dict(zip(known["training"].map(str), known["triplets"].map(str), strict=True))
        records, unreadable = read_records(paths, results.fetch)
        problems += [f"the triplet record {why}" for why in unreadable.values()]
        shown: dict[Objective, TripletRecord] = {}
        notes: dict[Objective, str] = {}
        for (pair, triplet), part in known.groupby(["pair", "triplet"]):
            of_objective = [records[key] for key in part["training"] if key in records]
            if of_objective:
                name = str(pair), str(triplet)
                shown[name], notes[name] = pooled(of_objective), f"n={len(of_objective)}"
        if shown:
            picture = Picture(
                stem=f"triplets/{block.slug}",
                title=f"{title}: {block.key.title}",
                draw=draw_triplets,
                arguments=(block.key.title, shown, notes, _warmup(block, runs) or 0),
            )
            pictures.append(picture)
    more = len(problems) - _MAX_PROBLEMS
    said = [*problems[:_MAX_PROBLEMS], *([f"{more} more cannot be used."] if more > 0 else [])]
    lacking = _listed("Without a triplet record", without)
    return _section("triplets", title, _TRIPLETS_NOTE, pictures, _seeds_note(results), lacking, *said)


def _costs_section(results: SweepResults, blocks: Sequence[Block]) -> Section:
    tables = [table for block in blocks if (table := _cost_table(results, block)).rows]
    if not tables:
        return _section("costs", "Time and cost", "", [], "No training recorded the time of a step.")
    commits = sorted({str(commit)[:12] or "unknown" for commit in results.counted["git_commit"]})
    ran = f"The sweep's {len(results.counted)} finished trainings ran code {', '.join(commits)}."
    return Section(anchor="costs", title="Time and cost", paragraphs=(_COSTS_NOTE, ran), tables=tuple(tables))


def _cost_table(results: SweepResults, block: Block) -> TextTable:
    runs = results.of_block(results.counted, block.key).dropna(subset=["step_ms"])
    columns = ["step_ms", "val_s", "seconds"]
    means = {name: list(map(float, own[columns].mean())) for name, own in runs.groupby(["pair", "triplet"])}
    base = means.get(BASELINE, [float("nan")])[0]
    rows = []
    for name in (name for name in block.cells if name in means):
        step, *seconds = means[name]
        numbers = (f"{step:.1f}", f"{step / base:.2f}", *(f"{own:.1f}" for own in seconds))
        rows.append(("/".join(name), *(text.replace("nan", "--") for text in numbers)))
    head = ("objective", "ms per step", "x con/con", "validation s", "wall-clock s")
    return TextTable(title=block.key.title, head=head, rows=tuple(rows))


def _section(anchor: str, title: str, note: str, pictures: Sequence[Picture], *reasons: str) -> Section:
    """A section of pictures with its notes; without a picture, the reasons."""
    first = note if pictures else "Nothing can be shown here."
    paragraphs = tuple(filter(None, (first, *reasons)))
    return Section(anchor=anchor, title=title, paragraphs=paragraphs, figures=tuple(pictures))


def _seeds_note(results: SweepResults) -> str:
    """A sentence on the seeds whose epochs are shown; empty if all are."""
    seeds = len(results.header.seeds)
    return f"Of each objective's {seeds} seeds, the first {MAX_SEEDS} are shown." if seeds > MAX_SEEDS else ""


def _listed(what: str, names: list[str]) -> str:
    return f"{what}: {list_text(names)}." if names else ""


def _warmup(block: Block, runs: pd.DataFrame) -> int | None:
    """The warm-up epochs of a block's stage; None unless all its trainings agree."""
    numbers = values_in(runs, f"setting/stages.{block.key.stage}.warmup_epochs")
    return int(numbers.pop()) if len(numbers) == 1 else None
