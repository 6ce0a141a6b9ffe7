"""Calls that run in order on a thread of their own, again and again while the other side is down.

The driver must never wait for MLflow: a server that does not answer holds its caller for minutes, a locked database
for a minute, while units wait to be scheduled.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

_log = logging.getLogger(__name__)
_DELAYS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Verdict(Enum):
    """What an error means for the calls that wait."""

    RETRY = "retry"
    """The other side is down: try the same call again later."""
    DROP = "drop"
    """This call can never succeed: leave it out."""
    STOP = "stop"
    """No call can ever succeed."""


class CallQueue:
    """An ordered queue of calls with its own thread.

    Args:
        judge: what an exception of a call means.
        report: told in one line of trouble and of its end, once each; called on the queue's thread.
    """

    def __init__(self, judge: Callable[[Exception], Verdict], report: Callable[[str], None]) -> None:
        self._judge, self._report = judge, report
        self._calls: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self.stopped: Exception | None = None
        """The error after which no call is made any more."""
        self._thread = threading.Thread(target=self._work, name="goal-sweep tracking", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Calls not made yet."""
        return len(self._calls)

    def submit(self, call: Callable[[], None]) -> None:
        """Have a call made after those before it. Returns at once."""
        with self._changed:
            if self.stopped is not None or self._closing:
                return
            self._calls.append(call)
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until every call is made.

        Args:
            timeout: seconds.

        Returns:
            Whether they all are.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not self._calls, timeout) and self.stopped is None

    def close(self, timeout: float) -> int:
        """Make the calls that are left, for as long as allowed, and end the thread.

        Args:
            timeout: seconds.

        Returns:
            How many calls were never made.
        """
        self.flush(timeout)
        with self._changed:
            self._closing = True
            left = len(self._calls)
            self._changed.notify_all()
        self._thread.join(timeout=1.0)
        return left

    def _work(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._calls) or self._closing)
                if self._closing:
                    return
                call = self._calls[0]
            try:
                call()
            except Exception as error:
                _log.debug("tracking call failed", exc_info=True)
                if self._settle(error, failures):
                    failures = 0
                else:
                    failures += 1
                continue
            self._made()
            if failures:
                self._report(f"tracking works again; {self.pending} updates to catch up")
            failures = 0

    def _settle(self, error: Exception, failures: int) -> bool:
        """Deal with a failed call; whether it is off the queue."""
        verdict = self._judge(error)
        if verdict is Verdict.RETRY:
            if failures == 0:
                self._report(f"tracking does not answer; training goes on and tracking catches up: {one_line(error)}")
            self._pause(_DELAYS[min(failures, len(_DELAYS) - 1)])
            return False
        if verdict is Verdict.STOP:
            self._report(f"tracking is off for this launch: {one_line(error)}")
            with self._changed:
                self.stopped = error
                self._calls.clear()
                self._changed.notify_all()
            return True
        self._report(f"a tracking update was refused and left out: {one_line(error)}")
        self._made()
        return True

    def _made(self) -> None:
        with self._changed:
            if self._calls:
                self._calls.popleft()
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._closing, max(0.0, deadline - time.monotonic()))


def one_line(error: Exception) -> str:
    """An error's first line, bounded."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]
