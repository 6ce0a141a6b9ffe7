"""A block as a grid, pair weights as rows and triplet weights as columns: its scores in training, or its test results.

It is readable at 80 columns and without colour (NO_COLOR, a pipe).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.console import Group
from rich.text import Text

from goal_sweep.goal_core.objectives import LOSS, baselines, pair_weights, triplet_weights
from goal_sweep.runners.launch.view.progress import Objective, SweepProgress
from goal_sweep.sweeps import Training
from goal_sweep.sweeps.cells import CANDIDATES, Block

METRICS = {"test/i2t_r1": "image -> text R@1", "test/t2i_r1": "text -> image R@1"}
"""The test results that have a grid, and what it calls them."""
LABEL, MEAN, SQUARE, ABREAST = 7, 7, 23, 3
"""Columns of a row's name, of a mean with its star, of an objective with the space after it; objectives in a row."""
MAX_MARKS = 6
"""Seeds that get a mark each; of more than these, the number that is done is written."""


class Judgement(NamedTuple):
    """Which cells of a grid are not significantly worse than the best."""

    best: Objective
    level: frozenset[Objective]
    """Those not significantly worse than the best, without the best itself."""


Judge = Callable[[Mapping[Objective, Mapping[int, float]]], Judgement | None]
"""Judges a grid by the points of each seed of each objective; None where there are too few."""

WAITING, SHARES, DONE, FAILED = "·", "▁▂▃▄▅▆▇", "█", "x"
"""Marks of a seed; `SHARES` for one in training, by the share of its epochs that is done."""


def block_title(block: Block) -> str:
    """Name a block: `coco vsepp resnet152 frozen`, with axes `coco vsepp resnet152 frozen, tau 5`."""
    return ", ".join(words for words in (" ".join(block[:-1]), block.configuration) if words)


def block_grid(
    progress: SweepProgress, block: Block, metric: str = "", judge: Judge | None = None
) -> tuple[Group, bool]:
    """Draw a block: mean ± std over the seeds of each objective, and a mark for each seed until all are done.

    A star marks the best by the judgement, or without one, the best of those whose seeds are all done.

    Args:
        block: of the candidates of a search, the score of the best is drawn.
        metric: one of `METRICS`, or "" for the val rsum of the best epoch so far.

    Returns:
        The grid with its title, and whether it was judged.
    """
    seeds = progress.seeds(block)
    points = {name: of_seed for name, own in seeds.items() if (of_seed := _points(progress, own, metric))}
    searched = block.configuration == CANDIDATES
    means = {name: (max if searched else statistics.fmean)(of_seed.values()) for name, of_seed in points.items()}
    judged = judge(points) if judge else None
    if judged is None:
        complete = [name for name in means if all(progress[seed].state == "done" for seed in seeds[name])]
        top = max((means[name] for name in complete), default=math.inf)
        best = {name for name in complete if means[name] == top}
    else:
        best = {name for name, mean in means.items() if mean == means[judged.best]}
    squares = {}
    for name, own in seeds.items():
        mean = f"{'*' if name in best else ''}{means[name]:.1f}" if name in means else "--"
        text = Text(f"{mean:>{MEAN}}", style="bold" if name in best else "")
        several = not searched and len(points.get(name, ())) > 1
        spread = f" ± {statistics.stdev(points[name].values()):.1f}" if several else ""
        near = judged is not None and name in judged.level - best
        text.append(f"{spread:<7} {'≈ ' if near else ''}")
        squares[name] = text.append_text(_marks(progress, own, always=not metric))
    title = Text(f"{block_title(block)}: {METRICS[metric] if metric else block_counts(progress, block)}", style="bold")
    return Group(title, *map(_one_line, _rows(squares))), judged is not None


def _points(progress: SweepProgress, seeds: Sequence[Training], metric: str) -> dict[int, float]:
    if metric:
        return {one.cell.seed: value for one in seeds if (value := progress[one].metrics.get(metric)) is not None}
    scores = enumerate(progress[one].best_rsum for one in seeds)
    return {number: score for number, score in scores if not math.isnan(score)}


def _rows(squares: Mapping[Objective, Text]) -> Iterable[Text]:
    """The squares in the order of the table, below and beside the names of their weights; what is too wide follows."""
    names = [name for name in (*triplet_weights, LOSS) if any(triplet == name for _, triplet in squares)]
    for triplets in (names[start : start + ABREAST] for start in range(0, len(names), ABREAST)):
        yield Text(" " * LABEL + "".join(f"{f'{triplet:>{MEAN}}':<{SQUARE}}" for triplet in triplets), style="bold")
        for pair in (*pair_weights, *baselines):
            if any((pair, triplet) in squares for triplet in triplets):
                row = Text.assemble((f"{pair:<{LABEL}}", "bold"))
                for square in (squares.get((pair, triplet), Text()) for triplet in triplets):
                    row.append_text(square).append(" " * max(1, SQUARE - len(square)))
                yield row


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "crop"
    text.rstrip()
    return text


def block_counts(progress: SweepProgress, block: Block) -> str:
    """How far a block is: `15 of 45 done, 4 running (epoch 3-5 of 30)`."""
    seeds = progress.of_block(block)
    counts = progress.counts(seeds)
    parts = [f"{counts['done']} of {len(seeds)} done"]
    if epochs := [progress[seed].epochs for seed in seeds if progress[seed].state == "running"]:
        span = f"{min(epochs)}" if min(epochs) == max(epochs) else f"{min(epochs)}-{max(epochs)}"
        parts.append(f"{counts['running']} running (epoch {span} of {seeds[0].stage.epochs})")
    if begun := sum(map(progress.begun, seeds)):
        parts.append(f"{begun} begun")
    if counts["failed"]:
        parts.append(f"{counts['failed']} failed")
    return ", ".join(parts) + (", score of the best" if block.configuration == CANDIDATES else "")


def legend(*, judged: bool = False) -> Text:
    """Explain the grids, in lines of at most 80 columns."""
    share = f"{SHARES[0]} to {SHARES[-1]} share of its epochs"
    text = Text("score: val rsum of the best epoch so far, mean over seeds", style="dim")
    text.append(f"\na mark for each seed: {WAITING} waiting  {share}  {DONE} done  {FAILED} failed")
    text.append("\n* highest of those that are done")
    if judged:
        text.append("\n≈ not significantly below the highest (5 %, other seeds on these images)")
    text.no_wrap, text.overflow = True, "crop"
    return text


def _marks(progress: SweepProgress, seeds: Sequence[Training], *, always: bool) -> Text:
    """A mark for each seed, as long as not all are done or `always`."""
    text, counts = Text(), progress.counts(seeds)
    done, failed = counts["done"], counts["failed"]
    if always or done < len(seeds):
        if len(seeds) > MAX_MARKS:
            text.append(f"{done}/{len(seeds)}")
            text.append(f" {FAILED}{failed}" if failed else "", style="bold red")
        else:
            for seed in seeds:
                text.append_text(_mark(progress, seed))
    return text


def _mark(progress: SweepProgress, seed: Training) -> Text:
    status = progress[seed]
    if status.state == "running" or progress.begun(seed):
        place = status.epochs * (len(SHARES) - 1) // max(1, seed.stage.epochs)
        return Text(SHARES[place], style="yellow" if status.state == "running" else "dim")
    if status.state == "done":
        return Text(DONE)
    return Text(FAILED, style="bold red") if status.state == "failed" else Text(WAITING, style="dim")
