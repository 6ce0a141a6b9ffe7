"""What `launch` and `status` show: progress, time left, and the 5x3 grid of each block as it fills.

On a terminal the view redraws itself, with as many blocks as fit. Elsewhere (a log file, a batch job) it prints one
plain line for each event. It is readable at 80 columns, without colour (NO_COLOR, a pipe) and in ASCII: a mark repeats
what each colour says.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from runners.launch.pace import TimeLeft
from runners.launch.progress import GridCell, SweepProgress
from runners.launch.squares import LABEL, RICH, SQUARE, Signs, block_title, legend, shown_names, signs_of, square_grid
from sweeps import Block, Training
from sweeps.cells import CANDIDATES

METRICS = (("test/i2t_r1", "image -> text R@1"), ("test/t2i_r1", "text -> image R@1"))
MAX_FAILURES = 10
"""Failed trainings that the view names."""
_HEADER, _LEGEND = 3, 4
"""Lines of the header, and of the legend with the line above it."""
Objective = tuple[str, str]
"""A pair weight and a triplet weight."""
Judge = Callable[[Mapping[Objective, Mapping[int, float]]], "Judgement | None"]
"""Judges a grid by the points of each seed of each objective; None where there are too few."""
MARKS = {"waiting": ".", "running": "~", "failed": "x"}


def format_duration(seconds: float | None) -> str:
    """Write a duration as `1h 02m`, `3m 05s` or `12s`; `--` when it is unknown."""
    if seconds is None:
        return "--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


class Judgement(NamedTuple):
    """What the one rule for "within noise" says of a grid."""

    best: Objective
    level: frozenset[Objective]
    """Those within noise of the best, without the best itself."""


def cell_text(cell: GridCell | None, signs: Signs = RICH, *, best: bool = False, near: bool = False) -> str:
    """Write one cell of a grid: `56.6 ± 0.3`, with `(2/3)` while seeds are missing and `i` if some were imported.

    Before the first, a mark per seed.

    Args:
        cell: the cell; None gives an empty text.
        signs: the characters that the console can show.
        best: mark the cell as the best of its grid.
        near: mark the cell as within noise of the best.
    """
    if cell is None:
        return ""
    if cell.done:
        spread = f" {signs.spread} {cell.std:.1f}" if not math.isnan(cell.std) else ""
        missing = f" ({cell.done}/{cell.asked})" if cell.done < cell.asked else ""
        failed = " x" if cell.failed else ""
        imported = " i" if cell.imported else ""
        noise = f" {signs.near}" if near and not best else ""
        return f"{'*' if best else ''}{cell.mean:.1f}{spread}{noise}{missing}{failed}{imported}"
    waiting = cell.asked - cell.running - cell.failed
    return MARKS["failed"] * cell.failed + MARKS["running"] * cell.running + MARKS["waiting"] * waiting


def block_table(
    progress: SweepProgress,
    block: Block,
    metric: str,
    label: str,
    signs: Signs = RICH,
    judged: Judgement | None = None,
) -> Group:
    """Draw one block and direction: pair weights as rows, triplet weights as columns, mean ± std over seeds.

    A star marks the best cell by the judgement, or without one, the best of those whose seeds are all finished.
    """
    grid = progress.grid(block, metric)
    pairs, triplets = shown_names(grid)
    table = Table(box=None, padding=(0, 1))
    table.add_column("", style="bold", min_width=7)
    for triplet in triplets:
        table.add_column(triplet, justify="right", min_width=16)
    if judged is None:
        top = max((c.mean for c in grid.values() if c.done and c.done == c.asked), default=math.inf)
        best = {name for name, c in grid.items() if c.done == c.asked and c.mean >= top}
    else:
        best = {judged.best} | {name for name in judged.level if grid[name].mean == grid[judged.best].mean}
    level = frozenset() if judged is None else judged.level
    for pair in pairs:
        texts = []
        for name in ((pair, triplet) for triplet in triplets):
            text = cell_text(grid.get(name), signs, best=name in best, near=name in level)
            texts.append(Text(text, style=_style(grid.get(name), best=name in best)))
        table.add_row(pair, *texts)
    return Group(Text(f"{block_title(block)}: {label}", style="bold"), table)


def _style(cell: GridCell | None, *, best: bool) -> str:
    if cell is None:
        return ""
    if cell.failed:
        return "red"
    if cell.done:
        return "bold" if best else ""
    return "yellow" if cell.running else "dim"


def header(progress: SweepProgress, name: str, *, live: bool) -> RenderableType:
    """Draw the counts and, while a launch runs, the times and a progress bar."""
    counts = progress.counts()
    states = (
        f"{counts['done']} done, {counts['running']} running, {counts['waiting']} waiting, {counts['failed']} failed"
    )
    if not live:
        return Text.assemble((name, "bold"), f"  {states}", f"\n{progress.phase}" if progress.phase else "")
    left = progress.left()
    end = "" if left is None else f", until {datetime.now() + timedelta(seconds=left.seconds):{_clock(left.seconds)}}"
    times = f"elapsed {format_duration(time.monotonic() - progress.started)}, left {_left_text(left)}{end}"
    says = f"  {progress.phase}" if progress.phase else ""
    line = Text.assemble((name, "bold"), f"  {states}\n{times}{says}", no_wrap=True, overflow="ellipsis")
    return Group(line, ProgressBar(total=1.0, completed=progress.share_done()), Text())  # the bar does not end its line


def _left_text(left: TimeLeft | None) -> str:
    """The time left; `~` says, as in `plan`, that it rests on a price and not on this launch's speed."""
    if left is None:
        return "about --"
    return f"{'~' if left.priced else 'about '}{format_duration(left.seconds)}"


