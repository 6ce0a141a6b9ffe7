"""A block as a grid, pair weights as rows and triplet weights as columns: its scores in training, or its test results.

It is readable at 80 columns, without colour (NO_COLOR, a pipe) and in ASCII: a mark repeats what each colour says.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from goal_core.objectives import pair_weights, triplet_weights
from runners.launch.view.progress import SweepProgress
from runners.launch.view.standing import Objective, Standing
from sweeps import Block
from sweeps.cells import CANDIDATES

METRICS = {"test/i2t_r1": "image -> text R@1", "test/t2i_r1": "text -> image R@1"}
"""The test results that have a grid, and what it calls them."""
SHADES = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")
"""Viridis (Smith and van der Walt, 2015) from low to high: ordered by brightness, also for colour-blind readers."""
LABEL, SQUARE = 8, 24
"""Columns of a row's name, and of an objective with the space after it."""
MAX_MARKS = 6
"""Seeds that get a mark each; of more than these, the number that is done is written."""


class Judgement(NamedTuple):
    """What the one rule for "within noise" says of a grid."""

    best: Objective
    level: frozenset[Objective]
    """Those within noise of the best, without the best itself."""


Judge = Callable[[Mapping[Objective, Mapping[int, float]]], Judgement | None]
"""Judges a grid by the points of each seed of each objective; None where there are too few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The characters that a console can show."""

    spread: str
    """Between mean and standard deviation."""
    near: str
    """After a mean within noise of the best."""
    waiting: str
    epochs: str
    """Shares of a seed's epochs, from the first to the last."""
    done: str
    failed: str
    shade: str
    """A patch of a colour in the legend; empty where there are no colours."""


RICH = Signs(spread="±", near="≈", waiting="·", epochs="▁▂▃▄▅▆▇", done="█", failed="x", shade="█")
ASCII = Signs(spread="+-", near="=", waiting=".", epochs="0123456789", done="#", failed="x", shade="")


def signs_of(console: Console) -> Signs:
    """The signs of a console: in ASCII where its encoding has nothing else, without a scale where it has no colours."""
    if console.options.ascii_only:
        return ASCII
    return RICH if console.color_system and not console.no_color else replace(RICH, shade="")


def block_title(block: Block) -> str:
    """Name a block: `coco vsepp resnet152 frozen`, with axes `coco vsepp resnet152 frozen, tau 5`."""
    return ", ".join(words for words in (" ".join(block[:-1]), block.point) if words)


def shown_names(objectives: Iterable[Objective]) -> tuple[list[str], list[str]]:
    """The pair weights and the triplet weights of some objectives, in the order of the table."""
    used = set(objectives)
    pairs = [name for name in pair_weights if any(pair == name for pair, _ in used)]
    return pairs, [name for name in triplet_weights if any(triplet == name for _, triplet in used)]


class _Square(NamedTuple):
    """What a grid shows of an objective."""

    mean: str
    deviation: str
    notes: Text
    style: str


def block_grid(
    progress: SweepProgress,
    block: Block,
    signs: Signs,
    metric: str = "",
    judge: Judge | None = None,
    width: int | None = None,
) -> tuple[Group, bool]:
    """Draw a block: mean ± std over the seeds of each objective, and a mark for each seed until all are done.

    A star marks the best by the judgement, or without one, the best of those whose seeds are all done.

    Args:
        progress: the sweep.
        block: the block; of the candidates of a search, the score of the best is drawn.
        signs: from `signs_of`.
        metric: one of `METRICS`, or "" for the val rsum of the best epoch so far.
        judge: the rule for "within noise"; None marks nothing by it.
        width: columns of an objective with the space after it; None makes room for all.

    Returns:
        The grid with its title, and whether it was judged.
    """
    seeds = progress.seeds(block)
    points = {name: of_seed for name, states in seeds.items() if (of_seed := _points(states, metric))}
    combine = max if block.point == CANDIDATES else statistics.fmean
    means = {name: combine(of_seed.values()) for name, of_seed in points.items()}
    judged = judge(points) if judge else None
    level = frozenset[Objective]() if judged is None else judged.level
    if judged is None:
        complete = [name for name in means if all(seed.state == "done" for seed in seeds[name])]
        top = max((means[name] for name in complete), default=math.inf)
        best = {name for name in complete if means[name] == top}
    else:
        best = {judged.best} | {name for name in level if means[name] == means[judged.best]}
    squares = {}
    for name, states in seeds.items():
        near = name in level and name not in best
        spread = len(points.get(name, ())) > 1 and combine is statistics.fmean
        squares[name] = _Square(
            mean=f"{'*' if name in best else ''}{means[name]:.1f}" if name in means else "--",
            deviation=f"{statistics.stdev(points[name].values()):.1f}" if spread else "",
            notes=_notes(states, signs, near=near, marks=not metric),
            style=("bold" if name in best else "") if metric else shade(means.get(name, math.nan), means.values()),
        )
    title = METRICS[metric] if metric else block_counts(progress, block)
    text = Text(f"{block_title(block)}: {title}", style="bold", no_wrap=width is not None, overflow="ellipsis")
    return Group(text, _table(squares, signs, width)), judged is not None


