"""Ray for all parts of one launch: started by the first part that trains, and left after the last."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from runners.execution.ray_tune import RayUnits


class LaunchRay:
    """The session of Ray of one launch. A context manager, which leaves it."""

    def __init__(self) -> None:
        self.launch_id = ""
        """The id of the part that trains now."""
        self._units: RayUnits | None = None

    @contextmanager
    def session(self, make: Callable[[], RayUnits], *, keep: bool) -> Iterator[RayUnits]:
        """The session, for one part of the launch.

        Args:
            make: makes the session, unless there is one.
            keep: stay in it after this part, unless an error ends the part.
        """
        if self._units is None:
            units = make()
            self._units = units.__enter__()
        try:
            yield self._units
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        if not keep:
            self.__exit__(None, None, None)

    def __enter__(self) -> LaunchRay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        units, self._units = self._units, None
        if units is not None:
            units.__exit__(kind, error, trace)
