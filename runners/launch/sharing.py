"""How launches of the same sweep get along: one waits for another, or several share the sweep."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from runners.store import Heartbeat, LeaseHeldError

_LOOK_S = 2.0
"""Seconds between looks at whether another launch has ended."""


def start_waiting(heartbeat: Heartbeat, keys: Collection[str], wait_s: float, note: Callable[[str], None]) -> None:
    """Announce the trainings of a launch, and wait for another launch that does some of them already.

    Args:
        heartbeat: the heartbeat of this launch.
        keys: the keys of its trainings.
        wait_s: seconds to wait; a batch job that was killed counts as alive for a minute.
        note: shows a line to the user.

    Raises:
        LeaseHeldError: the other launch still lives after that time.
    """
    deadline, told = time.monotonic() + wait_s, False
    while True:
        try:
            heartbeat.start(keys)
        except LeaseHeldError as error:
            if time.monotonic() >= deadline:
                raise
            if not told:
                note(f"waiting for another launch: {error}")
            told = True
            time.sleep(_LOOK_S)
        else:
            return