def _clock(left: float) -> str:
    """How a moment is written that is so many seconds away: with the day unless it is near."""
    return "%H:%M" if left < 12 * 3600 else "%a %d %b %H:%M"


def failures(progress: SweepProgress) -> list[str]:
    """Write one line for each failed training."""
    failed = (standing for standing in progress.standings if standing.state == "failed")
    return [f"{one.training.name}  {one.training.cell.id}  {one.reason}" for one in failed]


def origins(progress: SweepProgress) -> list[str]:
    """Write one line for each archive that results were imported from."""
    archives = Counter(standing.imported for standing in progress.standings if standing.imported)
    return [f"i imported: {count} from {archive}, not trained here" for archive, count in archives.items()]


def overview(progress: SweepProgress, name: str, signs: Signs = RICH, judge: Judge | None = None) -> Group:
    """Draw the state of a sweep in full: what trains as squares, results as tables.

    Args:
        progress: the sweep.
        name: its name.
        signs: from `signs_of`.
        judge: the rule for "within noise"; None marks nothing by it.
    """
    judged = False
    parts: list[RenderableType] = [header(progress, name, live=False)]
    squares = False
    for block in progress.blocks():
        counts = progress.counts_of(block)
        searched = block.point == CANDIDATES
        if counts["running"] or searched:
            squares = True
            parts += [Text(), _titled(progress, block, signs)]
        if searched:  # they have no test numbers
            continue
        if counts["done"] or not counts["running"]:
            for metric, label in METRICS:
                found = judge(progress.points(block, metric)) if judge else None
                judged |= found is not None
                parts += [Text(), block_table(progress, block, metric, label, signs, found)]
    lost = failures(progress)
    if lost:
        more = [f"and {len(lost) - MAX_FAILURES} more"] if len(lost) > MAX_FAILURES else []
        lines = [*lost[:MAX_FAILURES], *more]
        parts += [Text(), Text(f"failed ({len(lost)}):", style="red"), *(Text(f"  {line}") for line in lines)]
    damaged = [f"{one.training.name}: {one.reason}" for one in progress.standings if one.damaged]
    if damaged:
        parts += [Text(), Text(f"damaged ({len(damaged)}), to be trained again by a launch:", style="red")]
        parts += [Text(f"  {line}") for line in damaged[:MAX_FAILURES]]
    parts += [Text(), *(Text(line, style="yellow") for line in origins(progress))]
    parts += [legend(signs), Text()] if squares else []
    parts += [Text(". waiting   ~ running   x failed   * highest mean   (n/m): n of m seeds are in", style="dim")]
    if judged:
        rule = "within noise of the highest (at 5 %, corrected for all comparisons)"
        parts.append(Text(f"{signs.near} {rule}", style="dim"))
    return Group(*parts)


