"""The view of a sweep: redrawn while it trains, and printed in full by `status` and at the end of a launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from goal_sweep.goal_core.basics.errors import printable
from goal_sweep.runners.launch.view.grids import METRICS, Judge, block_grid, legend
from goal_sweep.runners.launch.view.progress import STATES, SweepProgress
from goal_sweep.runners.store import State, TrainingStatus
from goal_sweep.sweeps.cells import CANDIDATES, Training

MAX_FAILURES = 10
_PERIOD_S = 3600.0
"""Seconds of the past by whose pace the time left is told."""
_ORDER: tuple[State, ...] = ("running", "waiting", "failed", "done")
"""Of the blocks of a sweep in training, by their most urgent state."""


def header(progress: SweepProgress, name: str) -> Text:
    """The sweep's name and how many trainings are in each state."""
    counts = progress.counts()
    text = Text.assemble((name, "bold"), f"  {', '.join(f'{counts[state]} {state}' for state in STATES)}")
    if begun := [progress[training].epochs for training in progress.trainings if progress.begun(training)]:
        text.append(f"\n{len(begun)} of the waiting continue from a saved state ({sum(begun)} epochs in all)")
    text.append(f"\n{progress.phase}" if progress.phase else "")
    return text


def overview(progress: SweepProgress, name: str, judge: Judge | None = None, *, live: bool = False) -> Group:
    """Draw the state of a sweep in full: what trains with its scores, what is done with its test results.

    Args:
        live: a launch runs; then blocks in training come first, because a terminal crops what it has no room for.
    """
    parts: list[RenderableType] = [header(progress, name)]
    judged = False
    statuses = {training: progress[training] for training in progress.trainings}
    of_block = {block: {statuses[one].state for one in progress.of_block(block)} for block in progress.blocks()}
    in_turn = sorted(of_block, key=lambda block: min(map(_ORDER.index, of_block[block]))) if live else of_block
    for block in in_turn:
        has_results = "done" in of_block[block] and block.configuration != CANDIDATES  # which are not tested
        metrics = [""] if "running" in of_block[block] or not has_results else []
        metrics += METRICS if has_results else []
        for metric in metrics:
            grid, was_judged = block_grid(progress, block, metric, judge if metric else None)
            judged |= was_judged
            parts += [Text(), grid]
    parts += _listed("failed", [_named(*one) for one in statuses.items() if one[1].state == "failed"])
    parts += _listed("to be repeated", [_named(*one) for one in statuses.items() if "damaged" in one[1].reason])
    return Group(*parts, legend(judged=judged))


def _named(training: Training, status: TrainingStatus) -> str:
    return printable(f"{training.name}  {training.cell.id}  {status.reason}")


def _listed(heading: str, lines: Sequence[str]) -> list[Text]:
    if not lines:
        return []
    more = [f"and {len(lines) - MAX_FAILURES} more"] if len(lines) > MAX_FAILURES else []
    shown = (Text(f"  {line}") for line in [*lines[:MAX_FAILURES], *more])
    return [Text(), Text(f"{heading} ({len(lines)}):", style="red"), *shown]


class LiveView:
    """Shows a sweep while it trains; see `launch_sweep`. A context manager."""

    def __init__(
        self,
        progress: SweepProgress,
        name: str,
        console: Console,
        command: Callable[..., str],
        judge: Judge | None = None,
    ) -> None:
        self.progress, self.name, self.console, self.command, self._judge = progress, name, console, command, judge
        left = TimeRemainingColumn(compact=True)
        columns = BarColumn(40), TextColumn("{task.percentage:.0f} %"), TimeElapsedColumn(), TextColumn("left"), left
        self._bar = Progress(*columns, console=console, speed_estimate_period=_PERIOD_S)
        self._task = self._bar.add_task("", total=None)
        self._live = Live(get_renderable=self._view, console=console, refresh_per_second=2, transient=True)
        self._interactive = console.is_terminal

    def __enter__(self) -> LiveView:
        """Start drawing, on a terminal."""
        done, total = self.progress.work()
        self._bar.reset(self._task, total=total, completed=done)
        if self._interactive:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop drawing."""
        if self._interactive:
            self._live.stop()

    def _view(self) -> RenderableType:
        return Group(self._bar, overview(self.progress, self.name, live=True))

    def note(self, text: str) -> None:
        """Print a line above the view, or in the log."""
        self.console.print(printable(text), highlight=False, markup=False, soft_wrap=not self._interactive)

    def show_all(self) -> None:
        """Print the state of the sweep in full."""
        self.console.print(overview(self.progress, self.name, self._judge))

    def epoch(self, training: Training, val_rsum: float) -> None:
        """Take note of a finished epoch, and print a line for it unless the view redraws itself."""
        done, total = self.progress.work()
        self._bar.update(self._task, completed=done, total=total)
        if not self._interactive:
            epochs, seconds = self.progress[training].epochs, self._bar.tasks[0].time_remaining
            left = "--" if seconds is None else str(timedelta(seconds=math.ceil(seconds)))
            self.note(f"{training.name}: epoch {epochs}/{training.stage.epochs}, val rsum {val_rsum:.1f} (left {left})")

    def done(self, training: Training) -> None:
        """Print a line for a finished training, unless the view redraws itself."""
        if not self._interactive:
            test, counts = self.progress[training].metrics, self.progress.counts()
            shown = f"best val rsum {self.progress[training].best_rsum:.1f}"
            if training.cell.tested:
                shown = f"test R@1 {test['test/i2t_r1']:.1f} / {test['test/t2i_r1']:.1f}"
            self.note(f"{training.name}: done, {shown} ({counts['done']} of {sum(counts.values())})")

    def failed(self, training: Training) -> None:
        """Print a line for a failed training."""
        reason = self.progress[training].reason
        self.note(f"{training.name}: failed, {reason} ({self.command('logs', training.cell.id)})")