def _points(seeds: Sequence[Standing], metric: str) -> dict[int, float]:
    """The value of each seed that has one; candidates of one seed are numbered."""
    if metric:
        return {one.training.cell.seed: one.test[metric] for one in seeds if one.state == "done" and metric in one.test}
    return {number: one.best_rsum for number, one in enumerate(seeds) if not math.isnan(one.best_rsum)}


def _notes(seeds: Sequence[Standing], signs: Signs, *, near: bool, marks: bool) -> Text:
    text = Text(f"{signs.near} " if near else "")
    if marks or any(seed.state != "done" for seed in seeds):
        text.append_text(_marks(seeds, signs))
    return text.append(" i" if any(seed.imported for seed in seeds) else "")


def _table(squares: Mapping[Objective, _Square], signs: Signs, width: int | None) -> Table:
    """The squares in the order of the table, decimals below each other."""
    pairs, triplets = shown_names(squares)
    columns = []
    table = Table.grid(padding=(0, 1))
    table.add_column(style="bold", width=LABEL - 1)
    for triplet in triplets:
        column = [squares[pair, triplet] for pair in pairs if (pair, triplet) in squares]
        mean, deviation = (max(len(square[part]) for square in column) for part in (0, 1))
        spread = len(f" {signs.spread} ") + deviation if deviation else 0
        texts = [Text(f" {triplet:>{mean + spread}}", style="bold")]
        for pair in pairs:
            square = squares.get((pair, triplet))
            if square is None:
                texts.append(Text())
                continue
            after = f" {signs.spread} {square.deviation:>{deviation}}" if square.deviation else " " * spread
            texts.append(Text.assemble((f" {square.mean:>{mean}}{after} ", square.style), square.notes))
        columns.append(texts)
        table.add_column(width=width and width - 1, min_width=16, no_wrap=True, overflow="ellipsis")
    for name, *row in zip(["", *pairs], *columns, strict=True):
        table.add_row(name, *row)
    return table


def block_counts(progress: SweepProgress, block: Block) -> str:
    """How far a block is: `15 of 45 done, 4 running (epoch 3-5 of 30)`."""
    seeds = progress.of_block(block)
    counts = progress.counts(seed.training for seed in seeds)
    parts = [f"{counts['done']} of {len(seeds)} done"]
    if epochs := [seed.epoch for seed in seeds if seed.state == "running"]:
        span = f"{min(epochs)}" if min(epochs) == max(epochs) else f"{min(epochs)}-{max(epochs)}"
        parts.append(f"{counts['running']} running (epoch {span} of {seeds[0].epochs})")
    if begun := sum(seed.begun for seed in seeds):
        parts.append(f"{begun} begun")
    if counts["failed"]:
        parts.append(f"{counts['failed']} failed")
    return ", ".join(parts) + (", score of the best" if block.point == CANDIDATES else "")


def legend(signs: Signs, *, judged: bool = False) -> Text:
    """Explain the grids, in lines of at most 80 columns."""
    text = Text(style="dim", no_wrap=True, overflow="ellipsis")
    text.append("score: val rsum of the best epoch so far, mean over seeds")
    if signs.shade:
        text.append("; low ")
        for colour in SHADES:
            text.append(signs.shade, style=f"not dim {colour}")
        text.append(" high")
    share = f"{signs.epochs[0]} to {signs.epochs[-1]} share of its epochs"
    text.append(f"\na mark for each seed: {signs.waiting} waiting  {share}  {signs.done} done  {signs.failed} failed")
    text.append("\n* highest of those that are done")
    if judged:
        text.append(f"\n{signs.near} within noise of the highest (at 5 %, corrected for all comparisons)")
    return text


def shade(score: float, known: Collection[float]) -> str:
    """The style of a score: black or white on the colour of its place between the lowest and the highest.

    Args:
        score: a score; NaN has no colour.
        known: all scores of the block.
    """
    if math.isnan(score):
        return "dim"
    low, high = min(known), max(known)
    place = (score - low) / (high - low) if high > low else 0.5
    number = min(int(place * len(SHADES)), len(SHADES) - 1)
    return f"{'#000000' if number >= len(SHADES) // 2 else '#ffffff'} on {SHADES[number]}"


def _marks(seeds: Sequence[Standing], signs: Signs) -> Text:
    if len(seeds) > MAX_MARKS:
        failed = sum(seed.state == "failed" for seed in seeds)
        text = Text(f"{sum(seed.state == 'done' for seed in seeds)}/{len(seeds)}")
        return text.append(f" {signs.failed}{failed}", style="bold red") if failed else text
    text = Text()
    for seed in seeds:
        if seed.state == "done":
            text.append(signs.done)
        elif seed.state == "failed":
            text.append(signs.failed, style="bold red")
        elif seed.state == "running" or seed.begun:
            place = seed.epoch * (len(signs.epochs) - 1) // max(1, seed.epochs)
            text.append(signs.epochs[place], style="yellow" if seed.state == "running" else "dim")
        else:
            text.append(signs.waiting, style="dim")
    return text
