"""The random numbers of one cell, apart from those of the cells that train beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class RandomStream:
    """The state of torch's global generators for one cell.

    Cells that run side by side each draw the numbers they would draw alone, because each swaps its own state in for its
    step. The swap is needed because generators are global in torch: dropout, for one, cannot be given its own.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._cuda = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(self._cuda):
            torch.manual_seed(seed)
            self._state = self._read()

    def _read(self) -> dict[str, Tensor]:
        state = {"cpu": torch.get_rng_state()}
        return state | {device.type: torch.cuda.get_rng_state(device) for device in self._cuda}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within the block torch draws from this stream; afterwards the outer state is restored."""
        with torch.random.fork_rng(self._cuda):
            torch.set_rng_state(self._state["cpu"])
            for device in self._cuda:
                torch.cuda.set_rng_state(self._state["cuda"], device)
            try:
                yield
            finally:
                self._state = self._read()

    def state(self) -> dict[str, Tensor]:
        """The stream's state, uint8 tensors by device type."""
        return dict(self._state)

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from a state that :meth:`state` returned; one of a CPU leaves that of CUDA as it is."""
        self._state = {**self._state, **state}
