"""What `launch` and `status` show: progress, time left, and each block's 5x3 grid as it fills.

On a terminal the view redraws itself; elsewhere (a log file, a batch job) it is plain lines, one for each event.
Readable at 80 columns, without colour (NO_COLOR, a pipe) and in an encoding that knows ASCII alone: what a colour says
a mark says too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from goal_core.objectives import pair_weights, triplet_weights
from runners.launch.progress import BlockKey, Entry, Square, SweepProgress

METRICS = (("test/i2t_r1", "image -> text R@1"), ("test/t2i_r1", "text -> image R@1"))
MARKS = {"waiting": ".", "running": "~", "failed": "x"}


def format_duration(seconds: float | None) -> str:
    """`1h 02m`, `3m 05s`, `12s`, or `--` when unknown."""
    if seconds is None:
        return "--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def plus_minus(console: Console) -> str:
    """The sign between a mean and its standard deviation that the console's encoding can show."""
    return "+-" if console.options.ascii_only else "±"


def square_text(square: Square | None, sign: str = "±", *, best: bool = False) -> str:
    """One square: `56.6 ± 0.3`, with `(2/3)` while seeds are missing, or marks of what is going on.

    Args:
        square: the square; None gives an empty text.
        sign: from `plus_minus`.
        best: mark it as the best of its grid.
    """
    if square is None:
        return ""
    if square.done:
        spread = f" {sign} {square.std:.1f}" if not math.isnan(square.std) else ""
        missing = f" ({square.done}/{square.asked})" if square.done < square.asked else ""
        failed = " x" if square.failed else ""
        return f"{'*' if best else ''}{square.mean:.1f}{spread}{missing}{failed}"
    waiting = square.asked - square.running - square.failed
    return MARKS["failed"] * square.failed + MARKS["running"] * square.running + MARKS["waiting"] * waiting


def block_table(board: SweepProgress, block: BlockKey, metric: str, label: str, sign: str = "±") -> Group:
    """One block and direction: pair weights as rows, triplet weights as columns, mean ± std over seeds.

    The best of the squares whose seeds are all in has a star.
    """
    grid = board.grid(block, metric)
    pairs = [name for name in pair_weights if any(pair == name for pair, _ in grid)]
    triplets = [name for name in triplet_weights if any(triplet == name for _, triplet in grid)]
    dataset, framework, backbone, stage = block
    table = Table(box=None, padding=(0, 1))
    table.add_column("", style="bold", min_width=7)
    for triplet in triplets:
        table.add_column(triplet, justify="right", min_width=16)
    best = max((s.mean for s in grid.values() if s.done and s.done == s.asked), default=math.inf)
    for pair in pairs:
        squares = [grid.get((pair, triplet)) for triplet in triplets]
        texts = [square_text(s, sign, best=_is_best(s, best)) for s in squares]
        table.add_row(pair, *(Text(t, style=_style(s, best)) for t, s in zip(texts, squares, strict=True)))
    return Group(Text(f"{dataset} {framework} {backbone} {stage}: {label}", style="bold"), table)


def _is_best(square: Square | None, best: float) -> bool:
    return square is not None and square.done == square.asked and square.mean >= best


def _style(square: Square | None, best: float) -> str:
    if square is None:
        return ""
    if square.failed:
        return "red"
    if square.done:
        return "bold" if _is_best(square, best) else ""
    return "yellow" if square.running else "dim"


def header(board: SweepProgress, name: str, *, live: bool) -> RenderableType:
    """Counts, progress bar, and while a launch runs the time left."""
    counts = board.counts()
    states = (
        f"{counts['done']} done, {counts['running']} running, {counts['waiting']} waiting, {counts['failed']} failed"
    )
    if not live:
        return Text.assemble((name, "bold"), f"  {states}")
    line = Text.assemble(
        (name, "bold"),
        f"  {states}",
        f"\nelapsed {format_duration(time.monotonic() - board.started)}, "
        f"left about {format_duration(board.eta_seconds())}",
    )
    return Group(line, ProgressBar(total=1.0, completed=board.progress(), width=78))


def failures(board: SweepProgress) -> list[str]:
    """One line for each failed cell and stage."""
    return [
        f"{entry.name}  {entry.cell.id}  {entry.reason}" for entry in board.entries.values() if entry.state == "failed"
    ]


def overview(board: SweepProgress, name: str, *, live: bool = True, sign: str = "±") -> Group:
    """The whole view."""
    parts: list[RenderableType] = [header(board, name, live=live)]
    for block in board.blocks():
        for metric, label in METRICS:
            parts += [Text(), block_table(board, block, metric, label, sign)]
    lost = failures(board)
    if lost:
        parts += [Text(), Text(f"failed ({len(lost)}):", style="red"), *(Text(f"  {line}") for line in lost[:10])]
    parts += [Text(), Text(". waiting   ~ running   x failed   * best   (n/m): n of m seeds are in", style="dim")]
    return Group(*parts)


class LiveView:
    """Shows a board while it changes; a context manager.

    Args:
        board: what to show.
        name: the sweep's name.
        console: where to show it.
    """

    def __init__(self, board: SweepProgress, name: str, console: Console) -> None:
        self.board, self.name, self.console = board, name, console
        self._live = Live(get_renderable=lambda: self._view(), console=console, refresh_per_second=2, transient=True)
        self._interactive = console.is_terminal

    def __enter__(self) -> LiveView:
        """Start drawing, on a terminal."""
        if self._interactive:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the final view standing."""
        if self._interactive:
            self._live.stop()

    def _view(self) -> RenderableType:
        tall = len(self.board.blocks()) * 2 * 8 + 6
        if tall <= self.console.height:
            return overview(self.board, self.name, sign=plus_minus(self.console))
        # A view taller than the terminal cannot be redrawn in place: show the block that is filling.
        return Group(header(self.board, self.name, live=True), *self._current_block())

    def _current_block(self) -> Iterator[RenderableType]:
        running = [entry for entry in self.board.entries.values() if entry.state == "running"]
        busy = {(e.cell.data.name, e.cell.model.framework, e.cell.model.backbone.name, e.stage_name) for e in running}
        blocks = [block for block in self.board.blocks() if block in busy] or self.board.blocks()[:1]
        for metric, label in METRICS[: 2 if self.console.height >= 22 else 1]:
            yield Text()
            yield block_table(self.board, blocks[0], metric, label, plus_minus(self.console))

    def refresh(self) -> None:
        """Nothing to do: on a terminal the view redraws itself twice a second, elsewhere events are lines."""

    def note(self, text: str) -> None:
        """A line above the view (or in the log)."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=not self._interactive)

    def epoch(self, entry: Entry) -> None:
        """An epoch is over: a plain line where nothing is redrawn."""
        if not self._interactive:
            left = format_duration(self.board.eta_seconds())
            self.note(
                f"{entry.name}: epoch {entry.epoch}/{entry.epochs}, val rsum {entry.val_rsum:.1f} (left about {left})"
            )

    def done(self, entry: Entry) -> None:
        """A cell finished a stage."""
        if not self._interactive:
            test, counts = entry.test, self.board.counts()
            self.note(
                f"{entry.name}: done, test R@1 {test['test/i2t_r1']:.1f} / {test['test/t2i_r1']:.1f} "
                f"({counts['done']} of {sum(counts.values())})"
            )

    def failed(self, entry: Entry) -> None:
        """A cell failed."""
        self.note(f"{entry.name}: failed, {entry.reason} (goal-sweep logs ... {entry.cell.id})")
