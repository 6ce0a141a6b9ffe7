"""How far a sweep is, by training, block and objective, and the view of it.

The view is redrawn while the sweep trains, and printed in full by `status` and at the end of a launch.

A block is a grid of scores or test results, readable at 80 columns and without colour (NO_COLOR, a pipe).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate

from rich.color import blend_rgb
from rich.color_triplet import ColorTriplet
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from goal_sweep.goal_core.basics.errors import printable
from goal_sweep.goal_core.objectives import LOSS, baselines, pair_weights, triplet_weights
from goal_sweep.runners.store import State, TrainingStatus
from goal_sweep.sweeps.cells import CANDIDATES, Block, Training
from goal_sweep.sweeps.identity import content_id

Objective = tuple[str, str]
MAX_FAILURES = 10
_ORDER: tuple[State, ...] = ("running", "waiting", "failed", "done")
"""Of the blocks of a sweep in training, by their most urgent state."""
METRICS = {"test/i2t_r1": "image -> text R@1", "test/t2i_r1": "text -> image R@1"}
"""The test results that have a grid, and what it calls them."""
LABEL, MEAN, SQUARE = 8, 7, 23
"""Columns of a row's name, of a mean with its star, of an objective with the space after it where there is room."""
_LOWEST, _HIGHEST = ColorTriplet(0xFF, 0xFF, 0xFF), ColorTriplet(0x57, 0xBB, 0x8A)
"""The colours behind the lowest and the highest mean of a grid, as in the report's heatmaps."""
MAX_MARKS = 6
"""Seeds that get a mark each; of more than these, the number that is done is written."""
WAITING, SHARES, DONE, FAILED = "·", "▁▂▃▄▅▆▇", "█", "x"
"""Marks of a seed; `SHARES` for one in training, by the share of its epochs that is done."""
STATES: tuple[State, ...] = ("done", "running", "waiting", "failed")
_NEW = TrainingStatus(state="waiting")


