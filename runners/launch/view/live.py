"""The view of a sweep: redrawn while it trains, and printed in full by `status` and at the end of a launch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from goal_sweep.goal_core.basics.errors import printable
from goal_sweep.runners.launch.view.grids import METRICS, Judge, block_grid, legend
from goal_sweep.runners.launch.view.progress import STATES, SweepProgress, TimeLeft
from goal_sweep.runners.store import State, TrainingStatus
from goal_sweep.sweeps import Training
from goal_sweep.sweeps.cells import CANDIDATES

MAX_FAILURES = 10
"""Failed trainings that the view names."""
_ORDER: tuple[State, ...] = ("running", "waiting", "failed", "done")
"""Of the blocks of a sweep in training, by their most urgent state."""


def format_duration(seconds: float) -> str:
    """Write a time with the unit that suits it: `45 s`, `12 min`, `3.2 h`, `4.1 days`."""
    if seconds < 5400:
        return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def header(progress: SweepProgress, name: str, *, live: bool) -> RenderableType:
    """Draw the counts and, while a launch runs, the times and a progress bar."""
    counts = progress.counts()
    states = ", ".join(f"{counts[state]} {state}" for state in STATES)
    if begun := [progress[training].epochs for training in progress.trainings if progress.begun(training)]:
        states += f"\n{len(begun)} of the waiting continue from a saved state ({sum(begun)} epochs in all)"
    if not live:
        return Text.assemble((name, "bold"), f"  {states}", f"\n{progress.phase}" if progress.phase else "")
    left = progress.left()
    end = "" if left is None else f", {until(left.seconds)}"
    times = f"elapsed {format_duration(time.monotonic() - progress.started)}, left {_left_text(left)}{end}"
    phase = f"  {progress.phase}" if progress.phase else ""
    states = states.partition("\n")[0]
    line = Text.assemble((name, "bold"), f"  {states}\n{times}{phase}", no_wrap=True, overflow="ellipsis")
    return Group(line, ProgressBar(total=1.0, completed=progress.share_done()), Text())  # the bar does not end its line


def _left_text(left: TimeLeft | None) -> str:
    """The time left; `~` says, as in `plan`, that it rests on a price and not on this launch's speed."""
    if left is None:
        return "about --"
    return f"{'~' if left.priced else 'about '}{format_duration(left.seconds)}"


def until(left: float) -> str:
    """Write the moment that is so many seconds away, with the day unless it is near."""
    return f"until {datetime.now() + timedelta(seconds=left):{'%H:%M' if left < 12 * 3600 else '%a %d %b %H:%M'}}"


def overview(progress: SweepProgress, name: str, judge: Judge | None = None, *, live: bool = False) -> Group:
    """Draw the state of a sweep in full: what trains with its scores, what is done with its test results.

    Args:
        progress: the sweep.
        name: its name.
        judge: the rule for "within noise"; None marks nothing by it.
        live: a launch runs; then blocks in training come first, because a terminal crops what it has no room for.
    """
    parts: list[RenderableType] = [header(progress, name, live=live)]
    judged = False
    statuses = {training: progress[training] for training in progress.trainings}
    of_block = {block: {statuses[one].state for one in progress.of_block(block)} for block in progress.blocks()}
    in_turn = sorted(of_block, key=lambda block: min(map(_ORDER.index, of_block[block]))) if live else of_block
    for block in in_turn:
        has_results = "done" in of_block[block] and block.point != CANDIDATES  # which are not tested
        metrics = [""] if "running" in of_block[block] or not has_results else []
        metrics += METRICS if has_results else []
        for metric in metrics:
            grid, was_judged = block_grid(progress, block, metric, judge if metric else None)
            judged |= was_judged
            parts += [Text(), grid]
    parts += _listed("failed", [_named(*one) for one in statuses.items() if one[1].state == "failed"])
    parts += _listed("damaged, to be trained again", [_named(*one) for one in statuses.items() if one[1].damaged])
    unread = (one for one in statuses.items() if one[1].unreadable and one[1].state != "failed")
    parts += _listed("cannot be read, so nothing is known of them", [_named(*one) for one in unread])
    archives = Counter(status.imported for status in statuses.values() if status.imported)
    origins = (f"i imported: {count} from {archive}, not trained here" for archive, count in archives.items())
    parts += [Text(), *(Text(printable(line), style="yellow") for line in origins)]
    return Group(*parts, legend(judged=judged))


def _named(training: Training, status: TrainingStatus) -> str:
    return printable(f"{training.name}  {training.cell.id}  {status.reason}")


def _listed(heading: str, lines: Sequence[str]) -> list[Text]:
    """A heading and the first of some lines; nothing without lines."""
    if not lines:
        return []
    more = [f"and {len(lines) - MAX_FAILURES} more"] if len(lines) > MAX_FAILURES else []
    shown = (Text(f"  {line}") for line in [*lines[:MAX_FAILURES], *more])
    return [Text(), Text(f"{heading} ({len(lines)}):", style="red"), *shown]


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
        self._live = Live(get_renderable=self._view, console=console, refresh_per_second=2, transient=True)
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
        return overview(self.progress, self.name, live=True)

    def note(self, text: str) -> None:
        """Print a line above the view, or in the log."""
        self.console.print(printable(text), highlight=False, markup=False, soft_wrap=not self._interactive)

    def show_all(self) -> None:
        """Print the state of the sweep in full."""
        self.console.print(overview(self.progress, self.name, self.judge))

    def epoch(self, training: Training, val_rsum: float) -> None:
        """Print a line for a finished epoch, unless the view redraws itself."""
        if not self._interactive:
            done, left = self.progress[training].epochs, _left_text(self.progress.left())
            self.note(f"{training.name}: epoch {done}/{training.epochs}, val rsum {val_rsum:.1f} (left {left})")

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
