"""A queue that makes calls in order on its own thread, and retries them while the other side is down.

The driver must never wait for MLflow: a server that does not answer blocks its caller for minutes, a locked database
for a minute, and units would wait to be scheduled. The thread is a daemon. Python joins the threads of a pool when it
exits, and then a hanging call would keep a finished launch alive.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from enum import Enum

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_when_event_set, wait_chain, wait_fixed
from tenacity.nap import sleep_using_event

from goal_core.basics.errors import first_line

_log = logging.getLogger(__name__)
RETRY_WAITS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds to wait before each retry of a call; the last one repeats."""


class AfterError(Enum):
    """What to do after an error."""

    RETRY = "retry"
    """The other side is down: retry the call later."""
    DROP = "drop"
    """This call can never succeed: skip it."""
    STOP = "stop"
    """No call can ever succeed: make no more calls."""


class CallQueue:
    """An ordered queue of calls with its own thread.

    Args:
        judge: decides what to do after an exception.
        report: receives one line when trouble begins and one when it ends; called on the queue's thread.
    """

    def __init__(self, judge: Callable[[Exception], AfterError], report: Callable[[str], None]) -> None:
        self._judge, self._report = judge, report
        self._calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self._closing = threading.Event()
        self.stopped: Exception | None = None
        """The error that ended all calls, if any."""
        self.trouble: Exception | None = None
        """Why the current call failed and is retried; None while all goes well."""
        threading.Thread(target=self._work, name="goal-sweep tracking", daemon=True).start()

    @property
    def pending(self) -> int:
        """Number of calls not finished yet, including the current one."""
        return self._calls.unfinished_tasks

    def submit(self, call: Callable[[], None]) -> None:
        """Add a call to the queue. Returns at once."""
        if self.stopped is None and not self._closing.is_set():
            self._calls.put(call)

    def flush(self, timeout: float, *, patient: bool = True) -> bool:
        """Wait until all calls are made.

        Args:
            timeout: seconds to wait at most.
            patient: wait also while the other side is down.

        Returns:
            Whether all calls were made.
        """
        with self._calls.all_tasks_done:
            self._calls.all_tasks_done.wait_for(lambda: not self.pending or (self.trouble and not patient), timeout)
            return not self.pending and self.stopped is None

    def close(self, timeout: float) -> int:
        """Make the remaining calls within a time limit, then stop.

        Args:
            timeout: seconds to wait at most.

        Returns:
            Number of calls that were not made.
        """
        self.flush(timeout)
        left = self.pending
        self._closing.set()
        self._calls.put(lambda: None)  # wakes the thread
        return left

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            if self._closing.is_set():
                return
            if self.stopped is None:
                self._make(call)
            self._calls.task_done()

    def _make(self, call: Callable[[], None]) -> None:
        tries = Retrying(
            retry=retry_if_exception(self._is_temporary),
            wait=wait_chain(*map(wait_fixed, RETRY_WAITS_S)),
            sleep=sleep_using_event(self._closing),
            stop=stop_when_event_set(self._closing),
            before_sleep=self._report_trouble,
            reraise=True,
        )
        try:
            tries(call)
        except Exception as error:
            self.trouble = None
            self._settle(error)
        else:
            self.trouble = None
            if tries.statistics["attempt_number"] > 1:
                self._report(f"tracking works again; {self.pending - 1} updates are still to be written")

    def _is_temporary(self, error: BaseException) -> bool:
        return isinstance(error, Exception) and self._judge(error) is AfterError.RETRY

    def _report_trouble(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        _log.debug("tracking call failed", exc_info=error)
        if state.attempt_number == 1 and isinstance(error, Exception):
            with self._calls.all_tasks_done:
                self.trouble = error
                self._calls.all_tasks_done.notify_all()
            self._report(
                f"tracking does not answer; training continues and tracking will catch up: {first_line(error)[:300]}"
            )

    def _settle(self, error: Exception) -> None:
        """Handle a call that failed for good."""
        _log.debug("tracking call given up", exc_info=error)
        verdict = self._judge(error)
        if verdict is AfterError.STOP:
            self.stopped = error
            self._report(f"tracking is off for this launch: {first_line(error)[:300]}")
        elif verdict is AfterError.DROP:
            self._report(f"a tracking update failed and is skipped: {first_line(error)[:300]}")