def overview(progress: SweepProgress, name: str, *, width: int = 80, room: Console | None = None) -> Group:
    """Draw the state of a sweep in full: what trains with its scores, what is done with its test results.

    Args:
        room: the terminal of a launch that runs: blocks in training come first, and grids with no room are left out.
    """
    counts = progress.counts()
    head = Text.assemble((name, "bold"), f"  {', '.join(f'{counts[state]} {state}' for state in STATES)}")
    if begun := [progress[training].epochs for training in progress.trainings if progress.begun(training)]:
        head.append(f"\n{len(begun)} of the waiting continue from a saved state ({sum(begun)} epochs in all)")
    head.append(f"\n{progress.phase}" if progress.phase else "")
    drawn: list[tuple[str, Group]] = []
    statuses = {training: progress[training] for training in progress.trainings}
    of_block = {block: {statuses[one].state for one in progress.of_block(block)} for block in progress.blocks}
    in_turn = sorted(of_block, key=lambda block: min(map(_ORDER.index, of_block[block]))) if room else of_block
    for block in in_turn:
        has_results = "done" in of_block[block] and block.configuration != CANDIDATES  # which are not tested
        metrics = [""] if "running" in of_block[block] or not has_results else []
        metrics += METRICS if has_results else []
        drawn += [(metric, block_grid(progress, block, metric, width)) for metric in metrics]
    lists = _listed("failed", [_named(*one) for one in statuses.items() if one[1].state == "failed"])
    lists += _listed("to be repeated", [_named(*one) for one in statuses.items() if one[1].damaged])
    shown: list[RenderableType] = [*(Group(Text(), grid) for _, grid in drawn), *lists]
    signs = "".join(str(line) for _, grid in drawn for line in grid.renderables)
    last = legend(signs, has_scores=any(not metric for metric, _ in drawn))
    if room is not None:  # one row is the bar's, and the first grid stays, whatever the terminal
        above, below, *rows = (len(room.render_lines(one)) for one in (head, last, *shown))
        fitting = sum(used < room.height - above - below for used in accumulate(rows))
        shown = shown[: max(fitting, bool(drawn))]
    return Group(head, *shown, last)


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

    def __init__(self, progress: SweepProgress, name: str, console: Console, command: Callable[..., str]) -> None:
        self.progress, self.name, self.console, self.command = progress, name, console, command
        left = TimeRemainingColumn(compact=True)
        columns = BarColumn(40), TextColumn("{task.percentage:.0f} %"), TimeElapsedColumn(), TextColumn("left"), left
        self._bar = Progress(*columns, console=console, speed_estimate_period=3600)  # by the pace of the last hour
        self._task = self._bar.add_task("", total=None)
        self._live = Live(get_renderable=self._view, console=console, refresh_per_second=2, transient=True)
        self._interactive, self._paced_from = console.is_terminal, math.inf

    def __enter__(self) -> LiveView:
        """Start drawing, on a terminal."""
        done, total = self.progress.work()
        self._bar.reset(self._task, total=total, completed=done)
        if self._interactive:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop drawing, if it has begun."""
        self._live.stop()

    def _view(self) -> RenderableType:
        return Group(self._bar, overview(self.progress, self.name, width=self.console.width, room=self.console))

    def note(self, text: str) -> None:
        """Print a line above the view, or in the log."""
        self.console.print(printable(text), highlight=False, markup=False, soft_wrap=not self._interactive)

    def show_all(self) -> None:
        """Print the state of the sweep in full."""
        self.console.print(overview(self.progress, self.name, width=self.console.width))

    def epoch(self, training: Training, val_rsum: float) -> None:
        """Take note of a finished epoch, and print a line for it unless the view redraws itself."""
        done, total = self.progress.work()
        self._bar.update(self._task, completed=done, total=total)
        if not self._interactive:
            epochs, seconds = self.progress[training].epochs, self._bar.tasks[0].time_remaining
            self._paced_from = min(self._paced_from, (now := self.console.get_time()) + 5)  # a stack comes at once
            seconds = None if now < self._paced_from else seconds
            left = "" if seconds is None else f" (left {timedelta(seconds=math.ceil(seconds))})"
            shown = f"epoch {epochs}/{training.stage.epochs}{' (warm-up)' * (epochs <= training.stage.warmup_epochs)}"
            self.note(f"{training.name}: {shown}, val rsum {val_rsum:.1f}{left}")

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


def block_grid(progress: SweepProgress, block: Block, metric: str = "", width: int = 80) -> Group:
    """Draw a block: mean ± std over the seeds of each objective, and a mark for each seed until all are done.

    A star marks the highest of those whose seeds are all done.

    Args:
        block: of the candidates of a search, the score of the best is drawn.
        metric: one of `METRICS`, or "" for the val rsum of the best epoch so far, of the seeds with the most epochs.
    """
    seeds = progress.blocks[block]
    points = {name: of_seed for name, own in seeds.items() if (of_seed := _points(progress, own, metric))}
    means = {name: statistics.fmean(of_seed.values()) for name, of_seed in points.items()}
    complete = [name for name in means if all(progress[seed].state == "done" for seed in seeds[name])]
    top = max((means[name] for name in complete), default=math.inf)
    best = {name for name in complete if f"{means[name]:.1f}" == f"{top:.1f}"}  # as printed
    low, high = min(means.values(), default=0.0), max(means.values(), default=0.0)
    squares = {}
    for name, own in seeds.items():
        mean = f"{'*' if name in best else ''}{means[name]:.1f}" if name in means else "--"
        spread = f" ± {statistics.stdev(points[name].values()):.1f}" if len(points.get(name, ())) > 1 else ""
        share = (means.get(name, low) - low) / ((high - low) or 1.0)
        colour = f"#000000 on {blend_rgb(_LOWEST, _HIGHEST, share).hex}" if name in means else ""
        text = Text.assemble((f"{mean:>{MEAN}}{spread:<7}", f"{'bold ' * (name in best)}{colour}"), " ")
        squares[name] = text.append_text(_marks(progress, own, always=not metric))
    heading = ", ".join(filter(None, (" ".join(block[:-1]), block.configuration)))
    title = Text(f"{heading}: {METRICS[metric] if metric else block_counts(progress, block)}", style="bold")
    return Group(title, *map(_one_line, _rows(squares, width - LABEL + 1)))


def _points(progress: SweepProgress, seeds: Sequence[Training], metric: str) -> dict[int, float]:
    """The value of each seed; in a search, of those of the best candidate, by the mean of those with most seeds."""
    if metric:
        return {one.cell.seed: value for one in seeds if (value := progress[one].metrics.get(metric)) is not None}
    tried: dict[int | None, list[TrainingStatus]] = {}
    for one in (one for one in seeds if not math.isnan(progress[one].best_rsum)):
        tried.setdefault(one.number, []).append(progress[one])
    found: list[dict[int, float]] = []
    for scored in tried.values():
        most = max(status.epochs for status in scored)  # a mean over different epochs would say nothing
        found.append(dict(enumerate(status.best_rsum for status in scored if status.epochs == most)))
    return max(found, key=lambda of_seed: (len(of_seed), statistics.fmean(of_seed.values())), default={})


def _rows(squares: Mapping[Objective, Text], room: int) -> Iterable[Text]:
    """The squares in the order of the table, below and beside the names of their weights; then what is too wide.

    What has no column stands apart, or it would seem to be in one.
    """
    names = [name for name in triplet_weights if any(triplet == name for _, triplet in squares)]
    wide = max(min(SQUARE, room // max(1, len(names))), 1 + max([*map(len, names), *map(len, squares.values())]))
    abreast = max(1, room // wide)
    parts = [names[start : start + abreast] for start in range(0, len(names), abreast)]
    parts += [[LOSS]] * any(LOSS in key for key in squares)
    for triplets in parts:
        heads = (f"{f'{triplet:>{MEAN}}':<{wide}}" for triplet in triplets if triplet != LOSS)
        yield Text(" " * LABEL + "".join(heads), style="bold")
        for pair in (*pair_weights, *baselines):
            if any((pair, triplet) in squares for triplet in triplets):
                row = Text.assemble((f"{pair:<{LABEL}}", "bold"))
                for square in (squares.get((pair, triplet), Text()) for triplet in triplets):
                    row.append_text(square).append(" " * (wide - len(square)))
                yield row


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "crop"
    text.rstrip()
    return text


def block_counts(progress: SweepProgress, block: Block) -> str:
    """How far a block is: `15 of 45 done, 4 running (epoch 3-5/30)`."""
    seeds = progress.of_block(block)
    counts = progress.counts(seeds)
    parts = [f"{counts['done']} of {len(seeds)} done"]
    if epochs := [progress[seed].epochs for seed in seeds if progress[seed].state == "running"]:
        span = f"{min(epochs)}" if min(epochs) == max(epochs) else f"{min(epochs)}-{max(epochs)}"
        epoch = "warm-up" if max(epochs) <= seeds[0].stage.warmup_epochs else "epoch"
        parts.append(f"{counts['running']} running ({epoch} {span}/{seeds[0].stage.epochs})")
    if begun := sum(map(progress.begun, seeds)):
        parts.append(f"{begun} begun")
    if counts["failed"]:
        parts.append(f"{counts['failed']} failed")
    return ", ".join(parts) + (", score of the best" if block.configuration == CANDIDATES else "")


def legend(drawn: str, *, has_scores: bool) -> Text:
    """Explain what is drawn in grids, in lines of at most 80 columns."""
    share = f"{SHARES[0]} to {SHARES[-1]} share of its epochs"
    lines = ["score: best val rsum so far, mean over the seeds with the most epochs"] * has_scores
    marks = f"a mark for each seed: {WAITING} waiting  {share}  {DONE} done  {FAILED} failed"
    lines += [marks] * any(sign in drawn for sign in (WAITING, *SHARES, DONE))
    lines += ["* highest of those that are done"] * ("*" in drawn)
    return Text("\n".join(lines), style="dim")


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


class SweepProgress:
    """The status of every training of one sweep, in its order: as the store has it, then as its launch tells.

    Those of which the store says nothing wait.
    """

    def __init__(
        self, trainings: Sequence[Training], statuses: Mapping[Training, TrainingStatus] | None = None
    ) -> None:
        self._statuses: dict[Training, TrainingStatus] = {}
        self.phase = ""
        """What a sweep that tunes does now, in words; empty for others."""
        self.adopt(trainings, statuses or {})

    def adopt(self, trainings: Sequence[Training], statuses: Mapping[Training, TrainingStatus]) -> None:
        """Take these for all trainings, as a search goes on; of those known already the status stays."""
        known, self.trainings = self._statuses, list(trainings)
        self._statuses = {one: known.get(one, _NEW) for one in trainings}
        self.blocks: dict[Block, dict[Objective, list[Training]]] = {block: {} for block in _in_order(trainings)}
        """The seeds of each objective of a block. A training of several configurations is in several blocks."""
        self._later: dict[Training, list[Training]] = {}
        for training in trainings:
            objective = training.cell.objective.pair, training.cell.objective.triplet
            for block in training.blocks:
                self.blocks[block].setdefault(objective, []).append(training)
            if training.before is not None:
                self._later.setdefault(training.before, []).append(training)
        for training, status in statuses.items():
            if training in self._statuses and training not in known:
                self.set(training, status)

    def __getitem__(self, training: Training) -> TrainingStatus:
        """The status of a training."""
        return self._statuses[training]

    def set(self, training: Training, status: TrainingStatus) -> None:
        """Take a status that was read from the store. The stages after a failed one cannot start and fail too."""
        if status.state == "done":
            best = status.metrics.get("val/rsum", status.best_rsum)
            status = replace(status, epochs=training.stage.epochs, best_rsum=best)
        elif status.state == "failed":
            for later in self._later.get(training, ()):
                reason = f"its {training.stage.name} stage failed"
                self.set(later, replace(self._statuses[later], state="failed", reason=reason))
        elif training.before is not None and self[training].state == self[training.before].state == "failed":
            return
        self._statuses[training] = status

    def running(self, training: Training, epoch: int | None = None, rsum: float = math.nan) -> None:
        """Note that a training runs, if given with so many epochs done, the newest of which had this val/rsum."""
        before = self[training]
        best = before.best_rsum if math.isnan(rsum) or before.best_rsum > rsum else rsum
        epochs = before.epochs if epoch is None else epoch
        self._statuses[training] = replace(before, state="running", epochs=epochs, best_rsum=best)

    def waiting(self, training: Training, reason: str = "") -> None:
        """Note that a training will be tried again, from the epochs that it has done, and why not in this launch."""
        self._statuses[training] = replace(self[training], state="waiting", reason=reason or self[training].reason)

    def begun(self, training: Training) -> bool:
        """Whether a training waits with epochs saved, from which it continues."""
        return self[training].state == "waiting" and self[training].epochs > 0

    def counts(self, trainings: Iterable[Training] | None = None) -> dict[State, int]:
        """Count the trainings in each state."""
        chosen = Counter(self[training].state for training in (self.trainings if trainings is None else trainings))
        return {state: chosen[state] for state in STATES}

    def work(self) -> tuple[int, int]:
        """The epochs that are done, and all. Those of a failed training count as done."""
        total = sum(training.stage.epochs for training in self.trainings)
        unfinished = [one for one in self.trainings if self[one].state in ("waiting", "running")]
        return total - sum(max(0, one.stage.epochs - self[one].epochs) for one in unfinished), total

    def of_block(self, block: Block) -> list[Training]:
        """The trainings of a block."""
        return [training for seeds in self.blocks[block].values() for training in seeds]

    def digest(self) -> str:
        """16 hex digits that change when the set of trainings changes, or the state or result of any of them."""
        ends = [[one.cell.id, one.key, self[one].state, dict(self[one].metrics)] for one in self.trainings]
        return content_id(sorted(ends, key=str))


def _in_order(trainings: Iterable[Training]) -> list[Block]:
    """The blocks by stage, then by cell, then in the order of the configurations of trainings that have one."""
    blocks_of = [training.blocks for training in trainings]
    number: dict[tuple[str, ...], int] = {}
    for blocks in blocks_of:
        number.setdefault(blocks[0][:-1], len(number))
    single_first = sorted(blocks_of, key=lambda blocks: len(blocks) > 1)
    every = dict.fromkeys(block for blocks in single_first for block in blocks)
    return sorted(every, key=lambda block: number[block[:-1]])
