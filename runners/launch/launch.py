"""`goal-sweep launch`: train what a sweep lacks, and leave the store and MLflow complete.

The store decides what is missing, and Ray Tune runs it. Only this process writes MLflow, from what the store holds.
A launch that was killed at any point continues when it is started again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console

from goal_sweep.goal_core.models.sizes import DataSize
from goal_sweep.runners.execution.session.joining import reach
from goal_sweep.runners.launch.launcher import Launcher, LaunchRay, finish
from goal_sweep.runners.launch.opened_sweep import OpenedSweep
from goal_sweep.runners.launch.remaining.plan import DONE, SOME_FAILED, LaunchOptions, LaunchPlan
from goal_sweep.runners.launch.signals import StopSignals
from goal_sweep.runners.launch.view.grids import Judge
from goal_sweep.runners.launch.view.live import LiveView
from goal_sweep.runners.launch.view.progress import SweepProgress
from goal_sweep.runners.planning.speeds import Speeds, in_store
from goal_sweep.runners.results import edits_since
from goal_sweep.runners.tracking.sync import SweepTracking


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """How a launch ended."""

    status: int
    """Exit status: 0 when all that was asked for is done, 1 when cells failed, 75 or 130 when a signal stopped it."""
    progress: SweepProgress
    found_nothing_to_do: bool
    """Whether no training was left to do when the launch began."""
    stopped: bool = False
    """Whether a signal stopped it."""
    is_tracked: bool = True
    """Whether tracking is up to date with the store."""


def launch_sweep(
    sweep: OpenedSweep,
    options: LaunchOptions,
    console: Console,
    command: Callable[..., str],
    signals: StopSignals | None = None,
    judge: Judge | None = None,
) -> LaunchOutcome:
    """Train what a sweep lacks.

    Args:
        sweep: the sweep.
        options: the options of this launch.
        console: where to show progress.
        command: writes another command on the same sweep, from the verb and its arguments.
        signals: handles the signals that stop the launch; it must be entered already.
        judge: the rule for "within noise", for the grids at the end.

    Raises:
        RayLostError: Ray has no machine left. Finished epochs are kept, and a new launch continues from them.
        GoalError: nothing can be trained; the message says why.
    """
    signals = signals or StopSignals()
    if options.failed != "keep":
        sweep = sweep.searched(retried=True)
    view = partial(LiveView, console=console, command=command, judge=judge)
    with LaunchRay() as ray:
        first = outcome = _launch(sweep, options, view, signals, ray)
        while outcome.status in (DONE, SOME_FAILED) and sweep.trails and not outcome.stopped:
            if options.failed == "only" or (outcome.status == SOME_FAILED and options.fail_fast):
                break
            later = sweep.searched()
            if later.trails == sweep.trails:  # nothing new follows from what was trained
                break
            sweep, options = later, replace(options, failed="keep", force=False)
            outcome = _launch(sweep, options, view, signals, ray)
    return replace(outcome, found_nothing_to_do=first.found_nothing_to_do)


def _launch(
    sweep: OpenedSweep,
    options: LaunchOptions,
    show: Callable[..., LiveView],
    signals: StopSignals,
    ray: LaunchRay,
    *,
    is_second: bool = False,
) -> LaunchOutcome:
    """Train what a sweep lacks and can train now: the candidates of its search, or what reports.

    If another launch ends after the store was read here, it is read again, once unless this one has to wait.
    """
    plan = LaunchPlan(sweep, options)
    plan.progress.started = ray.began
    view = show(plan.progress, sweep.config.name)
    todo = plan.startable(sweep.trainings, ahead=True)
    others_run = not is_second and any(plan.progress[one].state == "running" for one in sweep.trainings)
    if sweep.trails:
        view.note(plan.progress.phase)
    if todo:
        sweep.check_trainable()
        if options.address:
            reach(options.address)
        if unlike := sweep.unlike_published():
            view.note(f"warning: {unlike}")
        for line in sweep.dataset.notes:
            view.note(f"data: {line}")
    sweep.prepare()
    for line in edits_since(sweep.store, sweep, todo):
        view.note(line)

    def warn(line: str) -> None:
        if todo:  # or else the end of the launch says it, in one line
            view.note(f"tracking: {line}")

    alone = options.share is None
    with SweepTracking(sweep, sweep.store, live=bool(todo), mirror=alone, warn=warn) as tracking:
        if todo:
            with sweep.store.heartbeat(sweep.config.name) as heartbeat:
                heartbeat.until = lambda: plan.progress.pace.until
                keys = (training.key for training in todo)
                is_stale = heartbeat.start(keys, wait_s=options.wait_s, note=view.note) or others_run
                if is_stale:
                    tracking.limit(0)
                else:
                    tracking.sync_all()
                    speeds = partial(sweep_speeds, sweep)
                    status = Launcher(sweep, options, plan, view, tracking, heartbeat.id, signals, speeds, ray).run()
        else:
            # Nothing was trained, so there is little to catch up with, and a dead server is not waited for.
            finish(view, tracking, patient=False)
            status, is_stale = plan.exit_status, False
    if is_stale:  # the other launch has finished, failed or moved some of what was planned
        sweep = sweep.searched(retried=options.failed != "keep")
        return _launch(sweep, options, show, signals, ray, is_second=True)
    return LaunchOutcome(
        status=status,
        progress=plan.progress,
        found_nothing_to_do=not todo,
        stopped=signals.received is not None,
        is_tracked=not tracking.trouble,
    )


def sweep_speeds(sweep: OpenedSweep) -> Speeds:
    """How fast the trainings of a sweep are."""
    known = in_store(sweep.store, sweep.statuses())
    return Speeds(sweep.config, DataSize.of_dataset(sweep.dataset), known=known)
