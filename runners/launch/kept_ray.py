"""Ray, started by the first part of a launch that trains, and kept for those that follow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from runners.execution.ray_tune import RayUnits


class KeptRay:
    """A session of Ray for a launch of several parts; a context manager, which leaves it."""

    def __init__(self) -> None:
        self.launch_id = ""
        """The id of the part that trains now."""
        self._units: RayUnits | None = None

    @contextmanager
    def session(self, make: Callable[[], RayUnits], *, keep: bool) -> Iterator[RayUnits]:
        """Ray, for one part of the launch.

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

    def __enter__(self) -> KeptRay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        units, self._units = self._units, None
        if units is not None:
            units.__exit__(kind, error, trace)
