"""`goal-sweep launch`: train what a sweep lacks, and leave the store and MLflow complete.

A launch that was killed at any point continues when it is started again.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from rich.console import Console

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.runners.execution.session import RaySession, Resources
from goal_sweep.runners.launch.loop import Launch
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.launch.remaining import LaunchOptions, Remaining
from goal_sweep.runners.launch.signals import StopSignals
from goal_sweep.runners.launch.view import LiveView, SweepProgress
from goal_sweep.runners.results import ResultsTable, edits_since, read_results, update_results
from goal_sweep.runners.tracking.tracking import Tracking

CATCH_UP_S, HURRY_S = 60.0, 5.0
"""Seconds that trackers may take to catch up at the end of a launch, and of one that has to end soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """How a launch ended."""

    status: int
    """Exit status: 0 all is done, 1 cells failed, 75 something is left, 75 or 130 a signal stopped it."""
    progress: SweepProgress
    found_nothing_to_do: bool
    is_tracked: bool


def launch_sweep(
    sweep: OpenedSweep, options: LaunchOptions, console: Console, command: Callable[..., str], signals: StopSignals
) -> LaunchOutcome:
    """Train what a sweep lacks.

    Raises `UnfinishedError` where Ray, the store or its credentials are gone: finished epochs are kept, and the same
    command continues. Another `GoalError` says why nothing can be trained.

    Args:
        command: writes another command on the same sweep, from the verb and its arguments.
        signals: handles the signals that stop the launch; it must be entered already.
    """
    before = read_results(sweep.store, sweep.config.name)
    table = update_results(sweep.store, sweep, must_write=False) if sweep.store.exists else None
    damaged = [] if table is None else list(_taken_back(sweep, table))
    if options.failed != "keep":
        sweep = sweep.searched(retried=True)
    remaining = Remaining(sweep, options)
    progress = remaining.progress
    repeated = [one for one in progress.trainings if progress[one].damaged]
    damaged += [f"{one.name}: {progress[one].reason}; it is trained again" for one in repeated]
    view = LiveView(progress, sweep.config.name, console, command)
    todo, status, trouble, others = remaining.startable(ahead=True), remaining.exit_status, "", list[str]()
    has_work = bool(todo or remaining.held)
    for line in edits_since(before, sweep):  # also without work, for the report leaves out what the edits leave out
        view.note(line)
    with ExitStack() as stack:
        if has_work:
            session = _start_ray(sweep, options, stack, signals)
            unlike = [f"warning: {unlike}"] if (unlike := sweep.unlike_published()) else []
            data, phase = (f"data: {note}" for note in sweep.notes), filter(None, [progress.phase])
            for line in (*unlike, *data, *phase, *damaged):
                view.note(line)
            sweep.prepare()
        if sweep.store.exists:  # an earlier launch may have ended before MLflow had everything
            tracking = Tracking(sweep, sweep.store.root, live=has_work, warn=view.note)
            if table is None or has_work:
                table = update_results(sweep.store, sweep, must_write=has_work)
            stack.enter_context(tracking).catch_up(table)
            try:
                if has_work:
                    status = Launch(remaining, session, view, tracking, signals).run()
            finally:
                hurried = signals.received is not None
                with suppress(StorageError):  # the next launch or sync writes it
                    tracking.finish(update_results(sweep.store, remaining.sweep) if has_work else table)
                tracking.close(HURRY_S if hurried else CATCH_UP_S)
            trouble, *others = (one.trouble for one in tracking.threads)
    if trouble:
        view.note(f"tracking: {trouble} ({command('sync', with_tracking=True)} writes what is missing)")
    for line in filter(None, others):
        view.note(f"tracking: {line}")
    view.show_all()
    return LaunchOutcome(status=status, progress=progress, found_nothing_to_do=not has_work, is_tracked=not trouble)


def _start_ray(sweep: OpenedSweep, options: LaunchOptions, stack: ExitStack, signals: StopSignals) -> RaySession:
    """Start Ray while the sweep is checked. Nothing has been written when this raises what is wrong with it."""
    if sweep.wrong_at_once():
        sweep.check_trainable()
    need, patience_s = Resources.of(sweep.config.resources), sweep.config.execution.ray_timeout
    with ThreadPoolExecutor(1) as beside:
        checked = beside.submit(sweep.check_trainable)
        session = stack.enter_context(RaySession(options.address, need, patience_s))
        signals.install()
        checked.result()
    return session


def _taken_back(sweep: OpenedSweep, table: ResultsTable) -> Iterator[str]:
    """Take back the results of which a file is damaged, so that they are trained again. Says which."""
    trainings = {training.key: training for training in sweep.trainings}
    for row in table.rows(("training", "status", "reason")):
        if row["status"] == "done" and row["reason"]:
            sweep.store.folder(trainings[row["training"]]).forget_result(row["reason"])
            yield f"{row['reason']}; it is trained again"
