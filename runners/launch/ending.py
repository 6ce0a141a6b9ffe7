"""The end of a launch: tracking catches up, the grids are shown, and an exit status sums it up."""

from __future__ import annotations

from runners.launch.live import LiveView, overview
from runners.launch.plan import LaunchOptions, LaunchPlan
from runners.launch.sharing import Untracked
from runners.launch.squares import signs_of
from runners.launch.stopping import STOPPED
from runners.tracking.sync import SweepTracking

DONE, SOME_FAILED = 0, 1
CATCH_UP_S = 60.0
"""Seconds that tracking may take to catch up at the end of a launch."""


def finish(view: LiveView, tracking: SweepTracking | Untracked, *, patient: bool = True) -> None:
    """Bring tracking up to date, and show the state of the sweep."""
    tracking.sync_all(wait=CATCH_UP_S, patient=patient)
    if tracking.trouble:
        # It had its time.
        tracking.limit(0)
        view.note(f"tracking: {tracking.trouble} ({view.command('sync', with_tracking=True)} brings it up to date)")
    view.console.print(overview(view.progress, view.name, signs_of(view.console), view.judge))


def exit_status(plan: LaunchPlan, options: LaunchOptions) -> int:
    """Exit status of a launch that no signal has stopped: 0 done, 1 some cells failed, 75 something is left."""
    counts = plan.progress.counts(plan.asked)
    if counts["failed"]:
        return SOME_FAILED
    if options.share is not None:  # it ends when others hold what is left
        return DONE
    # --only-failed leaves the others waiting.
    return STOPPED if counts["waiting"] and options.failed != "only" else DONE
