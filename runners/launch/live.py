"""What `launch` and `status` show: progress, time left, and the 5x3 grid of each block as it fills.

On a terminal the view redraws itself. Elsewhere (a log file, a batch job) it prints one plain line for each event.
It is readable at 80 columns, without colour (NO_COLOR, a pipe) and in ASCII: a mark repeats what each colour says.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from goal_core.objectives import pair_weights, triplet_weights
from runners.launch.progress import GridCell, SweepProgress
from sweeps import Block, Training

METRICS = (("test/i2t_r1", "image -> text R@1"), ("test/t2i_r1", "text -> image R@1"))
MAX_FAILURES = 10
"""Failed trainings that the view names."""
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


def plus_minus(console: Console) -> str:
    """The sign between mean and standard deviation: `±`, or `+-` where the console's encoding is ASCII."""
    return "+-" if console.options.ascii_only else "±"


def cell_text(cell: GridCell | None, sign: str = "±", *, best: bool = False) -> str:
    """Write one cell of a grid: `56.6 ± 0.3`, with `(2/3)` while seeds are missing and `i` if some were imported.

    Before the first, a mark per seed.

    Args:
        cell: the cell; None gives an empty text.
        sign: from `plus_minus`.
        best: mark the cell as the best of its grid.
    """
    if cell is None:
        return ""
    if cell.done:
        spread = f" {sign} {cell.std:.1f}" if not math.isnan(cell.std) else ""
        missing = f" ({cell.done}/{cell.asked})" if cell.done < cell.asked else ""
        failed = " x" if cell.failed else ""
        imported = " i" if cell.imported else ""
        return f"{'*' if best else ''}{cell.mean:.1f}{spread}{missing}{failed}{imported}"
    waiting = cell.asked - cell.running - cell.failed
    return MARKS["failed"] * cell.failed + MARKS["running"] * cell.running + MARKS["waiting"] * waiting


def block_table(progress: SweepProgress, block: Block, metric: str, label: str, sign: str = "±") -> Group:
    """Draw one block and direction: pair weights as rows, triplet weights as columns, mean ± std over seeds.

    A star marks the best cell among those whose seeds are all finished.
    """
    grid = progress.grid(block, metric)
    pairs = [name for name in pair_weights if any(pair == name for pair, _ in grid)]
    triplets = [name for name in triplet_weights if any(triplet == name for _, triplet in grid)]
    dataset, framework, backbone, stage = block
    table = Table(box=None, padding=(0, 1))
    table.add_column("", style="bold", min_width=7)
    for triplet in triplets:
        table.add_column(triplet, justify="right", min_width=16)
    best = max((c.mean for c in grid.values() if c.done and c.done == c.asked), default=math.inf)
    for pair in pairs:
        cells = [grid.get((pair, triplet)) for triplet in triplets]
        texts = [cell_text(c, sign, best=_is_best(c, best)) for c in cells]
        table.add_row(pair, *(Text(t, style=_style(c, best)) for t, c in zip(texts, cells, strict=True)))
    return Group(Text(f"{dataset} {framework} {backbone} {stage}: {label}", style="bold"), table)


def _is_best(cell: GridCell | None, best: float) -> bool:
    return cell is not None and cell.done == cell.asked and cell.mean >= best


def _style(cell: GridCell | None, best: float) -> str:
    if cell is None:
        return ""
    if cell.failed:
        return "red"
    if cell.done:
        return "bold" if _is_best(cell, best) else ""
    return "yellow" if cell.running else "dim"


def header(progress: SweepProgress, name: str, *, live: bool) -> RenderableType:
    """Draw the counts and, while a launch runs, the times and a progress bar."""
    counts = progress.counts()
    states = (
        f"{counts['done']} done, {counts['running']} running, {counts['waiting']} waiting, {counts['failed']} failed"
    )
    if not live:
        return Text.assemble((name, "bold"), f"  {states}")
    line = Text.assemble(
        (name, "bold"),
        f"  {states}",
        f"\nelapsed {format_duration(time.monotonic() - progress.started)}, "
        f"left about {format_duration(progress.eta_seconds())}",
    )
    return Group(line, ProgressBar(total=1.0, completed=progress.share_done(), width=78))


def failures(progress: SweepProgress) -> list[str]:
    """Write one line for each failed training."""
    failed = (standing for standing in progress.standings if standing.state == "failed")
    return [f"{one.training.name}  {one.training.cell.id}  {one.reason}" for one in failed]


def origins(progress: SweepProgress) -> list[str]:
    """Write one line for each archive that results were imported from."""
    archives = Counter(standing.imported for standing in progress.standings if standing.imported)
    return [f"i imported: {count} from {archive}, not trained here" for archive, count in archives.items()]


def overview(progress: SweepProgress, name: str, *, live: bool = True, sign: str = "±") -> Group:
    """Draw the whole view."""
    parts: list[RenderableType] = [header(progress, name, live=live)]
    for block in progress.blocks():
        for metric, label in METRICS:
            parts += [Text(), block_table(progress, block, metric, label, sign)]
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
    parts += [Text(". waiting   ~ running   x failed   * best   (n/m): n of m seeds are in", style="dim")]
    return Group(*parts)


class LiveView:
    """Shows a sweep while it trains; a context manager.

    Args:
        progress: what to show.
        name: the sweep's name.
        console: where to show it.
        command: writes another command on the same sweep, from the verb and its arguments.
    """

    def __init__(self, progress: SweepProgress, name: str, console: Console, command: Callable[..., str]) -> None:
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
        tall = len(self.progress.blocks()) * 2 * 8 + 6
        if tall <= self.console.height:
            return overview(self.progress, self.name, sign=plus_minus(self.console))
        # A view taller than the terminal cannot be redrawn in place, so show only the block in training.
        return Group(header(self.progress, self.name, live=True), *self._current_block())

    def _current_block(self) -> Iterator[RenderableType]:
        busy = {one.training.block for one in self.progress.standings if one.state == "running"}
        blocks = [block for block in self.progress.blocks() if block in busy] or self.progress.blocks()[:1]
        for metric, label in METRICS[: 2 if self.console.height >= 22 else 1]:
            yield Text()
            yield block_table(self.progress, blocks[0], metric, label, plus_minus(self.console))

    def note(self, text: str) -> None:
        """Print a line above the view, or in the log."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=not self._interactive)

    def epoch(self, training: Training) -> None:
        """Print a line for a finished epoch, unless the view redraws itself."""
        if not self._interactive:
            standing, left = self.progress[training], format_duration(self.progress.eta_seconds())
            self.note(
                f"{training.name}: epoch {standing.epoch}/{standing.epochs}, val rsum {standing.val_rsum:.1f} "
                f"(left about {left})"
            )

    def done(self, training: Training) -> None:
        """Print a line for a finished training, unless the view redraws itself."""
        if not self._interactive:
            test, counts = self.progress[training].test, self.progress.counts()
            self.note(
                f"{training.name}: done, test R@1 {test['test/i2t_r1']:.1f} / {test['test/t2i_r1']:.1f} "
                f"({counts['done']} of {sum(counts.values())})"
            )

    def failed(self, training: Training) -> None:
        """Print a line for a failed training."""
        reason = self.progress[training].reason
        self.note(f"{training.name}: failed, {reason} ({self.command('logs', training.cell.id)})")
