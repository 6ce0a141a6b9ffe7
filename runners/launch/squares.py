"""A block in training: a square for each objective, with the validation score and the epoch of its seeds.

The upper line of a square is the score, on a colour between the block's lowest and highest; the lower line has a mark
for each seed and the epoch, or the test recall once all seeds are done. Everything that a colour says is also written.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from goal_core.objectives import pair_weights, triplet_weights
from runners.launch.progress import Standing, SweepProgress
from sweeps import Block
from sweeps.cells import CANDIDATES

SHADES = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")
"""Viridis (Smith and van der Walt, 2015) from low to high: ordered by brightness, also for colour-blind readers."""
LABEL, SQUARE = 8, 24
"""Columns of a row's name, and of a square with the space after it."""
MAX_MARKS = 6
"""Seeds that get a mark each; of more than these, the number that is done is written."""


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


def shown_names(objectives: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """The pair weights and the triplet weights of some objectives, in the order of the table."""
    used = set(objectives)
    pairs = [name for name in pair_weights if any(pair == name for pair, _ in used)]
    return pairs, [name for name in triplet_weights if any(triplet == name for _, triplet in used)]


def square_grid(
    progress: SweepProgress, block: Block, signs: Signs, *, width: int = SQUARE, low: bool = False
) -> Table:
    """Draw a block: pair weights as rows, triplet weights as columns.

    Args:
        progress: the sweep.
        block: the block.
        signs: from `signs_of`.
        width: columns of a square with the space after it.
        low: a square takes one line, with the score and the marks only.
    """
    squares = progress.seeds(block)
    pairs, triplets = shown_names(squares)
    searched = block.point == CANDIDATES
    scores = {objective: _score(seeds, highest=searched) for objective, seeds in squares.items()}
    known = [score for score in scores.values() if not math.isnan(score)]
    finished = [scores[name] for name, seeds in squares.items() if all(seed.state == "done" for seed in seeds)]
    best = max(finished, default=math.inf)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="bold", width=LABEL - 1)
    for _ in triplets:
        grid.add_column(width=width - 1, no_wrap=True, overflow="ellipsis")
    grid.add_row("", *(Text(name, style="bold") for name in triplets))
    for pair in pairs:
        texts = []
        for triplet in triplets:
            seeds, score = squares.get((pair, triplet), []), scores.get((pair, triplet), math.nan)
            style = shade(score, known)
            text = _upper(seeds, score, signs, best=score in finished and score >= best, spread=not searched)
            upper = Text(text, style=style)
            lower = _lower(seeds, signs)
            texts.append(_one_line(upper, _marks(seeds, signs), width) if low else _square(upper, lower, width))
        grid.add_row(pair, *texts)
    return grid


def legend(signs: Signs) -> Text:
    """Explain the squares in three lines of at most 80 columns."""
    text = Text(style="dim", no_wrap=True, overflow="ellipsis")
    text.append("score: val rsum of the best epoch so far, mean over seeds")
    if signs.shade:
        text.append("; low ")
        for colour in SHADES:
            text.append(signs.shade, style=f"not dim {colour}")
        text.append(" high")
    share = f"{signs.epochs[0]} to {signs.epochs[-1]} share of its epochs"
    text.append(f"\na mark for each seed: {signs.waiting} waiting  {share}  {signs.done} done  {signs.failed} failed")
    text.append("\n* highest of those that are done   R@1 on test: image -> text / text -> image")
    return text


def shade(score: float, known: Sequence[float]) -> str:
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


def _score(seeds: Sequence[Standing], *, highest: bool) -> float:
    """Mean validation score of the seeds that have one, or the highest of the candidates; NaN if none has."""
    scores = [seed.best_rsum for seed in seeds if not math.isnan(seed.best_rsum)]
    if not scores:
        return math.nan
    return max(scores) if highest else statistics.fmean(scores)


def _upper(seeds: Sequence[Standing], score: float, signs: Signs, *, best: bool, spread: bool) -> str:
    if not seeds:
        return ""
    if math.isnan(score):
        return "--"
    scores = [seed.best_rsum for seed in seeds if not math.isnan(seed.best_rsum)]
    deviation = f" {signs.spread} {statistics.stdev(scores):.1f}" if spread and len(scores) > 1 else ""
    return f"{'*' if best else ''}{score:.1f}{deviation}"


def _lower(seeds: Sequence[Standing], signs: Signs) -> Text:
    marks = _marks(seeds, signs)
    if seeds and all(seed.state == "done" and seed.training.cell.tested for seed in seeds):
        recalls = [statistics.fmean(seed.test[name] for seed in seeds) for name in ("test/i2t_r1", "test/t2i_r1")]
        return marks.append(f" R@1 {recalls[0]:.1f}/{recalls[1]:.1f}")
    epochs = [seed.epoch for seed in seeds if seed.state == "running"]
    if epochs:
        span = f"{min(epochs)}" if min(epochs) == max(epochs) else f"{min(epochs)}-{max(epochs)}"
        return marks.append(f" epoch {span}/{seeds[0].epochs}")
    return marks


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
        elif seed.state == "running":
            place = seed.epoch * (len(signs.epochs) - 1) // max(1, seed.epochs)
            text.append(signs.epochs[place], style="yellow")
        else:
            text.append(signs.waiting, style="dim")
    return text


def _square(upper: Text, lower: Text, width: int) -> Text:
    upper.pad_left(1)
    upper.truncate(width - 2, pad=True)
    return Text.assemble(upper, "\n", " ", lower)


def _one_line(upper: Text, marks: Text, width: int) -> Text:
    upper.pad_left(1)
    upper.truncate(max(1, width - 3 - MAX_MARKS), pad=True)
    return Text.assemble(upper, " ", marks)
