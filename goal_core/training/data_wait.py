"""How long the steps of an epoch wait for data."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class DataWait:
    """Watches the loop over an epoch's batches.

    Attributes:
        waited: seconds in which the loop waited for a batch: reading, decoding and augmenting, as far as no process
            has done it in advance. What a batch then costs, a frozen backbone included, is not waiting.
        passed: seconds of the whole loop so far.
    """

    def __init__(self) -> None:
        self.waited = self.passed = 0.0

    def watch(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches."""
        source, began = iter(batches), time.perf_counter()
        while True:
            asked = time.perf_counter()
            try:
                batch = next(source)
            except StopIteration:
                return
            finally:
                now = time.perf_counter()
                self.waited, self.passed = self.waited + now - asked, now - began
            yield batch
            self.passed = time.perf_counter() - began

    @property
    def share(self) -> float:
        """The share of the loop's time that was waiting, in [0, 1]."""
        return self.waited / self.passed if self.passed else 0.0