def training_view(progress: SweepProgress, name: str, width: int, height: int, signs: Signs) -> Group:
    """Draw a sweep in training, in no more lines than the terminal has, because a taller view cannot be redrawn.

    Blocks stand side by side where they fit. Those in training come first; the others get a line each while there is
    room. Where not even one block fits, squares take one line instead of two, and at last only the header is drawn.

    Args:
        progress: the sweep.
        name: its name.
        width: columns of the terminal.
        height: its lines.
        signs: from `signs_of`.
    """
    blocks = _by_interest(progress)
    pairs, triplets = shown_names(name for block in blocks for name in progress.seeds(block))
    square = min(SQUARE, max(1, (width - LABEL) // len(triplets)))
    across = max(1, width // (LABEL + square * len(triplets)))
    room = height - _HEADER - _LEGEND
    tall, low = 3 + 2 * len(pairs), 3 + len(pairs)
    lines = tall if room >= tall else low
    shown = blocks[: room // lines * across] if room >= lines else []
    used = -(-len(shown) // across) * lines
    parts: list[RenderableType] = [header(progress, name, live=True)]
    for start in range(0, len(shown), across):
        row = Table.grid(padding=(0, 0))
        drawn = [
            _titled(progress, block, signs, width=square, low=lines == low) for block in shown[start : start + across]
        ]
        row.add_row(*drawn)
        parts += [Text(), row]
    parts += _others(progress, [block for block in blocks if block not in shown], room - used)
    return Group(*parts, Text(), legend(signs)) if shown else Group(*parts)


def _by_interest(progress: SweepProgress) -> list[Block]:
    """The blocks in training first, then those that wait, then those that are done."""
    order = {"running": 0, "waiting": 1, "failed": 2, "done": 3}
    first = dict.fromkeys(progress.blocks(), order["done"])
    for one in progress.standings:
        for block in one.training.blocks:
            first[block] = min(first[block], order[one.state])
    return sorted(first, key=lambda block: first[block])


def _titled(progress: SweepProgress, block: Block, signs: Signs, *, width: int = SQUARE, low: bool = False) -> Group:
    title = Text(f"{block_title(block)}: {_counts(progress, block)}", style="bold", no_wrap=True, overflow="ellipsis")
    return Group(title, square_grid(progress, block, signs, width=width, low=low))


def _others(progress: SweepProgress, blocks: Sequence[Block], room: int) -> list[Text]:
    """A line for each block that is not drawn, at most so many lines."""
    lines = [f"{block_title(block)}: {_counts(progress, block)}" for block in blocks]
    if len(lines) > room:
        lines = [*lines[: max(0, room - 1)], f"and {len(lines) - max(0, room - 1)} more blocks"][: max(0, room)]
    return [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines]


def _counts(progress: SweepProgress, block: Block) -> str:
    counts = progress.counts_of(block)
    rest = "".join(f", {counts[state]} {state}" for state in ("running", "failed") if counts[state])
    best = ", score of the best" if block.point == CANDIDATES else ""
    return f"{counts['done']} of {sum(counts.values())} done{rest}{best}"


class LiveView:
    """Shows a sweep while it trains; a context manager.

    Args:
        progress: what to show.
        name: the sweep's name.
        console: where to show it.
        command: writes another command on the same sweep, from the verb and its arguments.
        judge: the rule for "within noise", for the grids at the end.
    """

    def __init__(
        self,
        progress: SweepProgress,
        name: str,
        console: Console,
        command: Callable[..., str],
        judge: Judge | None = None,
    ) -> None:
        self.judge = judge
        self.progress, self.name, self.console, self.command = progress, name, console, command
        self._live = Live(get_renderable=lambda: self._view(), console=console, refresh_per_second=2, transient=True)
        self._interactive = console.is_terminal

    def __enter__(self) -> LiveView:
        """Start drawing, on a terminal."""
        if self._interactive:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop drawing."""
        if self._interactive:
            self._live.stop()

    def _view(self) -> RenderableType:
        return training_view(self.progress, self.name, self.console.width, self.console.height, signs_of(self.console))

    def note(self, text: str) -> None:
        """Print a line above the view, or in the log."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=not self._interactive)

    def epoch(self, training: Training) -> None:
        """Print a line for a finished epoch, unless the view redraws itself."""
        if not self._interactive:
            standing, left = self.progress[training], _left_text(self.progress.left())
            self.note(
                f"{training.name}: epoch {standing.epoch}/{standing.epochs}, val rsum {standing.val_rsum:.1f} "
                f"(left {left})"
            )

    def done(self, training: Training) -> None:
        """Print a line for a finished training, unless the view redraws itself."""
        if not self._interactive:
            test, counts = self.progress[training].test, self.progress.counts()
            shown = f"best val rsum {self.progress[training].best_rsum:.1f}"
            if training.cell.tested:
                shown = f"test R@1 {test['test/i2t_r1']:.1f} / {test['test/t2i_r1']:.1f}"
            self.note(f"{training.name}: done, {shown} ({counts['done']} of {sum(counts.values())})")

    def failed(self, training: Training) -> None:
        """Print a line for a failed training."""
        reason = self.progress[training].reason
        self.note(f"{training.name}: failed, {reason} ({self.command('logs', training.cell.id)})")
